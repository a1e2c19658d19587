//! Positions in scripts, for error messages.

/// Returns the position in a script as the end of a message. Omits the parts that are not known.
pub(super) fn at(line: Option<u32>, column: Option<u32>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!(" (line {line}, column {column})"),
        (Some(line), None) => format!(" (line {line})"),
        _ => String::new(),
    }
}
