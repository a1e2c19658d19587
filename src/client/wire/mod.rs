//! Messages as they are written, whatever carries them.

pub(in crate::client) mod answer;
pub(in crate::client) mod json;
pub(in crate::client) mod observed;
