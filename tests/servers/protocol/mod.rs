//! The protocol, both eras, over stdio and HTTP: how a connection begins, what it lists, what it carries, and what it survives.

mod calls;
mod eras;
mod http;
mod lists;
mod tasks;
mod wire;
