//! Finds the words of a command line or of a variable that may be paths.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::budget::{Budget, is_usable};
use super::contents::is_relative_path;
use super::paths::Lookup;

/// Maximum number of letters that a short flag may have before its value: `-xf/path`.
const MAX_FLAG_LETTERS: usize = 4;
/// The characters that end a word, in addition to white space. A colon is not among them, because URLs have colons.
const ENDS: &str = "=,;|&()<>'\"`{}[]";
/// The text is also split at each of these sets of characters alone, so that paths with white space are found too.
const OUTER: [&str; 4] = ["'\"`", ":", ",", ";"];

/// The words of one text. Each word is contained once, however often the text has it.
struct Words<'b> {
    /// Words that may be paths.
    whole: BTreeSet<String>,
    /// Parts of other words, such as `compose.yml` in `-fcompose.yml` and `options` in `@options`. They count as relative paths only if
    /// something exists there.
    rests: BTreeSet<String>,
    budget: &'b mut Budget,
}

/// The folders to which the words of a command refer.
pub(super) struct Folders<'a> {
    /// The folder of relative paths. `None` if a relative path names nothing on the machine.
    pub(super) working: Option<&'a Path>,
    /// The folder that `~` and `$HOME` mean.
    pub(super) home: &'a Path,
    /// Returns the value of a variable that a shell would fill in.
    pub(super) value_of: &'a dyn Fn(&str) -> Option<String>,
}

impl Folders<'_> {
    /// Returns a text with the values of its variables. `None` if it has no variable with a value.
    pub(super) fn filled(&self, text: &str, budget: &Budget) -> Option<String> {
        let value_of = |name: &str| if name == "HOME" { self.home.to_str().map(str::to_owned) } else { (self.value_of)(name) };
        with_values(text, &value_of, budget.text_bytes())
    }

    /// Returns the paths that a text names, without the values of its variables: the whole text, and each part of it. A part without the form of a
    /// path counts if the working folder has something with this name.
    pub(super) fn paths_in(&self, text: &str, budget: &mut Budget, lookup: &impl Lookup) -> Vec<PathBuf> {
        let Words { whole, rests, .. } = words(text, budget);
        let all = whole.iter().map(|word| (word, false)).chain(rests.iter().map(|word| (word, true)));
        all.filter_map(|(word, is_rest)| self.path_of(word, is_rest, lookup)).filter(|path| budget.take_path(path, lookup)).collect()
    }

    fn path_of(&self, text: &str, is_rest: bool, lookup: &impl Lookup) -> Option<PathBuf> {
        // No file name has this byte.
        if text.contains('\0') || !is_usable(Path::new(text)) {
            return None;
        }
        if let Some(rest) = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|start| text.strip_prefix(start)) {
            return self.placed(&Some(self.home).filter(|home| is_usable(home))?.join(rest.trim_start_matches('/')));
        }
        if matches!(text, "~" | "$HOME" | "${HOME}") {
            return Some(self.home.to_owned()).filter(|home| is_usable(home));
        }
        let path = self.placed(Path::new(text))?;
        let is_path = text.starts_with('/') || is_relative_path(text);
        let is_sure = is_path && (!is_rest || text.starts_with(['/', '.']));
        // A command without a working folder starts in the root folder. A word of such a command does not name a file there only because it
        // is the name of this file.
        let may_be_entry = || !text.starts_with('-') && self.working != Some(Path::new("/"));
        (is_sure || (may_be_entry() && lookup.identity(&path).is_some())).then_some(path)
    }

    /// Returns the place of a path. `None` for a relative path of a command without a working folder.
    pub(super) fn placed(&self, path: &Path) -> Option<PathBuf> {
        if path.is_absolute() {
            return Some(path.components().collect());
        }
        // `./a` and `a` are the same place.
        Some(self.working?.join(path).components().collect())
    }
}

