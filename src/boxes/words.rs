//! Finds the words of a command line or of a variable that may be paths.

use std::path::{Path, PathBuf};

use super::contents::is_relative_path;
use super::paths::Lookup;

/// Maximum number of words of one text.
const MAX_WORDS: usize = 16_384;
/// The characters that end a word, beside white space. A colon is not among them, because URLs have colons.
const ENDS: &str = "=,;|&()<>'\"`{}[]";
/// The characters that are split at by themselves, so that paths with white space are found too.
const OUTER: [&str; 4] = ["'\"`", ":", ",", ";"];

/// A word that may be a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Word {
    text: String,
    /// True if the word is the rest of another one, such as that of `-fcompose.yml` or `@options`. It counts as a relative path only if something
    /// is there.
    is_rest: bool,
}

/// The folders to which the words of a command refer.
pub(super) struct Folders<'a> {
    /// The folder of relative paths. `None`: they name nothing on the machine.
    pub(super) working: Option<&'a Path>,
    /// The folder that `~` and `$HOME` mean.
    pub(super) home: &'a Path,
}

impl Folders<'_> {
    /// Returns the paths that a text names: the whole text, and each part of it. A part without the form of a path counts if the working folder
    /// has something with this name.
    pub(super) fn paths_in(&self, text: &str, lookup: &impl Lookup) -> Vec<PathBuf> {
        words(text).into_iter().filter_map(|word| self.path_of(&word, lookup)).collect()
    }

    fn path_of(&self, Word { text, is_rest }: &Word, lookup: &impl Lookup) -> Option<PathBuf> {
        // No file name has this byte.
        if text.contains('\0') {
            return None;
        }
        if let Some(rest) = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|start| text.strip_prefix(start)) {
            return self.placed(&self.home.join(rest.trim_start_matches('/')));
        }
        if matches!(text.as_str(), "~" | "$HOME" | "${HOME}") {
            return Some(self.home.to_owned());
        }
        let path = self.placed(Path::new(text))?;
        let is_path = text.starts_with('/') || is_relative_path(text);
        let is_sure = is_path && (!is_rest || text.starts_with(['/', '.']));
        // Every command without a working folder starts in the root folder, but not for the sake of what is there.
        let may_be_entry = || !text.starts_with('-') && self.working != Some(Path::new("/"));
        (is_sure || (may_be_entry() && lookup.identity(&path).is_some())).then_some(path)
    }

    /// Returns the place of a path. `None` for a relative path of a command without a working folder.
    pub(super) fn placed(&self, path: &Path) -> Option<PathBuf> {
        if path.is_absolute() {
            return Some(path.components().collect());
        }
        // `./a` is the place `a`.
        Some(self.working?.join(path).components().collect())
    }
}

/// Returns a text, and each part of it that may be a path: the value of `--flag=path` or `-Ipath`, the file of `@path`, the path of a URL, or a
/// file in the command line of `sh -c`. A text with percent-encoded characters is looked at in both forms.
fn words(text: &str) -> Vec<Word> {
    let mut found = Vec::new();
    add_words(text, &mut found);
    if let Some(decoded) = decoded(text) {
        add_words(&decoded, &mut found);
    }
    let rests: Vec<Word> = found.iter().flat_map(|word| rests(&word.text)).collect();
    found.extend(rests);
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_WORDS);
    found
}

fn add_words(text: &str, found: &mut Vec<Word>) {
    let text = without_hosts(text);
    let ends = |character: char| character.is_whitespace() || ENDS.contains(character);
    let outer = OUTER.iter().flat_map(|ends| text.split(move |character| ends.contains(character)));
    let value = text.split_once('=').map(|(_, value)| value);
    let parts = text.split(ends).flat_map(|part| [part].into_iter().chain(part.split(':')));
    let parts = [text.as_str()].into_iter().chain(value).chain(outer).chain(parts).map(str::trim).filter(|part| !part.is_empty());
    found.extend(parts.map(|part| Word { text: part.to_owned(), is_rest: false }));
}

/// Returns the text with nothing but the path of each URL. A host, a user and a password are not paths.
fn without_hosts(text: &str) -> String {
    let is_scheme = |character: char| character.is_ascii_alphanumeric() || "+-.".contains(character);
    let ends_host = |character: char| character.is_whitespace() || "/?#'\"`<>".contains(character);
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("://") {
        kept.push_str(before.trim_end_matches(is_scheme));
        // The path of a Unix socket may stand where others have the host: `unix://./socket`.
        let host = if behind.starts_with('.') { 0 } else { behind.find(ends_host).unwrap_or(behind.len()) };
        rest = &behind[host..];
    }
    kept + rest
}

