//! The log of a run. Its entries have one of five levels, and share one size limit.

use std::fmt;

use serde::Serialize;

/// The text at the end of the last entry of a full log.
pub const LOG_CUT_MARK: &str = "… [log cut: limits.maxLogBytes]";
/// The minimum size in bytes with which an entry is counted. With this minimum, the number of entries without text is limited too.
const MIN_ENTRY_BYTES: usize = 32;

/// The level of an entry. Each level belongs to a method of `console`. A guest cannot add other levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Log,
    Info,
    Warn,
    Error,
    Debug,
}

impl LogLevel {
    /// Returns the level of this name, or `Log` for any other name.
    ///
    /// ```
    /// use hyperlight_mcp::sandbox::LogLevel;
    /// assert_eq!(LogLevel::named("warn"), LogLevel::Warn);
    /// assert_eq!(LogLevel::named("\u{1b}[2J"), LogLevel::Log);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Self {
        [Self::Info, Self::Warn, Self::Error, Self::Debug].into_iter().find(|level| level.as_str() == name).unwrap_or(Self::Log)
    }

    /// Returns the level's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Debug => "debug",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One entry of a run's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    pub level: LogLevel,
    /// True if the text was cut because it did not fit into the log. In this case, the text ends with [`LOG_CUT_MARK`].
    #[serde(skip)]
    pub is_cut: bool,
    pub text: String,
}

/// The log entries of a run. Their number and their total size are limited.
pub(super) struct Log {
    max_bytes: usize,
    entries: Vec<LogEntry>,
    bytes: usize,
    full: bool,
}

impl Log {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, entries: Vec::new(), bytes: 0, full: false }
    }

    /// Adds an entry, and returns it. If the entry does not fit, it is cut, and its text ends with [`LOG_CUT_MARK`]. Returns `None` if the
    /// log is already full.
    pub(super) fn add(&mut self, level: LogLevel, text: String) -> Option<LogEntry> {
        if self.full {
            return None;
        }
        let room = self.max_bytes - self.bytes;
        self.full = text.len() > room || self.entries.len() >= self.max_bytes / MIN_ENTRY_BYTES;
        let is_cut = text.len() > room;
        let text = if self.full { format!("{}{LOG_CUT_MARK}", &text[..text.floor_char_boundary(room)]) } else { text };
        self.bytes += text.len();
        let entry = LogEntry { level, is_cut, text };
        self.entries.push(entry.clone());
        Some(entry)
    }

    pub(super) fn take(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_no_more_than_its_bytes_and_says_where_it_ends() {
        let mut log = Log::new(64);
        assert_eq!(log.add(LogLevel::Warn, "x".repeat(60)).unwrap().text.len(), 60);
        assert_eq!(log.add(LogLevel::Log, "é".repeat(9)).unwrap().text, format!("éé{LOG_CUT_MARK}"));
        assert_eq!(log.add(LogLevel::Log, String::new()), None);
        assert_eq!(log.take().len(), 2);
    }

    #[test]
    fn entries_without_text_have_an_end_as_well() {
        let mut log = Log::new(64 * MIN_ENTRY_BYTES);
        let added = (0..1000).map_while(|_| log.add(LogLevel::Debug, String::new())).count();
        assert_eq!((added, log.take().len()), (65, 65), "the last one is the mark");
    }

    #[test]
    fn no_level_is_one_that_a_guest_made_up() {
        for made_up in ["", "LOG", "warning", "warn ", "error\u{1b}[2J", &"x".repeat(1 << 20)] {
            assert_eq!(LogLevel::named(made_up), LogLevel::Log);
        }
        for level in [LogLevel::Log, LogLevel::Info, LogLevel::Warn, LogLevel::Error, LogLevel::Debug] {
            assert_eq!((LogLevel::named(level.as_str()), serde_json::to_value(level).unwrap()), (level, level.as_str().into()));
        }
    }
}
