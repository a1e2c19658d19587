//! Rules for single values of a config. Each rule returns the reason why a value is not valid, without showing the value.

use crate::text::nearest;

type Verdict = Result<(), &'static str>;

pub(super) fn check_variable_name(name: &str) -> Verdict {
    if name.is_empty() {
        return Err("the name of an environment variable is empty");
    }
    if name.contains(['=', '\0']) { Err("the name of an environment variable cannot contain \"=\" or a NUL character") } else { Ok(()) }
}

pub(super) fn check_no_nul(text: &str) -> Verdict {
    if text.contains('\0') { Err("has a NUL character, which cannot be passed to a program") } else { Ok(()) }
}

/// Checks that a header's name is a `token` of RFC 9110.
pub(super) fn check_header_name(name: &str) -> Verdict {
    let is_token = |next: u8| next.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&next);
    if name.is_empty() || !name.bytes().all(is_token) { Err("is not a valid header name; use letters, digits and \"-\"") } else { Ok(()) }
}

/// Checks a header's value. A line end in it would start another header.
pub(super) fn check_header_value(value: &str) -> Verdict {
    let forbidden = |next: char| next.is_control() && next != '\t';
    if value.contains(forbidden) { Err("has a line end or another control character, which a header cannot contain") } else { Ok(()) }
}

/// Maximum length of an npm package's name.
const MAX_PACKAGE_CHARS: usize = 214;

/// Checks the name of an npm package, with or without a scope. Such a name is never a path.
pub(super) fn check_package_name(name: &str) -> Verdict {
    if is_package_name(name) { Ok(()) } else { Err("is not the name of a package, like acme-mcp or @acme/mcp-tools") }
}

/// Returns whether an npm package can have this name.
///
/// ```
/// use hyperlight_mcp::config::is_package_name;
/// assert!(is_package_name("acme-mcp") && is_package_name("@acme/mcp-tools"));
/// assert!(!is_package_name("../acme") && !is_package_name("acme/mcp") && !is_package_name("Acme"));
/// ```
#[must_use]
pub fn is_package_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let fits = |next: char| next.is_ascii_lowercase() || next.is_ascii_digit() || matches!(next, '-' | '.' | '_' | '~');
        part.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit()) && part.chars().all(fits)
    };
    let parts = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').map(|(scope, rest)| [scope, rest].map(is_part)),
        None => Some([is_part(name), true]),
    };
    name.len() <= MAX_PACKAGE_CHARS && parts == Some([true, true])
}

/// Maximum length of a keyword or a capability.
const MAX_LABEL_CHARS: usize = 64;

/// Checks a keyword or a capability. People and models read the label, and the texts of tasks are compared with it.
pub(super) fn check_label(label: &str) -> Verdict {
    let is_readable = label.chars().all(|next| next == ' ' || next.is_alphanumeric() || next.is_ascii_graphic());
    if label.trim() != label || label.is_empty() || label.chars().count() > MAX_LABEL_CHARS || !is_readable {
        Err("must be texts of 1 to 64 letters, digits and signs, with spaces only between words")
    } else {
        Ok(())
    }
}

/// Checks that a scope is a `scope-token` of RFC 6749.
pub(super) fn check_scope(scope: &str) -> Verdict {
    let fits = |next: char| matches!(next, '!' | '#'..='[' | ']'..='~');
    if scope.is_empty() || !scope.chars().all(fits) {
        Err("is not a scope; write each scope as one word without quotes and backslashes")
    } else {
        Ok(())
    }
}

/// Keys that other programs have, each with the text that replaces it in a config of this program.
const KEYS_OF_OTHERS: [(&str, &str); 18] = [
    ("bearer_token_env_var", "\"headers\": { \"Authorization\": \"Bearer ${NAME}\" }"),
    ("connectionTimeout", "connectTimeoutMs"),
    ("disabledTools", "denyTools"),
    ("disabled_tools", "denyTools"),
    ("enabledTools", "allowTools"),
    ("enabled_tools", "allowTools"),
    ("env_http_headers", "\"headers\": { \"NAME\": \"${VARIABLE}\" }"),
    ("env_vars", "\"env\": { \"NAME\": \"${NAME}\" }"),
    ("environment", "env"),
    ("excludeTools", "denyTools"),
    ("http_headers", "headers"),
    ("includeTools", "allowTools"),
    ("requestInit", "headers"),
    ("startup_timeout_ms", "connectTimeoutMs"),
    ("startup_timeout_sec", "connectTimeoutMs, in milliseconds"),
    ("timeout", "timeoutMs, in milliseconds"),
    ("tool_timeout_sec", "timeoutMs, in milliseconds"),
    ("workingDirectory", "cwd"),
];

/// Returns the warning for an unknown key, with the known key that was probably meant.
pub(super) fn unknown_key<'k>(key: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    if let Some((_, ours)) = KEYS_OF_OTHERS.iter().find(|(theirs, _)| *theirs == key) {
        return format!("this key is unknown and ignored; write {ours}");
    }
    nearest(key, known).map_or_else(
        || "this key is unknown and ignored".to_owned(),
        |meant| format!("this key is unknown and ignored; did you mean {meant}?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_readable() {
        for label in ["files", "pull request", "café", "c++", &"x".repeat(64)] {
            assert!(check_label(label).is_ok(), "{label:?}");
        }
        for label in ["", " a", "a ", "a\nb", "a\u{202e}b", "a\u{200b}", &"x".repeat(65)] {
            assert!(check_label(label).is_err(), "{label:?}");
        }
    }

    #[test]
    fn headers_cannot_be_broken_out_of() {
        assert!(check_header_name("X-Api.Key_1").is_ok());
        for name in ["", "a b", "a:b", "a\n", "é"] {
            assert!(check_header_name(name).is_err(), "{name:?}");
        }
        assert!(check_header_value("Bearer é\tx").is_ok());
        for value in ["a\r\nb: c", "a\nb", "a\0"] {
            assert!(check_header_value(value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn a_scope_is_one_word() {
        for scope in ["read", "repo:status", "https://example.com/scope", "!"] {
            assert!(check_scope(scope).is_ok(), "{scope}");
        }
        for scope in ["", "a b", "a\"", "a\\", "é", "a\n"] {
            assert!(check_scope(scope).is_err(), "{scope:?}");
        }
    }

    #[test]
    fn a_variables_name_is_one_that_a_program_can_be_given() {
        assert!(check_variable_name("npm_config_x.y").is_ok());
        for name in ["", "A=B", "A\0"] {
            assert!(check_variable_name(name).is_err(), "{name:?}");
        }
        assert!(check_no_nul("a\0b").is_err() && check_no_nul("ab").is_ok());
    }
}
