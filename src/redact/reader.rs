//! Redaction for one reader who has written a part of the text, because a text can repeat the arguments of the reader's call.

use parking_lot::{Mutex, RwLock};

use serde_json::{Map, Value as Json};

use super::{JSON_DEPTH, Redactor};

/// Maximum total number of bytes in the texts of one reader, which bounds the number of known paths.
const MAX_BYTES: usize = 64 * 1024;

impl Redactor {
    /// Returns a redactor for the reader who has written these texts. For this reader, paths in the workspace are not shortened. Paths that
    /// the texts contain are not shortened either, nor are the folders that contain such a path. The home folder is always shown as `~`, so
    /// that a guess in an argument does not reveal other paths in it. However, a guess that comes back as `~` is confirmed. Secrets are
    /// always replaced, even if the texts contain them. The new redactor knows the secrets that this redactor knows now.
    ///
    /// ```
    /// use hyperlight_mcp::redact::Redactor;
    /// let redactor = Redactor::new(None, Some(std::path::Path::new("/srv/projects/mine")));
    /// redactor.add([&"correct-horse".to_owned().into()]);
    /// let text = "/etc/app/main/x.txt is outside of /srv/projects/mine and /opt/app/main/data: correct-horse";
    /// let reader = redactor.for_reader(&["cat /etc/app/main/x.txt correct-horse".to_owned()]);
    /// assert_eq!(reader.redact(text), "/etc/app/main/x.txt is outside of /srv/projects/mine and …/main/data: [redacted]");
    /// ```
    #[must_use]
    pub fn for_reader(&self, texts: &[String]) -> Self {
        let known = RwLock::new(self.known());
        Self { known, kept: Mutex::default(), building: Mutex::default(), folders: self.folders.known_from(texts) }
    }
}

/// Texts with paths from the arguments of calls. The reader has written them, so [`Redactor::for_reader`] leaves these paths whole.
#[derive(Debug, Clone, Default)]
pub struct WrittenPaths {
    texts: Vec<String>,
    bytes: usize,
}

impl WrittenPaths {
    /// Returns those texts in a call's arguments that may contain a path. Once the limit of their size is reached, further texts are left
    /// out.
    #[must_use]
    pub fn of(arguments: &Map<String, Json>) -> Self {
        let mut written = Self::default();
        arguments.values().for_each(|value| written.add_value(value, JSON_DEPTH));
        written
    }

    /// Adds a text of a call, if it may contain a path.
    pub fn add(&mut self, text: &str) {
        self.add_text(text);
    }

    /// Adds the texts of other calls. The limit applies to all texts together.
    pub fn extend(&mut self, others: &Self) {
        for text in &others.texts {
            self.add_text(text);
        }
    }

    /// Returns the texts that [`Redactor::for_reader`] expects.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    fn add_text(&mut self, text: &str) {
        if text.contains('/') && self.bytes + text.len() <= MAX_BYTES {
            self.bytes += text.len();
            self.texts.push(text.to_owned());
        }
    }

    fn add_value(&mut self, value: &Json, depth: usize) {
        match value {
            Json::String(text) => self.add_text(text),
            Json::Array(items) if depth > 0 => items.iter().for_each(|item| self.add_value(item, depth - 1)),
            Json::Object(fields) if depth > 0 => fields.values().for_each(|field| self.add_value(field, depth - 1)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn reader(arguments: &Json) -> Redactor {
        let redactor = Redactor::new(Some(Path::new("/home/ada")), Some(Path::new("/home/ada/work")));
        redactor.for_reader(WrittenPaths::of(arguments.as_object().unwrap()).texts())
    }

    #[test]
    fn a_reader_reads_own_paths_and_the_workspace_and_no_others() {
        let reader = reader(&json!({ "paths": [{ "path": "/var/data/deep/x.txt" }], "command": "ls /opt/a/b/c -l", "word": "x" }));
        for (text, read) in [
            ("outside allowed directories: /var/data/deep/x.txt.", "outside allowed directories: /var/data/deep/x.txt."),
            ("/var/data/deep/y.txt", "…/deep/y.txt"),
            ("/var/data/deep/x.txt.bak", "…/deep/x.txt.bak"),
            ("'/opt/a/b/c'", "'/opt/a/b/c'"),
            ("at /home/ada/work/src/a.js:1", "at /home/ada/work/src/a.js:1"),
            ("in /home/ada/work", "in /home/ada/work"),
            ("in /home/ada/other/a/b", "in ~/other/a/b"),
            ("no folder /var/data/deep", "no folder /var/data/deep"),
            ("no folder /var/data/de", "no folder …/data/de"),
            ("file:///home/ada/work/a", "file:///home/ada/work/a"),
        ] {
            assert_eq!(reader.redact(text), read);
        }
    }

    #[test]
    fn a_guess_does_not_confirm_the_name_of_the_home_folder() {
        let reader = reader(&json!({ "guesses": "/home/ada/.ssh/id_rsa /home/bob/.ssh/id_rsa /home/ada/x" }));
        assert_eq!(reader.redact("cannot read /home/ada/.ssh/id_rsa"), "cannot read ~/.ssh/id_rsa");
        assert_eq!(reader.redact("cannot read file:///home/ada/x"), "cannot read file://~/x");
    }

    #[test]
    fn a_path_is_looked_up_in_few_steps_however_long_the_arguments_are() {
        let arguments = json!({ "text": format!("/{}", "b".repeat(60_000)) });
        let (reader, error) = (reader(&arguments), " /a".repeat(100_000));
        // With a search through the arguments for each path, this would take minutes.
        assert_eq!(reader.redact(&error), error);
    }

    #[test]
    fn long_arguments_count_up_to_a_limit() {
        let mut written = WrittenPaths::default();
        for _ in 0..100 {
            written.extend(&WrittenPaths::of(json!({ "a": format!("/a/b/c/{}", "x".repeat(1000)) }).as_object().unwrap()));
        }
        assert_eq!(written.texts().len(), MAX_BYTES / 1007);
    }
}
