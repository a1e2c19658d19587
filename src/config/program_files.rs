//! File name extensions of programs that a runtime gets as an argument.

use std::path::Path;

/// Extensions of programs that a runtime receives as an argument.
const ENDINGS: [&str; 22] = [
    "bash", "bat", "cjs", "cts", "dll", "exe", "go", "jar", "js", "jsx", "lua", "mjs", "mts", "php", "pl", "py", "rb", "sh", "ts", "tsx",
    "wasm", "zsh",
];

/// Returns whether the name of a file is that of a program, which a runtime gets as an argument.
///
/// ```
/// use hyperlight_mcp::config::is_program_file;
/// assert!(is_program_file("/srv/server.pl".as_ref()) && is_program_file("lib/main.mts".as_ref()));
/// assert!(!is_program_file("/srv/table.db".as_ref()) && !is_program_file("js".as_ref()));
/// ```
#[must_use]
pub fn is_program_file(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| ENDINGS.contains(&ending))
}
