//! Which of a server's resources exist.

/// Which of a server's resources exist, by their URIs: exact, or with `*` at the end for all that begin so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UriFilter {
    /// With a list, only these; an empty one allows nothing.
    pub allow: Option<Vec<String>>,
    /// Taken away from what is allowed.
    pub deny: Vec<String>,
}

impl UriFilter {
    /// Whether the filter lets a URI through. For a template it is asked with the template's own text.
    ///
    /// ```
    /// use hyperlight_mcp::config::UriFilter;
    /// let filter = UriFilter { allow: Some(vec!["file:///logs/*".into()]), deny: vec!["file:///logs/secret".into()] };
    /// assert!(filter.admits("file:///logs/today") && !filter.admits("file:///logs/secret") && !filter.admits("file:///etc"));
    /// ```
    #[must_use]
    pub fn admits(&self, uri: &str) -> bool {
        let allowed = self.allow.as_ref().is_none_or(|allow| allow.iter().any(|pattern| covers(pattern, uri)));
        allowed && !self.deny.iter().any(|pattern| covers(pattern, uri))
    }

    /// Whether it lets everything through.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }
}

/// Whether a filter's entry means this URI.
///
/// ```
/// use hyperlight_mcp::config::covers;
/// assert!(covers("memo://*", "memo://a/b") && covers("memo://a", "memo://a") && !covers("memo://a", "memo://a/b"));
/// ```
#[must_use]
pub fn covers(pattern: &str, uri: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == uri, |start| uri.starts_with(start))
}

/// A `*` elsewhere would look as if it meant something.
pub(super) fn check_pattern(pattern: &str) -> Result<(), &'static str> {
    let inner = pattern.strip_suffix('*').unwrap_or(pattern);
    if inner.contains('*') { Err("can have \"*\" only at its end; write \"%2A\" for the character itself") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deny_is_stronger_and_an_empty_allow_list_allows_nothing() {
        let filter = |allow: Option<&[&str]>, deny: &[&str]| UriFilter {
            allow: allow.map(|list| list.iter().map(|&uri| uri.to_owned()).collect()),
            deny: deny.iter().map(|&uri| uri.to_owned()).collect(),
        };
        assert!(filter(None, &[]).admits("a:b") && filter(None, &[]).is_open());
        assert!(!filter(Some(&[]), &[]).admits("a:b") && !filter(Some(&[]), &[]).is_open());
        assert!(!filter(Some(&["*"]), &["a:*"]).admits("a:b"));
        assert!(filter(Some(&["a:b"]), &["a:c"]).admits("a:b") && !filter(Some(&["a:b"]), &[]).admits("a:bc"));
    }

    #[test]
    fn a_star_stands_at_the_end_or_not_at_all() {
        assert!(check_pattern("a:*").is_ok() && check_pattern("*").is_ok() && check_pattern("a:b").is_ok());
        assert!(check_pattern("a:*/b").is_err() && check_pattern("a:**").is_err());
    }
}