/// Returns a text, and each part of it that may be a path: the value of `--flag=path` or `-Ipath`, the file of `@path`, the path of a URL,
/// or a file in the command line of `sh -c`. A text with percent-encoded characters, quotes or backslashes is also looked at without them.
fn words<'b>(text: &str, budget: &'b mut Budget) -> Words<'b> {
    let text = budget.take_text(text);
    let mut found = Words { whole: BTreeSet::new(), rests: BTreeSet::new(), budget };
    for form in [Some(text.to_owned()), decoded(text)].into_iter().flatten() {
        found.add_parts(&form, false);
        // JSON may have a backslash before each slash and each quote.
        if form.contains('\\') {
            found.add_parts(&form.replace('\\', ""), false);
        }
        if let Some(unquoted) = unquoted(&form) {
            found.add_parts(&unquoted, true);
        }
    }
    found.add_rests();
    found
}

/// Returns whether a word ends before this character, in a text without quotes.
fn ends(character: char) -> bool {
    character.is_whitespace() || ENDS.contains(character)
}

/// Returns a command line without its quotes and backslashes. A blank that does not end a word for a shell becomes another character
/// ([`hidden`]). `None` if this changes nothing.
fn unquoted(text: &str) -> Option<String> {
    let (mut plain, mut quote, mut is_escaped) = (String::new(), None, false);
    for character in text.chars() {
        match character {
            _ if is_escaped => {
                plain.push(if ends(character) { hidden(character) } else { character });
                is_escaped = false;
            }
            '\\' if quote != Some('\'') => is_escaped = true,
            '\'' | '"' if quote.is_none() => quote = Some(character),
            _ if quote == Some(character) => quote = None,
            // A shell knows only blanks of ASCII.
            _ if character.is_whitespace() && (quote.is_some() || !character.is_ascii()) => plain.push(hidden(character)),
            _ => plain.push(character),
        }
    }
    (plain != text).then_some(plain)
}

/// The characters of Unicode for private use that stand for characters within quotes.
const HIDDEN: std::ops::Range<u32> = 0xF_0000..0xF_FFFE;

/// Returns the private-use character that stands for a character within quotes.
fn hidden(character: char) -> char {
    Some(HIDDEN.start + u32::from(character)).filter(|code| HIDDEN.contains(code)).and_then(char::from_u32).unwrap_or(character)
}

fn shown(character: char) -> char {
    let code = u32::from(character);
    Some(code).filter(|code| HIDDEN.contains(code)).and_then(|code| char::from_u32(code - HIDDEN.start)).unwrap_or(character)
}

/// Returns a text with the values of its variables (`$NAME`, `${NAME}` and `${NAME:-default}`). Stops after the first value that makes the
/// text longer than `most` bytes. `None` if no variable in the text has a value.
fn with_values(text: &str, value_of: &dyn Fn(&str) -> Option<String>, most: usize) -> Option<String> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let (mut filled, mut rest, mut is_filled) = (String::new(), text, false);
    // The length of the text behind the next closing brace. Each brace is searched once, however many `${` are before it.
    let mut behind_brace = rest.find('}').map(|place| rest.len() - place - 1);
    while let Some((before, behind)) = rest.split_once('$') {
        filled.push_str(before);
        while behind_brace.is_some_and(|length| length >= behind.len()) {
            behind_brace = behind.find('}').map(|place| behind.len() - place - 1);
        }
        let in_braces = behind.strip_prefix('{').zip(behind_brace).map(|(inner, length)| {
            let (inner, after) = inner.split_at(inner.len() - length);
            (&inner[..inner.len() - 1], after)
        });
        let (inner, after) = in_braces.unwrap_or_else(|| behind.split_at(behind.find(|next| !is_name(next)).unwrap_or(behind.len())));
        let (name, default) = inner.split_at(inner.find(|next| !is_name(next)).unwrap_or(inner.len()));
        let default = default.strip_prefix(":-").or_else(|| default.strip_prefix('-'));
        if let Some(value) = value_of(name).filter(|value| !value.is_empty()).map(Cow::Owned).or(default.map(Cow::Borrowed)) {
            filled.push_str(&value);
            rest = after;
            is_filled = true;
        } else {
            filled.push('$');
            rest = behind;
        }
        if filled.len() > most {
            return is_filled.then_some(filled);
        }
    }
    filled.push_str(rest);
    is_filled.then_some(filled)
}

