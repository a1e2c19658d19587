//! Asks a person for the inputs of the config when a server needs them, and stores the answers.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::Gateway;
use super::callbacks::{CallbackChain, pause};
use super::core::{Core, Inputs};
use crate::config::{ServerDefinition, inputs_of};
use crate::error::Result;
use crate::sandbox::RunControl;

/// The questions for inputs to a person.
#[derive(Default)]
pub(super) struct InputQuestions {
    answers: Mutex<Answers>,
    /// Locked while a person is asked, so that one question comes after the other. A server whose answers are known does not wait for it.
    asking: tokio::sync::Mutex<()>,
}

/// A person's answers, by the complete question. The id alone is not enough: after a reload, the config may have a different question under
/// the same id, and an answer must never be used for a different question.
type Answers = BTreeMap<InputQuestion, SecretString>;

/// Everything that determines how a person is asked for an input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InputQuestion {
    id: String,
    /// The file of a base that declares the input. Other files of the base, which can be of another author, can have the same question.
    base_file: Option<String>,
    description: String,
    /// The digest of the default value. The default itself may be a secret.
    default: Option<[u8; 32]>,
    /// True if the answer must not be shown while it is typed.
    is_secret: bool,
}

impl InputQuestion {
    /// Returns the question for an input of a server. The question comes from the approved definition, even if the config was reloaded
    /// afterwards.
    fn new(server: &ServerDefinition, id: &str) -> Self {
        let description = server.input_descriptions.iter().find(|(known, _)| *known == id).map(|(_, description)| description.clone());
        Self {
            id: id.to_owned(),
            base_file: server.is_of_base().then(|| server.origin.file().to_owned()),
            description: description.unwrap_or_default(),
            default: default_of(server, id).map(|default| Sha256::digest(default.expose_secret()).into()),
            is_secret: server.secret_inputs.iter().any(|known| known == id),
        }
    }
}

/// Returns the default value of an input, which is used if nobody can be asked.
pub(super) fn default_of<'s>(server: &'s ServerDefinition, id: &str) -> Option<&'s SecretString> {
    server.input_defaults.iter().find(|(known, _)| *known == id).map(|(_, default)| default)
}

impl Gateway {
    /// Returns the ids of the inputs of each server that have no default, by server. Such a server starts only if a person can be asked.
    pub(crate) fn inputs_without_default(&self) -> BTreeMap<String, Vec<String>> {
        let asked =
            |server: &ServerDefinition| inputs_of(server).into_iter().filter(|id| default_of(server, id).is_none()).collect::<Vec<_>>();
        let all = self.core.registry.servers().into_iter().map(|server| (server.name.clone(), asked(&server)));
        all.filter(|(_, ids)| !ids.is_empty()).collect()
    }
}

impl Core {
    /// Returns the values of the inputs that a server uses. For a server without inputs, returns at once, and does not wait for a question
    /// of another server. Default values are not stored as answers, because a default applies only to the server whose approval covers it.
    pub(super) async fn ask_inputs(
        &self,
        server: &ServerDefinition,
        callbacks: &CallbackChain,
        control: Option<&RunControl>,
    ) -> Result<Inputs> {
        let needed = inputs_of(server);
        let mut inputs = Inputs::new();
        if needed.is_empty() {
            return Ok(inputs);
        }
        let known = |id: &String| self.people.inputs.answers.lock().get(&InputQuestion::new(server, id)).cloned();
        if let Some(all) = needed.iter().map(|id| Some((id.clone(), known(id)?))).collect() {
            return Ok(all);
        }
        let clock = pause(control);
        let turn = self.people.inputs.asking.lock().await;
        for id in needed {
            let question = InputQuestion::new(server, &id);
            let value = match known(&id) {
                Some(answer) => Some(answer),
                None => match callbacks.input(&id, &question.description, &server.name) {
                    Some(answer) => {
                        let answer = answer.await?;
                        Some(self.people.inputs.answers.lock().entry(question).or_insert(answer).clone())
                    }
                    None => default_of(server, &id).cloned(),
                },
            };
            if let Some(value) = value {
                inputs.insert(id, value);
            }
        }
        drop((turn, clock));
        Ok(inputs)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::{Value as Json, json};

    use super::super::{Answer, Callbacks, GatewayOptions};
    use super::*;
    use crate::config::parse_text;

    /// A person whose nth answer is "answer n".
    #[derive(Default)]
    struct Person(Mutex<Vec<String>>);

    impl Callbacks for Person {
        fn input(&self, id: &str, description: &str, server: &str) -> Option<Answer<SecretString>> {
            let mut asked = self.0.lock();
            asked.push(format!("{id}, {description}, {server}"));
            let answer = SecretString::from(format!("answer {}", asked.len()));
            Some(Box::pin(async move { Ok(answer) }))
        }
    }

    fn gateway(folder: &tempfile::TempDir) -> Gateway {
        let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
        options.config = Some(json!({ "mcpServers": {} }));
        options.state_dir = Some(folder.path().join("state"));
        Gateway::open(options).unwrap()
    }

    /// Returns a server with an input `pw`. `fields` are added to the definition of the input.
    fn server(name: &str, fields: &Json) -> ServerDefinition {
        let mut input = json!({ "type": "promptString", "id": "pw" });
        input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let config = json!({ "inputs": [input], "mcpServers": { name: { "command": "x", "env": { "X": "${input:pw}" } } } });
        parse_text(&config.to_string(), "config.json", 9).unwrap().servers.remove(0)
    }

    /// The files of a base can have different authors, and the same questions.
    #[tokio::test]
    async fn an_answer_for_a_file_of_a_base_is_not_given_to_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(&folder);
        let callbacks = CallbackChain::default().within(Some(Arc::new(Person::default())));
        let layer = |path: &str, name: &str| {
            let servers = json!({ name: { "command": "x", "env": { "X": "${input:pw}" } } });
            let text = json!({ "servers": servers, "inputs": [{ "type": "promptString", "id": "pw" }] }).to_string();
            let file = crate::config::BaseFile { path: path.to_owned(), content: Ok(Some(text)) };
            crate::config::base_layer(crate::config::Program::Vscode, &[file], "/w", &[]).servers.remove(0)
        };
        let answer = async |server: &ServerDefinition| {
            let inputs = gateway.core.ask_inputs(server, &callbacks, None).await.unwrap();
            inputs["vscode/pw"].expose_secret().to_owned()
        };
        for (path, name, expected) in [("a", "one", "answer 1"), ("b", "two", "answer 2"), ("a", "three", "answer 1")] {
            assert_eq!(answer(&layer(path, name)).await, expected, "{name}");
        }
    }

