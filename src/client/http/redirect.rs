//! Follows redirects that stay within the same origin and do not change the request. Credentials are never sent to another origin.

use url::Url;

use super::target::origin;

const MAX_REDIRECTS: usize = 5;

/// The kind of request that is redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Redirected {
    /// A request with a message in its body. If its method were changed to GET, the message would be lost.
    Post,
    Get,
}

/// URLs that one request has visited.
pub(super) struct VisitedUrls(Vec<Url>);

impl VisitedUrls {
    pub(super) fn from(url: Url) -> Self {
        Self(vec![url])
    }

    /// Returns the current URL of the request.
    pub(super) fn here(&self) -> &Url {
        self.0.last().expect("a trail has at least its first URL")
    }

    /// Follows the redirect to `location`. Returns the reason if this is not allowed.
    pub(super) fn follow(&mut self, what: Redirected, status: u16, location: Option<&str>) -> Result<(), String> {
        let target = location.and_then(|location| self.here().join(location).ok());
        let Some(mut target) = target else { return Err(format!("it redirects (HTTP {status}), but its Location header has no address")) };
        target.set_fragment(None);
        let _ = target.set_username("");
        let _ = target.set_password(None);
        if target.origin() != self.here().origin() {
            return Err(format!(
                "it redirects (HTTP {status}) to another origin, {}. Requests for one server are never sent to another: \
                 if the server has moved there, put that address into url",
                origin(&target)
            ));
        }
        if what == Redirected::Post && !matches!(status, 307 | 308) {
            return Err(format!(
                "it redirects to {}{} with HTTP {status}, which would drop the message: put that address into url",
                origin(&target),
                target.path()
            ));
        }
        if self.0.contains(&target) {
            return Err(format!("it redirects in a loop (HTTP {status}): check url, or the server"));
        }
        if self.0.len() > MAX_REDIRECTS {
            return Err(format!("it redirects more than {MAX_REDIRECTS} times (HTTP {status}): put its last address into url"));
        }
        self.0.push(target);
        Ok(())
    }
}

pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visited(url: &str) -> VisitedUrls {
        VisitedUrls::from(Url::parse(url).unwrap())
    }

    #[test]
    fn a_message_follows_within_its_origin_as_it_is() {
        let mut visited = visited("https://example.com/mcp");
        visited.follow(Redirected::Post, 307, Some("/mcp/")).unwrap();
        visited.follow(Redirected::Post, 308, Some("https://example.com:443/v2")).unwrap();
        assert_eq!(visited.here().as_str(), "https://example.com/v2");
    }

    #[test]
    fn another_origin_is_refused_and_named() {
        let elsewhere = [
            "https://evil.example/mcp",
            "http://example.com/mcp",
            "https://example.com:8443/mcp",
            "//evil.example",
            "https://www.example.com/",
        ];
        for location in elsewhere {
            for what in [Redirected::Post, Redirected::Get] {
                let refusal = visited("https://example.com/mcp").follow(what, 307, Some(location)).unwrap_err();
                assert!(refusal.contains("another origin") && refusal.contains("url"), "{refusal}");
            }
        }
    }

    #[test]
    fn a_redirect_that_turns_a_message_into_a_get_is_refused_but_a_get_may_follow() {
        for status in [301, 302, 303] {
            let refusal = visited("https://example.com/mcp").follow(Redirected::Post, status, Some("/mcp/")).unwrap_err();
            assert!(refusal.contains("https://example.com/mcp/"), "{refusal}");
            visited("https://example.com/mcp").follow(Redirected::Get, status, Some("/mcp/")).unwrap();
        }
    }

    #[test]
    fn loops_and_long_chains_end() {
        let mut loops = visited("https://example.com/a");
        loops.follow(Redirected::Post, 307, Some("/b")).unwrap();
        assert!(loops.follow(Redirected::Post, 307, Some("/a#again")).unwrap_err().contains("loop"));
        let mut long = visited("https://example.com/0");
        for hop in 1..=MAX_REDIRECTS {
            long.follow(Redirected::Post, 307, Some(&format!("/{hop}"))).unwrap();
        }
        assert!(long.follow(Redirected::Post, 307, Some("/last")).unwrap_err().contains("more than 5"));
    }

    #[test]
    fn a_redirect_to_nowhere_is_refused() {
        for location in [None, Some("https://")] {
            assert!(visited("https://example.com/").follow(Redirected::Get, 302, location).unwrap_err().contains("no address"));
        }
    }
}
