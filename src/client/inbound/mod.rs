//! What a server sends of its own accord: its questions, its notifications, and whose call they belong to.

pub(in crate::client) mod asked;
pub(in crate::client) mod caller;
pub(in crate::client) mod calls;
pub(in crate::client) mod form;
pub(in crate::client) mod handler;
pub(in crate::client) mod heard;
pub(in crate::client) mod pace;
pub(in crate::client) mod questions;
pub(in crate::client) mod routing;
pub(in crate::client) mod tap;
pub(in crate::client) mod updates;
