//! Parsers for option values.

/// Parses a time into milliseconds: `500ms`, `30s`, `2m`. A number without a unit means milliseconds.
///
/// # Errors
/// A sentence that says how to write a time.
///
/// ```
/// use hyperlight_mcp::cli::milliseconds;
/// assert_eq!(milliseconds("1.5s"), Ok(1500));
/// assert!(milliseconds("soon").is_err());
/// ```
pub fn milliseconds(text: &str) -> Result<u64, String> {
    let wrong = || "write a time like 500ms, 30s or 2m, from 1 ms to 24 hours".to_owned();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "" | "ms" => 1.0,
        "s" => 1_000.0,
        "m" => 60_000.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let time = (number * scale).round();
    // No limit allows more than a day.
    if !(1.0..=86_400_000.0).contains(&time) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and a day")]
    Ok(time as u64)
}

/// Tools that `--allow-writes` names: `weather` stands for all tools of a server, `weather.set_home` for one tool by its raw name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedWrites(Vec<(String, Option<String>)>);

impl AllowedWrites {
    /// Parses the values of the option. The first dot ends the server's name, as only the name of a tool may contain dots.
    ///
    /// ```
    /// use hyperlight_mcp::cli::AllowedWrites;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!([milliseconds("500"), milliseconds("500ms"), milliseconds("2m")], [Ok(500), Ok(500), Ok(120_000)]);
        for wrong in ["", "s", "0", "-1s", "1h", "1e3", "99999999m", "1.2.3s", "NaN"] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
        }
    }
}
