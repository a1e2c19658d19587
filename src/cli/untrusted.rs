//! Shows untrusted text at the terminal, so that no line looks like a line of this program.

/// Indents each line of untrusted text except the first, so that no line looks like a line of this program.
pub(super) fn indented(text: &str) -> String {
    text.trim_end_matches('\n').replace('\n', "\n  | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_others_begins_like_one_of_this_program() {
        assert_eq!(indented("a\nhyperlight-mcp: b\n\n"), "a\n  | hyperlight-mcp: b");
        assert_eq!(indented("a"), "a");
    }
}
