//! The client against servers that answer in every way they should not.

mod addresses;
mod answers;
mod bodies;
mod lifecycle;
mod refusals;
mod streams;
