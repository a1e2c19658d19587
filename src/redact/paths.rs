//! Shortens paths that identify the host's user.

use std::path::Path;

use percent_encoding::utf8_percent_encode;

use super::forms::PATH;

/// The text that replaces the path of the workspace folder.
const WORKSPACE: &str = ".";

/// Folders and their replacements, with the longest path first. The order is needed because the workspace is often inside the home
/// folder.
pub(super) struct Folders {
    folders: Vec<(String, &'static str)>,
    /// Paths that the reader of the text already knows. `None` if the text is not for a particular reader.
    known: Option<KnownPaths>,
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

    /// Returns these folders for a reader who already knows two things: the workspace, and every path in `texts`.
    pub(super) fn known_from(&self, texts: &[String]) -> Self {
        Self { folders: self.folders.clone(), known: Some(KnownPaths::of(texts)) }
    }

    /// Returns the text with shortened paths. Returns `None` if there is nothing to shorten.
    pub(super) fn shorten(&self, text: &str) -> Option<String> {
        let mut shortened = String::new();
        let mut copied = 0;
        let mut paths = Paths::new(text);
        while let Some(path) = paths.next() {
            let Some((resume, short)) = self.replacement(text, &path) else { continue };
            shortened.push_str(&text[copied..path.start]);
            shortened.push_str(short);
            copied = resume;
            paths.continue_at(resume);
        }
        (copied > 0).then(|| shortened + &text[copied..])
    }

    /// Returns the position up to which a path is replaced, and the text that replaces this part of it.
    fn replacement(&self, text: &str, path: &FoundPath) -> Option<(usize, &'static str)> {
        let written = &text[path.start..path.end];
        if let Some((folder, short)) = self.folders.iter().find(|(folder, _)| is_within(&text[path.start..], folder)) {
            // A reader who knows the workspace learns nothing from it. The home folder has the name of the user, which a reader could guess.
            let is_known = self.known.is_some() && *short == WORKSPACE;
            return (!is_known).then_some((path.start + folder.len(), *short));
        }
        if path.is_in_url || follows_method(&text[..path.start]) || self.known.as_ref().is_some_and(|known| known.has(written)) {
            return None;
        }
        last_two(written).map(|kept| (path.start + kept, "…"))
    }
}

/// The paths that a reader has written, sorted. A text of a server may have millions of paths, so each of them is looked up in few steps.
struct KnownPaths(Vec<String>);

impl KnownPaths {
    fn of(texts: &[String]) -> Self {
        let mut known = Vec::new();
        for text in texts {
            let mut paths = Paths::new(text);
            while let Some(path) = paths.next() {
                known.push(without_end(&text[path.start..path.end]).to_owned());
            }
        }
        known.sort_unstable();
        known.dedup();
        Self(known)
    }

    /// Returns whether the reader has written the path, or a path below it.
    fn has(&self, path: &str) -> bool {
        let path = without_end(path);
        let below = format!("{path}/");
        let from = |start: &str| self.0.get(self.0.partition_point(|known| known.as_str() < start));
        from(path).is_some_and(|known| known == path) || from(&below).is_some_and(|known| known.starts_with(&below))
    }
}

/// Returns a path without the end of a sentence, and without the slash at its own end.
fn without_end(path: &str) -> &str {
    path.trim_end_matches(['.', '!']).trim_end_matches('/')
}

/// The place of a path in a text.
struct FoundPath {
    start: usize,
    end: usize,
    /// True if the path is a part of a URL other than `file:`.
    is_in_url: bool,
}

/// The paths of a text, one after the other.
struct Paths<'t> {
    text: &'t str,
    at: usize,
    url_end: usize,
}

impl<'t> Paths<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0, url_end: 0 }
    }

    /// Skips everything before this position.
    fn continue_at(&mut self, position: usize) {
        self.at = self.at.max(position);
    }

    fn next(&mut self) -> Option<FoundPath> {
        let text = self.text;
        while let Some(start) = text[self.at..].find('/').map(|found| self.at + found) {
            self.at = start + 1;
            let rest = &text[start..];
            if rest.starts_with("//") && text[..start].ends_with(':') {
                self.at = start + 2;
                if start >= self.url_end && !text[..start].ends_with("file:") {
                    let ends_url = |character: char| ends_path(character) && !"?:,;()[]*".contains(character);
                    self.url_end = self.at + text[self.at..].find(ends_url).unwrap_or(text.len() - self.at);
                }
                continue;
            }
            if may_begin_path(text, start) {
                let end = start + rest.find(ends_path).unwrap_or(rest.len());
                self.at = self.at.max(end);
                return Some(FoundPath { start, end, is_in_url: start < self.url_end });
            }
        }
        None
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

/// Returns the position at which the last two names of a path begin. Returns `None` if the path has no names before these two, or if the
/// text cannot be a path.
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