    /// A person can leave a question open.
    #[tokio::test]
    async fn a_server_whose_answers_are_known_does_not_wait_for_a_question_of_another() {
        struct Nobody;
        impl Callbacks for Nobody {
            fn input(&self, _: &str, _: &str, _: &str) -> Option<Answer<SecretString>> {
                Some(Box::pin(std::future::pending()))
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(&folder);
        let (known, open) = (server("known", &json!({})), server("open", &json!({ "description": "Another" })));
        let of = |callbacks: Arc<dyn Callbacks>| CallbackChain::default().within(Some(callbacks));
        let person = of(Arc::new(Person::default()));
        gateway.core.ask_inputs(&known, &person, None).await.unwrap();
        let nobody = of(Arc::new(Nobody));
        let mut waiting = Box::pin(gateway.core.ask_inputs(&open, &nobody, None));
        assert!(futures::poll!(&mut waiting).is_pending());
        assert_eq!(gateway.core.ask_inputs(&known, &person, None).await.unwrap()["pw"].expose_secret(), "answer 1");
    }

    #[tokio::test]
    async fn an_answer_is_given_to_no_other_question() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(&folder);
        let person = Arc::new(Person::default());
        let callbacks = CallbackChain::default().within(Some(person.clone()));
        let bank = json!({ "description": "The password of your bank" });
        for (name, fields, expected) in [
            ("bank", bank.clone(), "answer 1"),
            ("bank", bank.clone(), "answer 1"),
            ("another", bank.clone(), "answer 1"),
            ("game", json!({ "description": "Your nickname" }), "answer 2"),
            ("game", json!({}), "answer 3"),
            ("bank", json!({ "description": "The password of your bank", "default": "none" }), "answer 4"),
            ("bank", json!({ "description": "The password of your bank", "default": "other" }), "answer 5"),
            ("bank", json!({ "description": "The password of your bank", "password": true }), "answer 6"),
            ("bank", bank, "answer 1"),
        ] {
            let inputs = gateway.core.ask_inputs(&server(name, &fields), &callbacks, None).await.unwrap();
            assert_eq!(inputs["pw"].expose_secret(), expected, "{name} {fields}");
        }
        assert_eq!(person.0.lock()[1], "pw, Your nickname, game");
        gateway.close().await;
    }

    #[tokio::test]
    async fn a_default_is_the_current_one_and_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(&folder);
        let nobody = CallbackChain::default();
        for default in ["old", "new"] {
            let server = server("a", &json!({ "default": default }));
            let inputs = gateway.core.ask_inputs(&server, &nobody, None).await.unwrap();
            assert_eq!(inputs["pw"].expose_secret(), default);
        }
        assert!(gateway.core.ask_inputs(&server("a", &json!({})), &nobody, None).await.unwrap().is_empty());
        // If a callback can ask a person later, the person is asked.
        let asked = CallbackChain::default().within(Some(Arc::new(Person::default())));
        let inputs = gateway.core.ask_inputs(&server("a", &json!({ "default": "new" })), &asked, None).await.unwrap();
        assert_eq!(inputs["pw"].expose_secret(), "answer 1");
        gateway.close().await;
    }
}
