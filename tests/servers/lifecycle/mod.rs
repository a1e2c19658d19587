//! The life of a connection, and the outcome of calls whose server ends before it has answered them.

mod connections;
mod repeats;
