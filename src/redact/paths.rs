//! Shortens paths that identify the host's user.

use std::path::Path;

use percent_encoding::utf8_percent_encode;

use super::forms::PATH;

/// The workspace folder in a text.
const WORKSPACE: &str = ".";

/// Folders and their replacements, with the longest path first. The order is needed because the workspace is often inside the home
/// folder.
pub(super) struct Folders {
    folders: Vec<(String, &'static str)>,
    /// What the reader of the text knows already. `None` if nobody in particular reads it.
    known: Option<Vec<String>>,
}

impl Folders {
    /// Makes the list of folders. A folder that is not absolute is ignored, and so is the root folder.
    pub(super) fn new(home: Option<&Path>, workspace: Option<&Path>) -> Self {
        let mut folders = Vec::new();
        for (folder, short) in [(workspace, WORKSPACE), (home, "~")] {
            let Some(folder) = folder.and_then(Path::to_str).map(|folder| folder.trim_end_matches('/')) else { continue };
            if folder.starts_with('/') {
                folders.push((folder.to_owned(), short));
                folders.push((utf8_percent_encode(folder, &PATH).to_string(), short));
            }
        }
        folders.sort_by_key(|(folder, _)| std::cmp::Reverse(folder.len()));
        folders.dedup();
        Self { folders, known: None }
    }

    /// Returns the folders for a reader who knows the workspace, and each path in these texts.
    pub(super) fn known_from(&self, texts: Vec<String>) -> Self {
        Self { folders: self.folders.clone(), known: Some(texts) }
    }

    /// Returns whether the reader knows a path that stands in a text.
    fn knows(&self, path: &str) -> bool {
        let path = path.trim_end_matches(['.', '!']);
        self.known.as_ref().is_some_and(|texts| texts.iter().any(|text| text.contains(path)))
    }

    /// Returns the text with shortened paths. Returns `None` if there is nothing to shorten.
    pub(super) fn shorten(&self, text: &str) -> Option<String> {
        let mut shortened = String::new();
        let (mut copied, mut at, mut url_end) = (0, 0, 0);
        while let Some(start) = text[at..].find('/').map(|found| at + found) {
            at = start + 1;
            let rest = &text[start..];
            if rest.starts_with("//") && text[..start].ends_with(':') {
                at = start + 2;
                if start >= url_end && !text[..start].ends_with("file:") {
                    url_end = start
                        + 2
                        + text[at..]
                            .find(|character: char| ends_path(character) && !"?:,;()[]*".contains(character))
                            .unwrap_or(text.len() - at);
                }
                continue;
            }
            if !may_begin_path(text, start) {
                continue;
            }
            let end = start + rest.find(ends_path).unwrap_or(rest.len());
            let folder = self.folders.iter().find(|(folder, _)| is_within(rest, folder));
            let is_in_workspace = folder.is_some_and(|(_, short)| *short == WORKSPACE);
            let replacement = if self.known.is_some() && is_in_workspace || self.knows(&text[start..end]) {
                None
            } else if let Some((folder, short)) = folder {
                Some((start + folder.len(), *short))
            } else if start >= url_end && !follows_method(&text[..start]) {
                last_two(&text[start..end]).map(|kept| (start + kept, "…"))
            } else {
                None
            };
            if let Some((resume, short)) = replacement {
                shortened.push_str(&text[copied..start]);
                shortened.push_str(short);
                copied = resume;
            }
            at = end.max(copied).max(at);
        }
        (copied > 0).then(|| shortened + &text[copied..])
    }
}

/// Returns whether a path ends before this character. A colon and a comma may be part of a name, but they usually follow a path.
fn ends_path(character: char) -> bool {
    let ends = matches!(
        character,
        '"' | '\'' | '`' | '<' | '>' | '|' | '*' | '?' | ';' | ',' | '(' | ')' | '[' | ']' | '{' | '}' | '\\' | ':' | '…'
    );
    ends || character.is_whitespace() || character.is_control()
}

/// Returns whether a path may begin at this slash. It may not begin inside a word (`and/or`, `text/html`, `1/2`), inside another path or
/// a JSON pointer, or before a second slash.
fn may_begin_path(text: &str, slash: usize) -> bool {
    let before = &text[..slash];
    if text[slash + 1..].starts_with('/') {
        return false;
    }
    let mut backwards = before.chars().rev();
    match backwards.next() {
        Some('/') => before.ends_with("file://"),
        Some(character) if character.is_whitespace() => true,
        None | Some('"' | '\'' | '`' | '(' | '[' | '{' | '<' | '>' | '=' | ',' | ';' | ':' | '|' | '!' | '&') => true,
        // A path may follow a line break that is escaped in JSON, the end of a terminal's colour code, or a compiler flag.
        Some('n' | 'r' | 't') if backwards.next() == Some('\\') => true,
        Some('m')
            if before[..slash - 1]
                .trim_end_matches(|character: char| character.is_ascii_digit() || character == ';')
                .ends_with("\u{1b}[") =>
        {
            true
        }
        Some('I' | 'L') => before[..slash - 1].ends_with('-') && !before[..slash - 2].ends_with(char::is_alphanumeric),
        Some(_) => false,
    }
}

/// Returns whether the text ends with an HTTP method. The path after it, as in `GET /v1/users/1`, is a route and not a file.
fn follows_method(before: &str) -> bool {
    let Some(before) = before.strip_suffix(' ') else { return false };
    let is_last_word = |method: &&str| before.strip_suffix(*method).is_some_and(|rest| !rest.ends_with(char::is_alphanumeric));
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"].iter().any(is_last_word)
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| {
        // A full stop at the end of a sentence is not part of the name. In `/home/me.old`, it is a part of the name.
        rest.starts_with('/') || rest.trim_start_matches(['.', '!']).chars().next().is_none_or(ends_path)
    })
}

/// Returns the position at which the last two names of a path begin. Returns `None` if the path has no more names, or if the text cannot
/// be a path.
fn last_two(path: &str) -> Option<usize> {
    let is_pattern = path.contains('^') || path.ends_with('$') || path.contains("$/");
    // An image in base64 may also begin with a slash, but no name in a path is longer than 255 bytes.
    if is_pattern || path.split('/').any(|name| name.len() > 255) {
        return None;
    }
    let parent = path.trim_end_matches('/').rsplit_once('/')?.0.trim_end_matches('/');
    let kept = parent.rfind('/')?;
    path[..kept].contains(|character| character != '/').then_some(kept)
}
