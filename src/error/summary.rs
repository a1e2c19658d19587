//! Shortens the errors of servers for people.

use super::Error;

impl Error {
    /// Returns the message of the error in a short form. If a server has ended, the message contains only the most helpful of the last
    /// lines of its standard error. A whole traceback would be hard to read on one line, and the server's log contains all lines.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self::ServerExited { server, during, status, stderr } = self else { return self.to_string() };
        let said = stderr.shown();
        // The text begins with what the server's box has refused. The last lines of standard error follow.
        let (refused, lines) = said.split_once("; the last lines of its standard error: ").unwrap_or((said, ""));
        let line = telling_line(lines).map(|line| format!(". It said: {line}")).unwrap_or_default();
        format!("server \"{server}\" ended {during}: {status}{refused}{line}")
    }

    /// Returns the name of the server whose log contains more about this error. Returns `None` for errors without such a log.
    #[must_use]
    pub fn server_with_log(&self) -> Option<&str> {
        match self {
            Self::ServerExited { server, .. } | Self::ConnectFailed { server, .. } | Self::ConnectTimeout { server, .. } => Some(server),
            _ => None,
        }
    }
}

/// Returns the last line that names an error. If there is none, returns the last line. `lines` are separated by bars, as in the message of
/// the error.
fn telling_line(lines: &str) -> Option<&str> {
    let is_named = |line: &&str| {
        let lower = line.to_ascii_lowercase();
        let is_pointer = lower.contains("log of this run") || lower.starts_with("at ");
        !is_pointer && ["error", "exception", "cannot", "not found", "no such", "denied", "failed"].iter().any(|word| lower.contains(word))
    };
    let all = || lines.split(" | ").map(str::trim).filter(|line| line.chars().any(char::is_alphanumeric));
    all().filter(is_named).last().or_else(|| all().last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Redactor;

    #[test]
    fn of_a_traceback_the_line_that_names_the_error_is_shown() {
        for (lines, expected) in [
            (
                "Traceback (most recent call last): | File \"x.py\", line 1, in <module> | import y | ModuleNotFoundError: No module named 'y'",
                "ModuleNotFoundError: No module named 'y'",
            ),
            (
                "node:internal | throw err; | ^ | Error: Cannot find module '/x.js' | at Module._resolve (node:1) | at node:2 { | requireStack: [] | } | Node.js v22.1.0",
                "Error: Cannot find module '/x.js'",
            ),
            (
                "npm error 404 Not Found - GET https://r | npm error A complete log of this run can be found in: /x",
                "npm error 404 Not Found - GET https://r",
            ),
            ("starting | no such database", "no such database"),
            ("starting | bye", "bye"),
        ] {
            assert_eq!(telling_line(lines), Some(expected));
        }
        assert_eq!(telling_line(""), None);
        let exited = |stderr: &str| {
            Error::ServerExited {
                server: "a".into(),
                during: "before it was ready".into(),
                status: "it exited with code 1".into(),
                stderr: stderr.into(),
            }
            .redacted(&Redactor::new(None, None))
        };
        assert_eq!(
            exited("; the last lines of its standard error: one | two: 2").summary(),
            "server \"a\" ended before it was ready: it exited with code 1. It said: two: 2"
        );
        assert_eq!(exited("").summary(), "server \"a\" ended before it was ready: it exited with code 1");
    }
}
