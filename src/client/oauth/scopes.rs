//! Decides which scopes are requested. The MCP server itself lists the scopes that it needs, so a malicious server could list an
//! administrator's scopes.

use super::decide::{Challenge, union};
use super::discovery::OFFLINE_ACCESS;
use super::store::Token;
use crate::config::{Grant, OAuthSettings};

/// Scopes and settings from which the scopes of the next request are computed.
pub(super) struct Scopes<'a> {
    /// The only scopes that may be requested. `None` if there is no such limit.
    pub(super) ceiling: Option<Vec<String>>,
    /// Scopes that the server's challenge or metadata lists.
    pub(super) named: &'a [String],
    /// Scopes that were granted earlier.
    pub(super) before: &'a [String],
    pub(super) grant: Grant,
    /// True if the authorization server offers the scope `offline_access`.
    pub(super) has_offline_access: bool,
}

/// Returns the scopes that `oauth.scopes` allows. Returns `None` if the config lists none. Empty entries are ignored, because an entry is
/// empty if its placeholder has no value.
pub(super) fn configured(settings: &OAuthSettings) -> Option<Vec<String>> {
    let named = settings.scopes.iter().filter(|scope| !scope.is_empty()).cloned();
    (!settings.scopes.is_empty()).then(|| named.collect())
}

/// Returns whether all scopes that were requested for a token are in `ceiling`. The config may have allowed more scopes when the token
/// was stored.
pub(super) fn is_within(token: &Token, ceiling: Option<&[String]>) -> bool {
    ceiling.is_none_or(|ceiling| token.requested().iter().all(|scope| ceiling.contains(scope)))
}

impl Scopes<'_> {
    /// Returns the scopes to request.
    ///
    /// # Errors
    /// The scopes that the server requires but `ceiling` does not contain.
    pub(super) fn to_request(&self, challenge: &Challenge) -> Result<Vec<String>, Vec<String>> {
        let Self { ceiling, named, before, grant, has_offline_access } = self;
        if let Some(ceiling) = ceiling {
            let beyond: Vec<String> = match challenge {
                Challenge::MissingScopes(wanted) => wanted.iter().filter(|scope| !ceiling.contains(scope)).cloned().collect(),
                Challenge::Unauthorized => Vec::new(),
            };
            return if beyond.is_empty() { Ok(possible(ceiling.clone(), *grant)) } else { Err(beyond) };
        }
        let scopes = match challenge {
            Challenge::MissingScopes(wanted) if before.is_empty() => union(named, wanted),
            Challenge::MissingScopes(wanted) if wanted.is_empty() => union(before, named),
            Challenge::MissingScopes(wanted) => union(before, wanted),
            Challenge::Unauthorized => union(before, named),
        };
        let scopes = possible(scopes, *grant);
        let lasts = *has_offline_access && *grant == Grant::AuthorizationCode && !scopes.is_empty();
        Ok(if lasts { union(&scopes, &[OFFLINE_ACCESS.to_owned()]) } else { scopes })
    }
}

/// Removes the scope `offline_access` if the grant asks no person, because only a person can grant this scope.
fn possible(mut scopes: Vec<String>, grant: Grant) -> Vec<String> {
    scopes.retain(|scope| scope != OFFLINE_ACCESS || grant == Grant::AuthorizationCode);
    scopes
}

/// Describes scopes that are required but not allowed. The scopes come last in the text, because the end of a long text is cut.
pub(super) fn refused(beyond: &[String]) -> String {
    format!(
        "the server requires scopes that were not approved, so nothing was requested. If it may have them, add them to oauth.scopes and \
         approve it again. Otherwise, calls that need them fail. It requires: {}",
        beyond.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split_whitespace().map(ToOwned::to_owned).collect()
    }

    fn asked(ceiling: Option<&str>, grant: Grant, challenge: &Challenge) -> Result<Vec<String>, Vec<String>> {
        let (named, before) = (list("named admin"), list("granted"));
        Scopes { ceiling: ceiling.map(list), named: &named, before: &before, grant, has_offline_access: true }.to_request(challenge)
    }

    #[test]
    fn nothing_that_a_server_names_or_was_granted_before_exceeds_the_ceiling() {
        for grant in [Grant::AuthorizationCode, Grant::ClientCredentials] {
            for challenge in ["", "read", "write read"].map(|scopes| Challenge::MissingScopes(list(scopes))) {
                assert_eq!(asked(Some("read write"), grant, &challenge), Ok(list("read write")));
            }
            assert_eq!(asked(Some("read"), grant, &Challenge::Unauthorized), Ok(list("read")));
            assert_eq!(asked(Some(""), grant, &Challenge::Unauthorized), Ok(Vec::new()));
            assert_eq!(asked(Some("read"), grant, &Challenge::MissingScopes(list("read admin x"))), Err(list("admin x")));
        }
    }

    #[test]
    fn without_a_ceiling_the_server_names_what_it_needs() {
        let (code, machine) = (Grant::AuthorizationCode, Grant::ClientCredentials);
        assert_eq!(asked(None, code, &Challenge::Unauthorized), Ok(list("granted named admin offline_access")));
        assert_eq!(asked(None, code, &Challenge::MissingScopes(list("write"))), Ok(list("granted write offline_access")));
        assert_eq!(asked(None, machine, &Challenge::Unauthorized), Ok(list("granted named admin")));
    }

    #[test]
    fn an_entry_without_a_value_allows_nothing() {
        let settings = |scopes: &[&str]| OAuthSettings { scopes: scopes.iter().map(ToString::to_string).collect(), ..Default::default() };
        assert_eq!(configured(&settings(&[])), None);
        assert_eq!(configured(&settings(&[""])), Some(Vec::new()));
        assert_eq!(configured(&settings(&["", "a"])), Some(list("a")));
    }
}