impl Words<'_> {
    /// Adds the parts of a text. `is_unquoted` is true if the text may contain characters that stand for others ([`hidden`]).
    fn add_parts(&mut self, text: &str, is_unquoted: bool) {
        let text = without_hosts(text);
        let outer = OUTER.iter().flat_map(|ends| text.split(move |character| ends.contains(character)));
        let value = text.split_once('=').map(|(_, value)| value);
        let parts = text.split(ends).flat_map(|part| [part].into_iter().chain(part.split(':')));
        let parts = [text.as_str()].into_iter().chain(value).chain(outer).chain(parts).map(str::trim);
        // A name can end with a blank.
        let whole = [text.as_str()].into_iter().chain(value);
        for part in whole.chain(parts).filter(|part| !part.trim().is_empty()) {
            let part = if is_unquoted { Cow::Owned(part.chars().map(shown).collect()) } else { Cow::Borrowed(part) };
            if self.whole.contains(&*part) {
                continue;
            }
            if !self.budget.take_word() {
                break;
            }
            self.whole.insert(part.into_owned());
        }
    }

    fn add_rests(&mut self) {
        for rest in self.whole.iter().flat_map(|word| rests(word)) {
            if self.rests.contains(rest) {
                continue;
            }
            if !self.budget.take_word() {
                break;
            }
            self.rests.insert(rest.to_owned());
        }
    }
}

/// Removes the scheme, user, password and host of each URL in the text, and keeps everything else. A host, a user and a password are not
/// paths.
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

