//! Options of a server over HTTP, which `serve` and `boot` share: who may call it, and under which names.

use std::path::PathBuf;

use clap::Args;

use super::session::Session;
use crate::command::Tone;
use crate::serve::Transport;
use crate::serve::http::{HttpOptions, Listen, ProtectedResource, TlsFiles};

const NO_TOKEN: &str = "no token is required: every program on this machine that can reach the port can call the approved tools, \
                        unless the system shows that the program runs as another user. --token-file FILE requires one";

/// Tokens, TLS and names of a server over HTTP. In clap, `Access` is also the name of the group of these options.
#[derive(Debug, Clone, Default, Args)]
pub struct Access {
    /// File of bearer tokens, one NAME:TOKEN a line, mode 0600; needed where other machines can connect
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificate chain for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Accept access tokens of this OAuth authorization server
    #[arg(long, value_name = "URL", requires = "oauth_resource")]
    pub oauth_issuer: Option<String>,
    /// Address of this server, as the tokens must name it
    #[arg(long, value_name = "URL", requires = "oauth_issuer")]
    pub oauth_resource: Option<String>,
    /// Address of the issuer's keys [default: as its metadata says]
    #[arg(long, value_name = "URL", requires = "oauth_issuer")]
    pub oauth_jwks: Option<String>,
    /// Scopes that each access token must have, separated by commas
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', requires = "oauth_issuer")]
    pub oauth_scopes: Vec<String>,
    /// Names of this server besides its address, as a proxy passes them on: NAME or NAME:PORT, separated by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may connect, separated by commas
    #[arg(long, value_name = "ORIGINS", value_delimiter = ',')]
    pub allowed_origins: Vec<String>,
}

impl Access {
    /// Returns the transport of a server that listens at `listen`.
    pub(super) fn transport(&self, listen: Listen) -> Transport {
        let Self { token_file, tls_cert, tls_key, oauth_issuer, oauth_resource, oauth_jwks, oauth_scopes, allowed_hosts, allowed_origins } =
            self.clone();
        let tls = match (tls_cert, tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
            _ => None,
        };
        let oauth = match (oauth_issuer, oauth_resource) {
            (Some(issuer), Some(resource)) => Some(ProtectedResource { resource, issuer, jwks_url: oauth_jwks, scopes: oauth_scopes }),
            _ => None,
        };
        Transport::Http(Box::new(HttpOptions { listen, token_file, tls, oauth, allowed_hosts, allowed_origins, ..HttpOptions::default() }))
    }
}

/// Warns if every program of the machine may call the tools.
pub(super) fn warn_without_token(session: &Session, transport: &Transport) {
    if let Transport::Http(http) = transport
        && http.token_file.is_none()
        && http.oauth.is_none()
    {
        session.terminal.note(Tone::Warning, "warning:", NO_TOKEN);
    }
}
