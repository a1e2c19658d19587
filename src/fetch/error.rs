//! The errors of a fetch. Agent code gets them as a `TypeError` with a code.

use crate::network::NetworkUnavailable;

/// The reason why a fetch failed or was refused. No message contains the path or query of a URL, the value of a header, or a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The request itself is wrong: its URL, method, headers or body.
    #[error("Fetch failed: {problem}")]
    InvalidRequest { problem: String },

    /// The policy does not allow the host.
    #[error("Fetch blocked: domain \"{host}\" not in whitelist. {way_out}")]
    HostNotAllowed { host: String, way_out: String },

    /// The policy allows the host, but not this port, or only with TLS.
    #[error("Fetch blocked: {problem}. {way_out}")]
    OriginNotAllowed { problem: String, way_out: String },

    /// The policy allows only requests that read (GET, HEAD). This request can change something.
    #[error("Fetch blocked: the method {method} can change something, and only GET and HEAD are allowed here")]
    MethodNotAllowed { method: String },

    /// The host is an address that is not on the public internet, or resolves to such an address. The message does not contain the address,
    /// because agent code must not learn the addresses of names in the network of this machine.
    #[error("Fetch blocked: \"{host}\" has an address that is not on the public internet. The operator can allow it as a private host")]
    AddressNotAllowed { host: String, address: String, kind: &'static str },

    /// The request has the placeholder of a secret that belongs to another host.
    #[error("Fetch blocked: the secret {secret} is for {home} only, and the request goes to \"{host}\"")]
    SecretNotAllowed { secret: String, home: String, host: String },

    /// A redirect was not followed.
    #[error("Fetch failed: {problem}")]
    Redirect { problem: String },

    /// A limit was exceeded.
    #[error("Fetch failed: {problem} (the limit {limit_name} is {limit})")]
    LimitExceeded { problem: String, limit_name: &'static str, limit: u64 },

    /// The server did not answer in time.
    #[error("Fetch failed: \"{host}\" did not send its whole answer within {limit_ms} ms (the limit requestTimeMs)")]
    Timeout { host: String, limit_ms: u128 },

    /// The host has no address, no connection to it can be made, or its answer is not HTTP.
    #[error("Fetch failed: \"{host}\" {problem}")]
    Network { host: String, problem: String },

    /// No open body has this number.
    #[error("Fetch failed: the body {body} is not open. Each body can be read once")]
    UnknownBody { body: u64 },

    /// The run has ended.
    #[error("Fetch failed: the run has ended")]
    Ended,

    /// This machine cannot send requests at all.
    #[error("Fetch failed: {problem}")]
    Unavailable { problem: String },
}

impl From<NetworkUnavailable> for FetchError {
    fn from(unavailable: NetworkUnavailable) -> Self {
        match unavailable {
            NetworkUnavailable::Ended => Self::Ended,
            NetworkUnavailable::NoThread(_) => Self::Unavailable { problem: unavailable.to_string() },
        }
    }
}

impl FetchError {
    /// Returns the stable code. `docs/FETCH.md` lists all codes.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidRequest { .. } => "ERR_FETCH_INVALID_REQUEST",
            Self::HostNotAllowed { .. } | Self::OriginNotAllowed { .. } => "ERR_FETCH_HOST_NOT_ALLOWED",
            Self::MethodNotAllowed { .. } => "ERR_FETCH_METHOD_NOT_ALLOWED",
            Self::AddressNotAllowed { .. } => "ERR_FETCH_ADDRESS_NOT_ALLOWED",
            Self::SecretNotAllowed { .. } => "ERR_FETCH_SECRET_NOT_ALLOWED",
            Self::Redirect { .. } => "ERR_FETCH_REDIRECT",
            Self::LimitExceeded { .. } => "ERR_FETCH_LIMIT",
            Self::Timeout { .. } => "ERR_FETCH_TIMEOUT",
            Self::Network { .. } => "ERR_FETCH_NETWORK",
            Self::UnknownBody { .. } => "ERR_FETCH_BODY",
            Self::Ended => "ERR_FETCH_ENDED",
            Self::Unavailable { .. } => "ERR_FETCH_UNAVAILABLE",
        }
    }

    /// Returns whether a check on the host refused the request, so that no server has received it.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::InvalidRequest { .. }
                | Self::HostNotAllowed { .. }
                | Self::OriginNotAllowed { .. }
                | Self::MethodNotAllowed { .. }
                | Self::AddressNotAllowed { .. }
                | Self::SecretNotAllowed { .. }
        )
    }

    /// Returns the address that was refused, and its use. Only the audit may contain this text.
    pub(super) fn refused_address(&self) -> Option<String> {
        match self {
            Self::AddressNotAllowed { host: _, address, kind } => Some(format!("{address} ({kind})")),
            _ => None,
        }
    }

    pub(super) fn invalid(problem: impl Into<String>) -> Self {
        Self::InvalidRequest { problem: problem.into() }
    }
}
