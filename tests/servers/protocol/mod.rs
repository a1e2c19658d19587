//! Tests of the protocol, with both handshakes (`initialize`, `server/discover`), over stdio and HTTP: the beginning of a connection, its
//! lists, its messages, and the failures that it survives.

mod calls;
mod eras;
mod http;
mod lists;
mod tasks;
mod wire;
