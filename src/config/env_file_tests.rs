//! Tests the rules of dotenv files.

use secrecy::ExposeSecret as _;

use super::env_file::{MAX_ENV_FILE_BYTES, parse_env_file, read_env_file};

fn parse(text: &str) -> Vec<(String, String)> {
    let variables = parse_env_file(text, ".env").unwrap_or_else(|error| panic!("{error}"));
    variables.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect()
}

/// Returns the value of `A` from a file that sets only `A`.
fn value(text: &str) -> String {
    let variables = parse(text);
    assert!(variables.len() == 1 && variables[0].0 == "A", "{variables:?}");
    variables[0].1.clone()
}

fn problems(text: &str) -> String {
    parse_env_file(text, ".env").unwrap_err().in_full()
}

#[test]
fn blank_lines_and_comments_say_nothing() {
    assert_eq!(value("\u{feff}# A=0\n\n  \t\n  # B=1\n  A = 1  \n#"), "1");
    assert!(parse("").is_empty());
}

#[test]
fn export_is_optional_and_can_be_a_name() {
    assert_eq!(value("export A=1"), "1");
    assert_eq!(value("  export\t A = 1"), "1");
    assert_eq!(parse("export=1\nexported=2"), [("export".into(), "1".into()), ("exported".into(), "2".into())]);
}

#[test]
fn an_unquoted_value_ends_with_its_line_or_at_a_comment_after_a_blank() {
    assert_eq!(value("A=b c # d"), "b c");
    assert_eq!(value("A=b#c"), "b#c");
    assert_eq!(value("A=#c"), "#c");
    assert_eq!(value("A= # c"), "");
    assert_eq!(value("A="), "");
    assert_eq!(value("A=b=c==\t#d"), "b=c==");
    assert_eq!(value("A=it's \"so\" \\n"), "it's \"so\" \\n");
}

#[test]
fn quotes_keep_blanks_and_signs_and_may_have_a_comment_after_them() {
    for quote in ["'", "\"", "`"] {
        assert_eq!(value(&format!("A={quote} b # c {quote}  # d")), " b # c ");
        assert_eq!(value(&format!("A={quote}{quote}")), "");
    }
    assert_eq!(value("A='\"b\"'"), "\"b\"");
    assert_eq!(value("A=\"it's `so`\""), "it's `so`");
}

#[test]
fn escapes_count_in_double_quotes_only() {
    assert_eq!(value(r#"A="b\nc\"d\"\r""#), "b\nc\"d\"\r");
    assert_eq!(value(r"A='b\nc\'"), r"b\nc\");
    assert_eq!(value(r"A=`b\n`"), r"b\n");
    assert_eq!(value(r#"A="C:\dir\\""#), r"C:\dir\\");
    assert_eq!(value(r#"A="\t\$""#), r"\t\$");
}

#[test]
fn a_quoted_value_may_have_several_lines() {
    let text = "A=\"-----BEGIN\n # no comment\nB=2\n-----END\" # c\nC='3\n4'\n";
    let expected = [("A".into(), "-----BEGIN\n # no comment\nB=2\n-----END".into()), ("C".into(), "3\n4".into())];
    assert_eq!(parse(text), expected);
}

#[test]
fn line_ends_of_any_kind_are_read() {
    assert_eq!(parse("A=1\r\nB='2\r\n3'\rC=4"), [("A".into(), "1".into()), ("B".into(), "2\n3".into()), ("C".into(), "4".into())]);
}

#[test]
fn nothing_is_interpolated() {
    assert_eq!(value("A=\"$HOME ${HOME}\""), "$HOME ${HOME}");
}

#[test]
fn the_last_value_of_a_name_counts() {
    assert_eq!(parse("A=1\nB=2\nA=3"), [("A".into(), "3".into()), ("B".into(), "2".into())]);
}

#[test]
fn all_that_is_wrong_is_told_at_once_with_its_line_and_never_its_value() {
    let text = "s3cret\nA=1\n  s3 cret=2\nB=\"x\ny\" s3cret\nC=s3cret\0\n=s3cret\nD='s3cret\nE=1";
    let message = problems(text);
    let starts = [
        ".env has 6 problems:",
        ".env:1:1: must be",
        ".env:3:3: must be",
        ".env:4:3: B: there",
        ".env:6:3: C: has",
        ".env:7:1: must",
        ".env:8:3: D: the quote",
    ];
    let lines: Vec<_> = message.lines().collect();
    assert_eq!(lines.len(), starts.len(), "{message}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line} / {start}");
    }
    assert!(!message.contains("s3"), "{message}");
}

#[test]
fn a_problem_names_no_more_than_the_beginning_of_a_long_name() {
    let name = "Ignore-all-rules.".repeat(9);
    let message = problems(&format!("{name}=\"x"));
    assert!(message.contains("Ignore-all-rules.Ignore") && message.len() < 200 && !message.contains(&name[..64]), "{message}");
}

#[test]
fn a_very_long_file_takes_no_longer_than_its_length() {
    let text = (0..80_000).fold(String::new(), |text, number| text + &format!("A{number}=1\n"));
    assert!(text.len() < MAX_ENV_FILE_BYTES);
    assert_eq!(parse(&text).len(), 80_000);
}

#[test]
fn only_a_regular_file_is_read() {
    assert!(read_env_file(&std::env::temp_dir()).unwrap_err().to_string().contains("not a regular file"));
    assert!(read_env_file(std::path::Path::new("/dev/zero")).is_err());
    assert!(read_env_file(std::path::Path::new("/nowhere/.env")).is_err());
}
