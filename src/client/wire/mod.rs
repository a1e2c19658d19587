//! Parsing of messages, independent of the transport.

pub(in crate::client) mod answer;
pub(in crate::client) mod json;
