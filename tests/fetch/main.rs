//! Tests of `fetch` on the host over real sockets. Names are resolved by these tests, and every server is a listener of this machine.

mod attacks;
mod bodies;
mod requests;
mod secrets;
mod support;
mod tls;
