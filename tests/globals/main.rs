//! The guest's globals in a real guest: the web platform tests' own cases, carried as data in `tests/web-platform`, and what
//! those do not say.

mod behaviour;
mod console;
mod guest;
mod time;
mod web_platform;
