//! Writes paths and servers for the sentences of an approval. Any program can choose the name of a file, and any entry the name of a
//! server. Neither name may look like a part of the sentence.

use std::fmt;
use std::path::Path;

use crate::config::ServerSource;
use crate::text::is_unseen;

/// Maximum length of a path in a sentence. A command can name paths longer than what a program may open.
const MAX_PATH: usize = 300;
/// Maximum length of a name in a sentence. The name of an entry with errors can have any length.
const MAX_NAME: usize = 128;
/// Characters that separate the parts of a sentence.
const SEPARATORS: &str = ",;'`\\";
/// Characters that can be taken for the end of a quotation.
const QUOTES: &str = "\"“”„‟«»″＂";

/// A server that runs what a box can change, as the approval of the box names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherServer {
    /// A server with another name than that of the box.
    Named(String),
    /// A server with the name of the box's own server, from another source. One of the two hides the other.
    SameName(String, ServerSource),
    /// The box's own server with an entry that is not used: an earlier entry, or one that another entry of the same source hides.
    OtherVersion,
}

impl OtherServer {
    /// Returns the name of the server. `None` for another version of the box's own server.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) | Self::SameName(name, _) => Some(name),
            Self::OtherVersion => None,
        }
    }
}

impl From<&str> for OtherServer {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl fmt::Display for OtherServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => formatter.write_str(&shown_server(name)),
            Self::SameName(name, source) => {
                write!(formatter, "{} of {}", shown_server(name), source.words())?;
                source.name.as_deref().map_or(Ok(()), |of| write!(formatter, " {}", quoted(of, MAX_NAME)))
            }
            Self::OtherVersion => formatter.write_str("another version of this server"),
        }
    }
}

/// Returns a server's name for a sentence: `the server "b"`.
pub(super) fn shown_server(name: &str) -> String {
    format!("the server {}", quoted(name, MAX_NAME))
}

/// Returns a path for a sentence. A path that could be read as more than a path is in quotes.
pub(super) fn shown_path(path: &Path) -> String {
    shown(&path.to_string_lossy(), MAX_PATH)
}

/// Returns a text of an entry, such as an argument, with quotes as in [`shown_path`], but in its whole length.
pub(super) fn shown_text(text: &str) -> String {
    shown(text, usize::MAX)
}

/// Returns whether a path is written without quotes.
pub(super) fn is_plain(path: &Path) -> bool {
    path.to_string_lossy().chars().all(is_plain_character)
}

fn is_plain_character(character: char) -> bool {
    !(character.is_whitespace()
        || character.is_control()
        || is_unseen(character)
        || SEPARATORS.contains(character)
        || QUOTES.contains(character))
}

fn shown(text: &str, most: usize) -> String {
    if text.chars().all(is_plain_character) { cut(text, most) } else { quoted(text, most) }
}

fn cut(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    end.map_or_else(|| text.to_owned(), |end| format!("{}…", &text[..end]))
}

/// Returns a text in quotes. No character of the text can end the quotation.
fn quoted(text: &str, most: usize) -> String {
    let mut out = String::from("\"");
    for character in cut(text, most).chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            _ if QUOTES.contains(character) => out.extend(character.escape_unicode()),
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceKind;

    #[test]
    fn a_path_that_could_be_more_of_the_sentence_is_in_quotes() {
        let shown = |path: &str| shown_path(Path::new(path));
        for plain in ["/home/ada/p", "/ws/{a}/x.y_z-1@2", "/ws/日本", "${workspaceFolder}/x"] {
            assert_eq!(shown(plain), plain);
        }
        assert_eq!(shown("/ws/a, which is safe. Note"), r#""/ws/a, which is safe. Note""#);
        assert_eq!(shown("/ws/My Files"), r#""/ws/My Files""#);
        assert_eq!(shown(r#"/ws/a" is safe, and "b"#), r#""/ws/a\" is safe, and \"b""#);
        assert_eq!(shown(r#"/ws/\" is"#), r#""/ws/\\\" is""#);
        assert_eq!(shown("/ws/a” is safe"), r#""/ws/a\u{201d} is safe""#);
        assert_eq!(shown("/ws/a\u{2800}is"), "\"/ws/a\u{2800}is\"", "its caller writes what cannot be seen as numbers");
        assert_eq!(shown(&format!("/{}", "x".repeat(5_000))).chars().count(), MAX_PATH + 1);
        assert!(shown(&format!("/ {}", "x".repeat(5_000))).ends_with("x…\""));
    }

    #[test]
    fn a_server_is_told_from_others_and_its_name_ends_no_quotation() {
        assert_eq!(OtherServer::from("b").to_string(), r#"the server "b""#);
        let of = |kind, name: Option<&str>| {
            OtherServer::SameName("b".to_owned(), ServerSource { kind, name: name.map(str::to_owned) }).to_string()
        };
        assert_eq!(of(SourceKind::Config, None), r#"the server "b" of the config"#);
        assert_eq!(of(SourceKind::Config, Some("claude-code")), r#"the server "b" of the config of "claude-code""#);
        assert_eq!(of(SourceKind::Agent, Some(r#"a" b"#)), r#"the server "b" of the agent "a\" b""#);
        assert_eq!(of(SourceKind::Agent, None), r#"the server "b" of the agent"#);
        assert_eq!(OtherServer::OtherVersion.to_string(), "another version of this server");
        assert_eq!(OtherServer::from(r#"b" runs, but only "x"#).to_string(), r#"the server "b\" runs, but only \"x""#);
        assert!(OtherServer::from("x".repeat(50_000).as_str()).to_string().chars().count() < 200);
    }
}
