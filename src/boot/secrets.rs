//! The names of the secrets that handlers may use. Only `fetch` knows their values.

use serde::{Deserialize, Serialize};

/// The data about a secret that a model and a person get.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretName {
    /// The name of the variable. A handler's `secrets` has a field of the same name.
    pub name: String,
    /// The only host to which the value is sent, in the form of an entry of the whitelist.
    pub host: String,
    /// True if the value may also be used in the bodies of requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_body: bool,
}

/// Returns the text about the secrets for a model.
pub(super) fn about_secrets(secrets: &[SecretName]) -> String {
    if secrets.is_empty() {
        return "There is no API key: a service that needs one cannot be used.".to_owned();
    }
    let places = |secret: &SecretName| if secret.in_body { ", also in a body" } else { "" };
    let lines: Vec<_> =
        secrets.iter().map(|secret| format!("- secrets.{} (only for {}{})", secret.name, secret.host, places(secret))).collect();
    format!(
        "These API keys can be used in requests, in a header or in the query. The value of each is a placeholder, which is replaced when the \
         request is sent to its host. In a body it is refused, unless this is allowed below. A request with Range is refused:\n{}",
        lines.join("\n")
    )
}
