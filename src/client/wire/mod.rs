//! Messages, independent of the transport that carries them.

pub(in crate::client) mod answer;
pub(in crate::client) mod json;
pub(in crate::client) mod observed;
