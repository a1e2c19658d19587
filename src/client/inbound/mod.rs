//! Messages that a server sends without a request: questions and notifications. This module also finds the call to which a message
//! belongs.

pub(in crate::client) mod authorization;
pub(in crate::client) mod caller;
pub(in crate::client) mod calls;
pub(in crate::client) mod form;
pub(in crate::client) mod handler;
pub(in crate::client) mod notification;
pub(in crate::client) mod observed;
pub(in crate::client) mod owner;
pub(in crate::client) mod question_candidates;
pub(in crate::client) mod questions;
pub(in crate::client) mod rate_limit;
mod roots;
pub(in crate::client) mod routing;
pub(in crate::client) mod server_requests;
pub(in crate::client) mod updates;
