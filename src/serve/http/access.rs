//! Identifies the caller of a request.

use std::collections::HashSet;
use std::sync::Arc;

use http::{HeaderMap, header};

use super::jwt::{TokenProblem, Verified, looks_like_jwt};
use super::known_tokens::KnownTokens;
use super::oauth::Resource;
use super::options::HttpOptions;
use super::tokens::TokenFile;
use crate::error::Result;

/// The caller that a token identifies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Principal {
    /// Identifies the caller uniquely, even if its token has no name. Sessions and waiting calls belong to this key.
    pub key: String,
    /// The name in front of the token in the token file, or the subject of an OAuth access token. It may not be valid as the name of an
    /// agent.
    pub agent: Option<String>,
    /// The expiry of the OAuth access token, in seconds since 1970.
    pub(super) expires: Option<u64>,
}

impl Principal {
    /// Returns the caller that sends all requests to a server without tokens.
    fn anonymous() -> Self {
        Self { key: ANONYMOUS.to_owned(), agent: None, expires: None }
    }

    pub(super) fn is_anonymous(&self) -> bool {
        self.key == ANONYMOUS
    }
}

const ANONYMOUS: &str = "anonymous";

/// The reason why a caller is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// There is no token, or more than one.
    Missing,
    /// The token is not valid.
    Invalid,
    /// The token is valid, but lacks a scope.
    Scope,
}

/// The ways to identify a caller.
#[derive(Debug)]
pub(super) struct Access {
    tokens: Option<TokenFile>,
    pub(super) oauth: Option<Arc<Resource>>,
    known: KnownTokens,
}

/// The result of identifying the caller of a request.
#[derive(Debug)]
pub(super) struct Identified {
    pub(super) caller: std::result::Result<Principal, Denied>,
    /// The keys of all callers in the token file, if the file was read again for this request.
    pub(super) owners: Option<HashSet<String>>,
}

impl Access {
    pub(super) fn new(options: &HttpOptions) -> Result<Self> {
        let tokens = options.token_file.as_deref().map(TokenFile::open).transpose()?;
        let oauth = options.oauth.as_ref().map(Resource::new).transpose()?.map(Arc::new);
        Ok(Self { tokens, oauth, known: KnownTokens::default() })
    }

    /// Returns whether no caller needs a token.
    pub(super) fn is_open(&self) -> bool {
        self.tokens.is_none() && self.oauth.is_none()
    }

    /// Returns the keys of all callers in the present token file.
    pub(super) fn owners(&self) -> Option<HashSet<String>> {
        self.tokens.as_ref().map(TokenFile::owners)
    }

    /// Returns whether the headers contain a token that has not identified a caller before. Such a token may be invalid, and the work to
    /// check an invalid token is wasted.
    pub(super) fn has_unknown_token(&self, headers: &HeaderMap) -> bool {
        !self.is_open() && bearer(headers).is_some_and(|token| !self.known.contains(token))
    }

    /// Returns the caller that the headers identify.
    pub(super) async fn identify(&self, headers: &HeaderMap) -> Identified {
        if self.is_open() {
            return Identified { caller: Ok(Principal::anonymous()), owners: None };
        }
        let Some(token) = bearer(headers) else { return Identified { caller: Err(Denied::Missing), owners: None } };
        let identified = self.caller_of(token).await;
        match &identified.caller {
            Ok(_) => self.known.add(token),
            Err(_) => self.known.remove(token),
        }
        identified
    }

    async fn caller_of(&self, token: &str) -> Identified {
        let checked = self.tokens.as_ref().map(|file| file.check(token));
        let (owner, owners) = checked.map_or((None, None), |checked| (checked.owner, checked.owners));
        if let Some(owner) = owner {
            return Identified { caller: Ok(Principal { key: owner.key, agent: owner.agent, expires: None }), owners };
        }
        let caller = match &self.oauth {
            Some(oauth) if looks_like_jwt(token) => match oauth.verified(token).await {
                Ok(Verified { subject, expires }) => {
                    Ok(Principal { key: format!("oauth:{subject}"), agent: Some(subject), expires: Some(expires) })
                }
                Err(TokenProblem::Scope) => Err(Denied::Scope),
                Err(_) => Err(Denied::Invalid),
            },
            _ => Err(Denied::Invalid),
        };
        Identified { caller, owners }
    }

    /// Returns the value of `WWW-Authenticate` for a refused caller (RFC 6750).
    pub(super) fn challenge(&self, denied: Denied) -> String {
        let error = match denied {
            Denied::Missing => "",
            Denied::Invalid => ", error=\"invalid_token\"",
            Denied::Scope => ", error=\"insufficient_scope\"",
        };
        let resource = self.oauth.as_ref().map(|oauth| oauth.challenge()).unwrap_or_default();
        format!("Bearer realm=\"hyperlight-mcp\"{error}{resource}")
    }
}

/// Returns the bearer token of a request, if the request has exactly one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        bearer(&headers).map(str::to_owned)
    }

    #[test]
    fn a_request_has_one_bearer_token_or_none() {
        assert_eq!(token(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(token(&["bearer  abc "]).as_deref(), Some("abc"));
        for values in [&["Basic abc"][..], &["Bearer"], &["Bearer "], &["abc"], &[], &["Bearer abc", "Bearer abc"]] {
            assert_eq!(token(values), None, "{values:?}");
        }
    }

    #[tokio::test]
    async fn without_tokens_every_caller_is_the_same_and_has_no_name() {
        let access = Access::new(&HttpOptions::default()).unwrap();
        let caller = access.identify(&HeaderMap::new()).await.caller.unwrap();
        assert!(caller.is_anonymous() && caller.agent.is_none());
        assert_eq!(access.challenge(Denied::Invalid), "Bearer realm=\"hyperlight-mcp\", error=\"invalid_token\"");
    }
}
