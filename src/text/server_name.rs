//! The rule for names of servers.

const MAX_NAME_CHARS: usize = 64;
const RESERVED_NAMES: [&str; 5] = ["fs-read", "fs-write", "fetch", "mcp", "gateway"];

/// Checks a server's name.
///
/// # Errors
/// Returns the rule that the name breaks.
pub(crate) fn check_server_name(name: &str) -> Result<(), &'static str> {
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|first| first.is_ascii_lowercase());
    let rest = characters.all(|next| next.is_ascii_lowercase() || next.is_ascii_digit() || next == '-');
    if !first || !rest || name.len() > MAX_NAME_CHARS {
        return Err("a server's name must match ^[a-z][a-z0-9-]*$ and have at most 64 characters");
    }
    if RESERVED_NAMES.contains(&name) {
        Err("the names fs-read, fs-write, fetch, mcp and gateway are reserved; choose another name")
    } else {
        Ok(())
    }
}

/// Returns whether a server can have this name. A permitted name is too limited to hold a sentence or hidden text.
#[must_use]
pub fn is_server_name(name: &str) -> bool {
    check_server_name(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_name_can_be_taken_for_nothing_else() {
        for name in ["a", "a-1", "weather", &"a".repeat(64)] {
            assert!(check_server_name(name).is_ok(), "{name}");
        }
        for name in ["A", "1a", "a_b", "", "-a", "mcp", "fs-read", "gateway", "ha:x", "host:x", "é", &"a".repeat(65)] {
            assert!(check_server_name(name).is_err(), "{name}");
        }
    }
}
