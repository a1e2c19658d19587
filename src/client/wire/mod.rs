//! Parsing and observing of messages, independent of the transport.

pub(in crate::client) mod answer;
pub(in crate::client) mod json;
pub(in crate::client) mod observed;
