//! The secrets in the command of a server that is not started. What a server's entry names is shown in the approvals of other servers and kept
//! with an approval, so a secret that looks like a path must not count as one.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{BoxDefinition, ResolvedCommand, ServerDefinition, Source, Transport, variables_of_text};
use crate::gateway::core::Core;
use crate::redact::{is_redactable, is_secret, secrets_of_arguments};

/// Maximum number of secrets that are searched in each text. If an entry has more, each text is taken for a secret.
const MAX_SECRETS: usize = 256;

/// The secrets in one server's command.
pub(super) struct SecretTexts(BTreeSet<String>);

impl SecretTexts {
    /// Returns whether a text contains one of the secrets.
    pub(super) fn are_in(&self, text: &str) -> bool {
        self.0.len() > MAX_SECRETS || self.0.iter().any(|secret| text.contains(secret.as_str()))
    }
}

impl Core {
    /// Returns the secrets in the command of a server: values from outside of the config, and literal values that look like secrets. `command`
    /// has the values that are known now.
    pub(super) fn secret_texts(&self, server: &ServerDefinition, command: &ResolvedCommand) -> SecretTexts {
        let Transport::Stdio { arguments, environment, .. } = &server.transport else { return SecretTexts(BTreeSet::new()) };
        let mut secrets = BTreeSet::new();
        // The program decides which options take a password.
        for words in [&command.arguments, arguments] {
            let words: Vec<String> = [&command.command].into_iter().chain(words).cloned().collect();
            secrets.extend(secrets_of_arguments(&words));
        }
        // The value of an input comes from the entry here, because nobody has answered a question. It is a secret only if the answer is.
        let of_file = command.secrets.iter().filter(|secret| matches!(secret.source, Source::Named(_)) && secret.is_redactable());
        let of_inputs = server.input_defaults.iter().filter(|(id, _)| server.secret_inputs.contains(id)).map(|(_, default)| default);
        secrets.extend(of_file.map(|secret| &secret.value).chain(of_inputs).map(|value| value.expose_secret().to_owned()));
        let literal = environment.iter().chain(&command.environment);
        secrets.extend(literal.map(plain).filter(|(name, value)| is_secret(name, value)).map(|(_, value)| value.to_owned()));
        let texts = environment.iter().map(plain).chain(arguments.iter().map(|argument| ("", argument.as_str())));
        for (key, variable) in texts.flat_map(|(key, text)| variables_of_text(text).into_iter().map(move |variable| (key, variable))) {
            let value = self.surroundings.environment.get(&variable);
            secrets.extend(value.filter(|value| is_redactable(&format!("{key} {variable}"), value)).cloned());
        }
        if let Some(BoxDefinition::On(settings)) = &server.in_box {
            let of_box = settings.environment.iter().filter(|(name, value)| is_secret(name, value));
            secrets.extend(of_box.map(|(_, value)| value.clone()));
        }
        secrets.remove("");
        SecretTexts(secrets)
    }
}

fn plain((name, value): &(String, SecretString)) -> (&str, &str) {
    (name, value.expose_secret())
}
