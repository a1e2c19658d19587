//! The guest's globals in a real guest: the cases of the web platform tests, as data in `tests/web-platform`, and behaviour that these
//! cases do not cover.

mod behaviour;
mod console;
mod fetch;
mod guest;
mod time;
mod web_platform;
