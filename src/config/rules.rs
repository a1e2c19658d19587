//! What single values of a config must be like. Each rule says why a value breaks it, without showing the value.

use crate::text::nearest;

type Verdict = Result<(), &'static str>;

pub(super) fn check_variable_name(name: &str) -> Verdict {
    if name.is_empty() {
        return Err("the name of an environment variable is empty");
    }
    if name.contains(['=', '\0']) { Err("the name of an environment variable can have no \"=\" and no NUL character") } else { Ok(()) }
}

pub(super) fn check_no_nul(text: &str) -> Verdict {
    if text.contains('\0') { Err("has a NUL character, which no program can be given") } else { Ok(()) }
}

/// RFC 9110's `token`.
pub(super) fn check_header_name(name: &str) -> Verdict {
    let is_token = |next: u8| next.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&next);
    if name.is_empty() || !name.bytes().all(is_token) { Err("is no name of a header: letters, digits and \"-\" are") } else { Ok(()) }
}

/// A line end would start a header of its own.
pub(super) fn check_header_value(value: &str) -> Verdict {
    let forbidden = |next: char| next.is_control() && next != '\t';
    if value.contains(forbidden) { Err("has a line end or another control character, which no header can have") } else { Ok(()) }
}

/// RFC 6749's `scope-token`.
pub(super) fn check_scope(scope: &str) -> Verdict {
    let fits = |next: char| matches!(next, '!' | '#'..='[' | ']'..='~');
    if scope.is_empty() || !scope.chars().all(fits) { Err("is no scope: one word a scope, without quotes and backslashes") } else { Ok(()) }
}

/// What is said of a key that nobody reads, with the one that was probably meant.
pub(super) fn unknown_key<'k>(key: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(key, known).map_or_else(|| "unknown, ignored".to_owned(), |meant| format!("unknown, ignored: did you mean {meant}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
