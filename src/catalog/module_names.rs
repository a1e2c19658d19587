//! The names under which agent code imports the modules of servers.

/// The prefix of the modules of servers, without `host:`.
pub(crate) const MODULE_PREFIX: &str = "mcp-";

/// Returns the name of a server's module, without `host:`.
///
/// ```
/// assert_eq!(hyperlight_mcp::bridge::module_name("weather"), "mcp-weather");
/// ```
#[must_use]
pub fn module_name(server: &str) -> String {
    format!("{MODULE_PREFIX}{server}")
}

/// Returns the name by which agent code imports a server's module.
pub(crate) fn module_specifier(server: &str) -> String {
    format!("host:{MODULE_PREFIX}{server}")
}
