//! The calls that an operator allows in advance.

/// The tools that `--allow-writes` names: `weather` means all tools of a server, and `weather.set_home` means one tool by its raw name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedWrites(Vec<(String, Option<String>)>);

impl AllowedWrites {
    /// Parses the values of the option. The first dot ends the server's name, because only the name of a tool may contain dots.
    ///
    /// ```
    /// use hyperlight_mcp::trust::AllowedWrites;
    /// let allowed = AllowedWrites::read(&["weather.set.home".into(), "files".into()]);
    /// assert!(allowed.allows("weather", "set.home") && allowed.allows("files", "delete"));
    /// assert!(!allowed.allows("weather", "delete"));
    /// ```
    #[must_use]
    pub fn read(given: &[String]) -> Self {
        let split = |text: &String| match text.split_once('.') {
            Some((server, tool)) => (server.to_owned(), Some(tool.to_owned())),
            None => (text.clone(), None),
        };
        Self(given.iter().map(split).collect())
    }

    /// Returns whether this tool may be called without a question.
    #[must_use]
    pub fn allows(&self, server: &str, tool: &str) -> bool {
        self.0.iter().any(|(name, only)| name == server && only.as_deref().is_none_or(|only| only == tool))
    }

    /// Returns the names of the servers, so that the caller can check that they exist.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(server, _)| server.as_str())
    }

    /// Returns the names of the tools, each with its server.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(server, tool)| Some((server.as_str(), tool.as_deref()?)))
    }
}
