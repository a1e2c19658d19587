//! The settings of the model that `boot` uses. The program in `bin/` has the client that asks the model.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};
use url::Url;

use super::args::{Boot, Provider};
use crate::boot::{Generate, GenerateRequest};
use crate::error::{Error, ErrorText, Result};

/// The option with the address of a provider.
const BASE_URL: &str = "--base-url";

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
    address: Option<Address>,
}

/// The address of a provider, and the option or variable that has it.
#[derive(Debug, Clone)]
struct Address {
    url: String,
    from: &'static str,
}

impl Address {
    /// Checks that the address can be used. A problem never quotes the address, which may have a password.
    fn check(&self) -> std::result::Result<(), String> {
        let from = self.from;
        let url = Url::parse(&self.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| format!("{from} is not an http or https URL, such as http://127.0.0.1:11434/v1"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!(
                "{from} has a user name or password in it, which is not sent: leave it out, and give a key with --api-key"
            ));
        }
        Ok(())
    }
}

impl ModelSettings {
    /// Reads the settings of a command line. The arguments win over the provider's variables.
    pub(super) fn of(arguments: &Boot, environment: &BTreeMap<String, String>) -> Self {
        let Boot { provider, model, api_key, base_url, .. } = arguments;
        let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let key = api_key.clone().filter(|key| !key.expose_secret().is_empty());
        let address = |from: &'static str| move |url: &String| Address { url: url.clone(), from };
        Self {
            provider: *provider,
            model: model.clone(),
            api_key: key.or_else(|| variable(provider.variable()).map(|key| SecretString::from(key.as_str()))),
            address: base_url.as_ref().map(address(BASE_URL)).or_else(|| {
                let name = provider.address_variable();
                variable(name).map(address(name))
            }),
        }
    }

    /// Checks an address in the arguments. An address in a variable is checked only when a model is asked.
    pub(super) fn check_given(&self) -> std::result::Result<(), String> {
        self.address.as_ref().filter(|address| address.from == BASE_URL).map_or(Ok(()), Address::check)
    }

    pub(super) fn api_key(&self) -> Option<&SecretString> {
        self.api_key.as_ref()
    }

    /// Returns the settings for the client, with the key.
    #[must_use]
    pub fn exposed(&self) -> Json {
        let Self { provider, model, api_key, address } = self;
        let mut settings = json!({ "provider": provider.as_str(), "apiKey": api_key.as_ref().map(SecretString::expose_secret) });
        // The client has its own defaults for what is missing.
        for (field, value) in [("model", model.as_ref()), ("baseUrl", address.as_ref().map(|address| &address.url))] {
            if let Some(value) = value {
                settings[field] = value.as_str().into();
            }
        }
        settings
    }

    /// Returns the reason why the provider cannot be asked: its address is wrong, or there is no key. If an address is given, no key is
    /// needed, because a local server may not use one.
    fn misses(&self) -> Option<String> {
        match &self.address {
            Some(address) => address.check().err(),
            None => self.api_key.is_none().then(|| self.no_key()),
        }
    }

    fn no_key(&self) -> String {
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
    /// The action that a person must take. Set if a model is needed but cannot be asked.
    pub(super) misses: OnceLock<String>,
}

impl Generate for CliModel {
    fn generate<'a>(&'a self, request: &'a GenerateRequest) -> BoxFuture<'a, Result<String>> {
        let problem = |text: &str| Box::pin(std::future::ready(Err(Error::BootModel { problem: ErrorText::own(text) })));
        if let Some(misses) = self.settings.misses() {
            let _ = self.misses.set(misses);
            return problem("its settings are not complete");
        }
        match &self.client {
            Some(client) => client.ask(&self.settings, request),
            None => problem("this program has no client for models: start it with npx hyperlight-mcp"),
        }
    }
}
