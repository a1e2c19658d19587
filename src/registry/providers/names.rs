//! Names of providers and of their servers.

use crate::text::check_server_name;

/// The text between the name of a provider and the name of its server.
const JOINT: &str = "--";

/// Returns the provider name of a package: `acme-mcp-tools` for `@acme/mcp-tools`.
///
/// # Errors
/// Returns the reason if the package's name cannot be converted.
///
/// ```
/// use hyperlight_mcp::registry::providers::provider_name;
/// assert_eq!(provider_name("@acme/mcp_tools.js").unwrap(), "acme-mcp-tools-js");
/// assert!(provider_name("7zip-mcp").is_err());
/// ```
pub fn provider_name(package: &str) -> Result<String, String> {
    let mut name = String::with_capacity(package.len());
    for character in package.chars() {
        if character.is_ascii_lowercase() || character.is_ascii_digit() {
            name.push(character);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    let name = name.trim_end_matches('-').to_owned();
    match check_provider_name(&name) {
        Ok(()) => Ok(name),
        Err(problem) => Err(format!("the package's name cannot be converted to a provider's name: {problem}")),
    }
}

/// Checks the name of a provider.
///
/// # Errors
/// Returns the rule that the name breaks.
pub fn check_provider_name(name: &str) -> Result<(), &'static str> {
    if check_server_name(name).is_err() {
        return Err("a provider's name must match ^[a-z][a-z0-9-]*$, have at most 64 characters, and not be reserved");
    }
    if name.contains(JOINT) { Err("a provider's name cannot contain \"--\"") } else { Ok(()) }
}

/// Returns the complete name of a provider's server: `<provider>--<server>`.
pub(super) fn full_name(provider: &str, server: &str) -> Result<String, String> {
    if server.contains(JOINT) || server.starts_with('-') || server.ends_with('-') {
        return Err("cannot contain \"--\", or begin or end with \"-\"".to_owned());
    }
    check_server_name(server).map_err(str::to_owned)?;
    let name = format!("{provider}{JOINT}{server}");
    match check_server_name(&name) {
        Ok(()) => Ok(name),
        Err(_) => Err(format!("is too long: \"{name}\" would have more than 64 characters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_provider_is_called_like_its_package() {
        for (package, name) in [("acme-mcp", "acme-mcp"), ("@acme/mcp-tools", "acme-mcp-tools"), ("a--b", "a-b"), ("@a/b.c_d~", "a-b-c-d")]
        {
            assert_eq!(provider_name(package).unwrap(), name);
        }
        for package in ["7zip", "@9/a", "mcp", "gateway", &"a".repeat(65)] {
            assert!(provider_name(package).is_err(), "{package}");
        }
    }

    #[test]
    fn a_servers_name_is_joined_to_its_providers() {
        assert_eq!(full_name("acme", "files").unwrap(), "acme--files");
        for server in ["a--b", "-a", "a-", "A", "", "mcp", &"a".repeat(59)] {
            assert!(full_name("acme", server).is_err(), "{server}");
        }
    }

    proptest! {
        #[test]
        fn two_pairs_of_names_never_share_a_full_name(a in "[a-c-]{1,4}", b in "[a-c-]{1,4}", c in "[a-c-]{1,4}", d in "[a-c-]{1,4}") {
            let of = |provider: &str, server: &str| check_provider_name(provider).ok().and_then(|()| full_name(provider, server).ok());
            if let (Some(one), Some(other)) = (of(&a, &b), of(&c, &d)) {
                prop_assert_eq!(one == other, a == c && b == d);
            }
        }

        #[test]
        fn a_name_that_is_made_of_a_package_is_a_providers(package in "@?[a-z0-9._~-]{1,8}(/[a-z0-9._~-]{1,8})?") {
            if let Ok(name) = provider_name(&package) {
                prop_assert!(check_provider_name(&name).is_ok());
            }
        }
    }
}
