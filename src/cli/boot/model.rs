//! The model of `boot`, which a client outside of this crate asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};

use super::args::{Boot, Provider};
use crate::boot::{Generate, GenerateRequest};
use crate::error::{Error, ErrorText, Result};

/// Asks the model of a provider. The program in `bin/` has the client.
pub trait ModelClient: Send + Sync {
    /// Answers a request with a text.
    ///
    /// # Errors
    /// `ERR_BOOT_MODEL`, `ERR_BOOT_REFUSED`.
    fn ask<'a>(&'a self, settings: &'a ModelSettings, request: &'a GenerateRequest) -> BoxFuture<'a, Result<String>>;
}

/// The model that is asked, its address and its key.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    provider: Provider,
    model: Option<String>,
    api_key: Option<SecretString>,
    base_url: Option<String>,
}

impl ModelSettings {
    /// Reads the settings of a command line. A key in it wins over the provider's variable.
    pub(super) fn of(arguments: &Boot, environment: &BTreeMap<String, String>) -> Self {
        let Boot { provider, model, api_key, base_url, .. } = arguments;
        let variable = || environment.get(provider.variable()).filter(|key| !key.is_empty()).map(|key| SecretString::from(key.as_str()));
        let given = api_key.clone().filter(|key| !key.expose_secret().is_empty());
        Self { provider: *provider, model: model.clone(), api_key: given.or_else(variable), base_url: base_url.clone() }
    }

    pub(super) fn api_key(&self) -> Option<&SecretString> {
        self.api_key.as_ref()
    }

    /// Returns the settings for the client, with the key.
    #[must_use]
    pub fn exposed(&self) -> Json {
        let Self { provider, model, api_key, base_url } = self;
        let mut settings = json!({ "provider": provider.as_str(), "apiKey": api_key.as_ref().map(SecretString::expose_secret) });
        // The client has its own defaults for what is missing.
        for (field, value) in [("model", model), ("baseUrl", base_url)] {
            if let Some(value) = value {
                settings[field] = value.as_str().into();
            }
        }
        settings
    }

    /// Returns whether the provider can be asked: a key is there, or a server of another address that may need none.
    fn is_complete(&self) -> bool {
        self.api_key.is_some() || self.base_url.is_some()
    }

    pub(super) fn no_key(&self) -> String {
        let Provider::Anthropic = self.provider else {
            return "no key for the model: set OPENAI_API_KEY, or pass --api-key KEY; a local server needs --base-url URL".to_owned();
        };
        "no key for the model: set ANTHROPIC_API_KEY, or pass --api-key KEY; for OpenAI pass --provider openai".to_owned()
    }
}

/// The model of one command.
pub(super) struct CliModel {
    pub(super) settings: ModelSettings,
    pub(super) client: Option<Arc<dyn ModelClient>>,
    /// Set if a key was needed and is missing.
    pub(super) lacks_key: AtomicBool,
}

impl Generate for CliModel {
    fn generate<'a>(&'a self, request: &'a GenerateRequest) -> BoxFuture<'a, Result<String>> {
        let problem = |text: &str| Box::pin(std::future::ready(Err(Error::BootModel { problem: ErrorText::own(text) })));
        if !self.settings.is_complete() {
            self.lacks_key.store(true, Ordering::Relaxed);
            return problem("no API key was given");
        }
        match &self.client {
            Some(client) => client.ask(&self.settings, request),
            None => problem("this program has no client for models: start it with npx hyperlight-mcp"),
        }
    }
}
