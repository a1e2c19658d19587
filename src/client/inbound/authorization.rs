//! Questions to a person about the authorization of this client at a server (OAuth).

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

/// A request to a person to open an authorization page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationPrompt {
    pub server: String,
    /// URL to open in a browser. Its scheme is `https`, except on this machine.
    pub url: String,
    /// Issuer (authorization server) of the page.
    pub issuer: String,
}

/// A question to a person: may this issuer receive a credential from the config, although the config does not name the issuer?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerPrompt {
    pub server: String,
    /// The authorization server that the MCP server has named.
    pub issuer: String,
    /// Id of the client to which the credential belongs.
    pub client_id: String,
    pub credential: Credential,
}

/// A credential from the config with which the client proves its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Credential {
    ClientSecret,
    /// A private key. It signs for the client, and is never sent itself.
    PrivateKey,
    /// Only the client's id, without a secret. A person logs in for this client, and the issuer gets the code from the login.
    ClientId,
}

impl Display for Credential {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ClientSecret => "client secret",
            Self::PrivateKey => "signature by the private key",
            Self::ClientId => "login",
        })
    }
}