/// Returns the rests of a word after one of these is removed: a flag of some letters, a sign that the word names a file, a query, a place
/// within an archive, or the start of a placeholder (`/p/x.env${…}`).
fn rests(word: &str) -> impl Iterator<Item = &str> {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')).unwrap_or_default();
    let behind_letters = letters.char_indices().skip(1).take(MAX_FLAG_LETTERS).map(|(start, _)| &letters[start..]);
    let file = word.strip_prefix(['@', '+', '%']);
    let without_query = Some(before_query(word)).filter(|rest| rest.len() < word.len());
    let archive = word.split_once("!/").map(|(archive, _)| archive);
    // `/p/${NAME}` names an unknown file in `/p`, and not this folder.
    let before_placeholder = word.strip_suffix('$').filter(|rest| !rest.ends_with('/'));
    behind_letters.chain([file, without_query, archive, before_placeholder].into_iter().flatten()).filter(|rest| !rest.is_empty())
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

    // long: one line for each form of a word.
    #[test]
    fn a_path_is_found_in_each_form() {
        let folder = tempfile::tempdir().unwrap();
        let working = folder.path().canonicalize().unwrap();
        std::fs::write(working.join("compose.yml"), "").unwrap();
        let value_of = |name: &str| (name == "USER").then(|| "ada".to_owned());
        let folders = Folders { working: Some(&working), home: Path::new("/home/ada"), value_of: &value_of };
        let paths_in = |text: &str| {
            let mut budget = Budget::new();
            let forms = [Some(text.to_owned()), folders.filled(text, &budget)].into_iter().flatten();
            forms.flat_map(|form| folders.paths_in(&form, &mut budget, &Disk)).collect::<Vec<_>>()
        };
        let finds = |text: &str, path: &str| paths_in(text).contains(&working.join(path));
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
            (r"sh -c node\ x /ws/my\ dir/x.mjs", "/ws/my dir/x.mjs"),
            ("exec node /ws/q/\"my dir\"/x.mjs", "/ws/q/my dir/x.mjs"),
            ("P='/ws/a b:/ws/c d' python -m x", "/ws/a b"),
            ("P='/ws/a b:/ws/c d' python -m x", "/ws/c d"),
            (r"node /ws/semi\;colon/x.mjs", "/ws/semi;colon/x.mjs"),
            ("node /ws/a\u{a0}b.mjs", "/ws/a\u{a0}b.mjs"),
            (r#"{"path":"\/ws\/x.mjs"}"#, "/ws/x.mjs"),
            (r#"{\"path\":\"/ws/x.mjs\"}"#, "/ws/x.mjs"),
            ("-xf/ws/x.tar", "/ws/x.tar"),
            ("-sf/ws/Makefile", "/ws/Makefile"),
            ("-czvf/ws/x.tar", "/ws/x.tar"),
            ("-Dlogging.config=jar:file:/ws/x.jar!/log.xml", "/ws/x.jar"),
            ("node /home/$USER/srv/x.mjs", "/home/ada/srv/x.mjs"),
            ("node /home/${USER}/x.mjs", "/home/ada/x.mjs"),
            ("node \"/home/$USER/my dir/x.mjs\"", "/home/ada/my dir/x.mjs"),
            ("node /home/${NAME:-bob}/x.mjs", "/home/bob/x.mjs"),
            ("--data=$HOME/x", "/home/ada/x"),
            ("/ws/trail.sh ", "/ws/trail.sh "),
            ("--file=/ws/trail.sh ", "/ws/trail.sh "),
            ("/ws/trail.sh ", "/ws/trail.sh"),
            ("/ws/x.env${command:pick}", "/ws/x.env"),
            ("--import=/ws/x.mjs ${command:pick}", "/ws/x.mjs"),
            ("node ${UNSET ${ /home/${USER}/x.mjs", "/home/ada/x.mjs"),
        ] {
            assert!(finds(text, path), "{text}: {:?}", paths_in(text));
        }
    }

    #[test]
    fn other_words_are_no_paths() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { working: Some(folder.path()), home: Path::new("/home/ada"), value_of: &|_| None };
        for text in ["-y", "-abc", "server", "$UNSET", "@scope/name", "https://host", "--flag=word", "", "a\0b"] {
            assert_eq!(folders.paths_in(text, &mut Budget::new(), &Disk), [] as [PathBuf; 0], "{text}");
        }
        assert!(!folders.paths_in("/ws/${UNSET}/x", &mut Budget::new(), &Disk).contains(&PathBuf::from("/ws")));
        for url in ["https://ada:pass.js@host/x", "postgres://ada:pass,word@host:1/x", "ws://host/x"] {
            let found = folders.paths_in(url, &mut Budget::new(), &Disk);
            assert!(found.iter().all(|path| path.starts_with("/x")), "{url}: {found:?}");
        }
        let elsewhere = Folders { working: None, home: Path::new("/home/ada"), value_of: &|_| None };
        assert_eq!(elsewhere.paths_in("./x", &mut Budget::new(), &Disk), [] as [PathBuf; 0]);
        assert_eq!(elsewhere.paths_in("./x:/ws/y", &mut Budget::new(), &Disk), [PathBuf::from("/ws/y")]);
    }

    /// For each `${`, the search for its end covers the rest of the text. At this length, quadratic work would take minutes.
    #[test]
    fn placeholders_without_a_value_take_linear_time() {
        let open = "${".repeat(4 << 20);
        for text in [open.clone(), format!("{open}}}"), format!("{open}{}", "}".repeat(4 << 20))] {
            let filled = crate::files::testing::at_once(move || with_values(&text, &|_| None, usize::MAX));
            assert_eq!(filled, None);
        }
        let filled = |text: &str| with_values(text, &|name| (name == "A").then(|| "x".to_owned()), usize::MAX);
        for (text, expected) in [
            ("${B${A}}$A}", Some("${Bx}x}")),
            ("${A}${B}${A:-y}${B:-y}${B-}$", Some("x${B}xy$")),
            ("${A", None),
            ("${", None),
            ("}${A}", Some("}x")),
        ] {
            assert_eq!(filled(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_value_is_filled_in_up_to_the_budget() {
        let text = "$A,/b ".repeat(1_000);
        let filled = with_values(&text, &|name| (name == "A").then(|| "x".repeat(1_000)), 10_000).unwrap();
        assert!((10_000..12_000).contains(&filled.len()), "{}", filled.len());
        let mut budget = Budget::new();
        let found = words("a,a,b,a", &mut budget);
        assert_eq!(found.whole, ["a", "a,a,b,a", "b"].map(str::to_owned).into());
    }
}
