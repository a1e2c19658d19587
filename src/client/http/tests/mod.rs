//! Tests of the HTTP client against servers that do not follow the protocol.

mod addresses;
mod answers;
mod bodies;
mod lifecycle;
mod refusals;
mod streams;
mod threads;
