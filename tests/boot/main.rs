//! Tests of the way from a prompt to tools: real pages from a local server, read through `fetch`, which checks addresses, and a model whose
//! answers were written for these tests, including bad ones. Code is parsed, but not run.

mod answers;
mod caching;
mod generated;
mod model;
mod pages;
mod service;
mod whole_way;
