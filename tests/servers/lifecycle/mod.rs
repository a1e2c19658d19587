//! A connection's life, and what becomes of calls whose server does not live to answer them.

mod connections;
mod repeats;