fn before_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or(path)
}

/// Returns what is left of a word without a flag of one letter, a sign that it names a file, or a query.
fn rests(word: &str) -> Vec<Word> {
    let behind_letter = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|letters| {
        let mut characters = letters.chars();
        characters.next().map(|_| characters.as_str())
    });
    let file = word.strip_prefix('@');
    let without_query = Some(before_query(word)).filter(|rest| rest.len() < word.len());
    let rests = [behind_letter, file, without_query].into_iter().flatten().filter(|rest| !rest.is_empty());
    rests.map(|rest| Word { text: rest.to_owned(), is_rest: true }).collect()
}

/// Returns the text with its percent-encoded characters decoded. `None` if it has none.
fn decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return None;
    }
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
    (decoded != text).then(|| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::Disk;

    #[test]
    fn a_path_is_found_in_each_form() {
        let folder = tempfile::tempdir().unwrap();
        let working = folder.path().canonicalize().unwrap();
        std::fs::write(working.join("compose.yml"), "").unwrap();
        let folders = Folders { working: Some(&working), home: Path::new("/home/ada") };
        let finds = |text: &str, path: &str| folders.paths_in(text, &Disk).contains(&working.join(path));
        for (text, path) in [
            ("/ws/x", "/ws/x"),
            ("/ws/my file", "/ws/my file"),
            ("--flag=/ws/my file", "/ws/my file"),
            ("/ws/a b:/ws/c d", "/ws/c d"),
            ("cd '/ws/my dir' && make", "/ws/my dir"),
            ("-F/ws/x", "/ws/x"),
            ("-fcompose.yml", "compose.yml"),
            ("compose.yml", "compose.yml"),
            ("@compose.yml", "compose.yml"),
            ("@/ws/options", "/ws/options"),
            ("--data=@./x", "x"),
            ("file:///ws/a%20b.mjs", "/ws/a b.mjs"),
            ("file://localhost/ws/x", "/ws/x"),
            ("file:/ws/x.db?mode=ro", "/ws/x.db"),
            ("file:./x.db?mode=ro", "x.db"),
            ("sqlite:////ws/x.db", "/ws/x.db"),
            ("jdbc:sqlite:/ws/x.db", "/ws/x.db"),
            ("unix:///ws/x.sock", "/ws/x.sock"),
            ("--import=file:///ws/x.mjs", "/ws/x.mjs"),
            ("data:text/javascript,import(\"file:///ws/x.mjs\")", "/ws/x.mjs"),
            ("data:text/javascript,import%28%22%2Fws%2Fx.mjs%22%29", "/ws/x.mjs"),
            ("--require ./hook --enable-source-maps", "hook"),
            ("sh -c \"exec /ws/run --x\"", "/ws/run"),
            ("{\"path\":\"/ws/x\"}", "/ws/x"),
            ("~/x", "/home/ada/x"),
            ("cd $HOME/x; ls", "/home/ada/x"),
            ("../x", "../x"),
        ] {
            assert!(finds(text, path), "{text}: {:?}", folders.paths_in(text, &Disk));
        }
    }

    #[test]
    fn other_words_are_no_paths() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { working: Some(folder.path()), home: Path::new("/home/ada") };
        for text in ["-y", "server", "@scope/name", "https://host", "--flag=word", "", "a\0b"] {
            assert_eq!(folders.paths_in(text, &Disk), [] as [PathBuf; 0], "{text}");
        }
        for url in ["https://ada:pass.js@host/x", "postgres://ada:pass,word@host:1/x", "ws://host/x"] {
            let found = folders.paths_in(url, &Disk);
            assert!(found.iter().all(|path| path.starts_with("/x")), "{url}: {found:?}");
        }
        let elsewhere = Folders { working: None, home: Path::new("/home/ada") };
        assert_eq!(elsewhere.paths_in("./x", &Disk), [] as [PathBuf; 0]);
        assert_eq!(elsewhere.paths_in("./x:/ws/y", &Disk), [PathBuf::from("/ws/y")]);
    }
}
