//! Prepares the launch of an approved command or URL: asks for inputs, replaces placeholders and registers secrets for redaction.

use std::ffi::OsString;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::callbacks::{AuthorizationQuestion, CallbackChain, IssuerQuestion, pause};
use super::core::{Core, Inputs};
use super::events::Event;
use super::journal::Note;
use super::subject::locality;
use crate::client::{
    AuthorizationPrompt, Authorize, ConfirmIssuer, ConnectClock, HttpTarget, IssuerPrompt, Launch, OAuth, OAuthContext, OnSecret, Target,
};
use crate::config::{
    Learnt, ResolvedCommand, ResolvedHttp, ServerDefinition, Transport, inputs_of, read_env_file, resolve_command, resolve_http,
    resolve_roots,
};
use crate::error::{Error, Result};
use crate::redact::{Redactor, is_redactable, is_secret};
use crate::sandbox::RunControl;
use crate::trust::Subject;

impl Core {
    /// Prepares the launch of a server whose command is approved. Asks for inputs, and reports a changed program.
    pub(super) async fn launch(
        &self,
        server: &Arc<ServerDefinition>,
        callbacks: &CallbackChain,
        control: Option<&RunControl>,
    ) -> Result<Launch> {
        self.check_approved(server)?;
        let inputs = self.ask_inputs(server, callbacks, control).await?;
        // Another process may have revoked the approval while a person typed.
        let subject = self.check_approved(server)?;
        if let Some(remote) = resolve_http(server, &self.surroundings, &inputs)? {
            return self.launch_http(server, remote, callbacks, control);
        }
        let missing = || Error::Internal(format!("server \"{}\" has neither a command nor a url", server.name).into());
        // A server whose approval is not limited to a folder starts outside the workspace, so that new files in the workspace cannot change it.
        let locality = locality(subject.folder.as_ref());
        let command = resolve_command(server, &self.surroundings, &inputs, locality, read_env_file)?.ok_or_else(missing)?;
        self.learn_secrets(server, &command);
        self.check_executable(server, &command).await?;
        let clock = ConnectClock::start(Some(&command.command), server.connect_timeout_ms, self.limits.connect_timeout_ms);
        self.launch_of(server, Target::Process(command), clock)
    }

    fn launch_http(
        &self,
        server: &ServerDefinition,
        remote: ResolvedHttp,
        callbacks: &CallbackChain,
        control: Option<&RunControl>,
    ) -> Result<Launch> {
        let ResolvedHttp { url, headers, oauth, secrets } = remote;
        // Every header value may be a credential, whatever the header's name is.
        let values = headers.iter().filter(|(name, value)| is_redactable(name, value.expose_secret())).map(|(_, value)| value);
        self.redactor.add(values.chain(redactable(&secrets)));
        let clock = ConnectClock::start(None, server.connect_timeout_ms, self.limits.connect_timeout_ms);
        let context = OAuthContext {
            store: self.tokens.clone(),
            authorize: callbacks.can_authorize().then(|| authorizer(callbacks, &clock, control)),
            confirm_issuer: callbacks.can_confirm_issuer().then(|| confirmer(callbacks, &clock, control)),
            on_secret: learn_token(&self.redactor),
            allow_insecure: server.allow_insecure_http,
        };
        let tokens = OAuth::new(&server.name, url.expose_secret(), oauth.unwrap_or_default(), context)?;
        let target =
            HttpTarget { server: server.name.clone(), url, headers, allow_insecure: server.allow_insecure_http, tokens: Some(tokens) };
        self.launch_of(server, Target::Http(target), clock)
    }

    fn launch_of(&self, server: &ServerDefinition, target: Target, clock: ConnectClock) -> Result<Launch> {
        let roots = resolve_roots(server, &self.surroundings)?;
        let redactor = Arc::clone(&self.redactor);
        let (journal, name) = (self.events.journal.clone(), server.name.clone());
        let learnt = self.learnt.get(&server.name, &self.subject(server).digest);
        Ok(Launch {
            server: server.name.clone(),
            target,
            redact: Arc::new(move |words| words.open(&redactor).to_string()),
            on_stderr: Arc::new(move |line| journal.note(&name, Note::Stderr(line.to_owned()))),
            clock,
            protocol_version: server.protocol_version.map(|version| version.as_str().to_owned()),
            era: learnt.era,
            roots,
            elicits: server.elicits || learnt.elicits,
        })
    }

    /// Returns the subject of a valid approval.
    fn check_approved(&self, server: &ServerDefinition) -> Result<Subject> {
        let mut judged = None;
        let standing = self.trust.approvals.standing_of(&server.name, |approval| judged.insert(self.judged(server, approval)).clone())?;
        standing.require_command(&server.name)?;
        judged.ok_or_else(|| Error::Internal("a valid approval was not checked".into()))
    }

    /// Returns the values of the inputs that a server uses. A server without inputs waits for no answer.
    async fn ask_inputs(&self, server: &ServerDefinition, callbacks: &CallbackChain, control: Option<&RunControl>) -> Result<Inputs> {
        let needed = inputs_of(server);
        if needed.is_empty() {
            return Ok(Inputs::new());
        }
        let clock = pause(control);
        let mut inputs = self.people.inputs.lock().await;
        for id in needed {
            if inputs.contains_key(&id) {
                continue;
            }
            // The question and the default are those that were approved, even if the config was read again meanwhile.
            let description = server.input_descriptions.iter().find(|(known, _)| *known == id).map_or("", |(_, description)| description);
            let given = match callbacks.input(&id, description, &server.name) {
                Some(answer) => Some(answer.await?),
                None => server.input_defaults.iter().find(|(known, _)| *known == id).map(|(_, default)| default.clone()),
            };
            if let Some(value) = given {
                inputs.insert(id, value);
            }
        }
        drop(clock);
        Ok(inputs.clone())
    }

    /// Registers secrets for redaction: values from outside the config, and literals that look secret.
    fn learn_secrets(&self, server: &ServerDefinition, command: &ResolvedCommand) {
        self.redactor.add(redactable(&command.secrets));
        let Transport::Stdio { environment, .. } = &server.transport else { return };
        let literals = environment.iter().filter(|(name, value)| is_secret(name, value.expose_secret()));
        self.redactor.add(literals.map(|(_, value)| value));
    }

    /// Reports a program that differs from the approved one. If the program is pinned, the approval is no longer valid.
    async fn check_executable(&self, server: &ServerDefinition, command: &ResolvedCommand) -> Result<()> {
        let Some(known) = self.trust.approvals.approval(&server.name)?.and_then(|approval| approval.executable) else { return Ok(()) };
        let path = search_path(command);
        let (program, folder) = (command.command.clone(), command.working_directory.clone());
        let executables = Arc::clone(&self.trust.executables);
        let found = tokio::task::spawn_blocking(move || executables.find(&program, &path, &folder)).await;
        if let Some(found) = found.ok().flatten().filter(|found| *found != known) {
            tracing::warn!(server = server.name, "the program changed since its command was approved");
            self.events.send(&Event::ExecutableChanged {
                server: server.name.clone(),
                path: found.path.display().to_string(),
                before: known.sha256,
                now: found.sha256,
            });
        }
        Ok(())
    }
}

/// Returns a listener that registers each new token for redaction at once. Every value that it gets is a secret, so no rule checks its look.
fn learn_token(redactor: &Arc<Redactor>) -> OnSecret {
    let redactor = Arc::clone(redactor);
    Arc::new(move |secret| redactor.add([secret]))
}

/// Returns a function that shows the page at which a person grants access. All clocks are paused while they read it.
fn authorizer(callbacks: &CallbackChain, clock: &ConnectClock, control: Option<&RunControl>) -> Authorize {
    let (callbacks, clock, control) = (callbacks.clone(), clock.clone(), control.cloned());
    Arc::new(move |prompt: AuthorizationPrompt| {
        let AuthorizationPrompt { server, url, issuer } = prompt;
        let question = AuthorizationQuestion { server, issuer };
        let answer = callbacks.authorize(&url, &question);
        let clocks = (clock.pause(), pause(control.as_ref()));
        Box::pin(async move {
            let answer = match answer {
                Some(answer) => answer.await,
                None => Ok(None),
            };
            drop(clocks);
            answer
        })
    })
}

/// Returns a function that asks whether a credential may be sent to an issuer. All clocks are paused while a person thinks.
fn confirmer(callbacks: &CallbackChain, clock: &ConnectClock, control: Option<&RunControl>) -> ConfirmIssuer {
    let (callbacks, clock, control) = (callbacks.clone(), clock.clone(), control.cloned());
    Arc::new(move |prompt: IssuerPrompt| {
        let IssuerPrompt { server, issuer, client_id, credential } = prompt;
        let answer = callbacks.confirm_issuer(&IssuerQuestion { server, issuer, client_id, credential });
        let clocks = (clock.pause(), pause(control.as_ref()));
        Box::pin(async move {
            let answer = match answer {
                Some(answer) => answer.await,
                None => Ok(false),
            };
            drop(clocks);
            answer
        })
    })
}

/// Returns the values in a server's settings that must be redacted.
fn redactable(secrets: &[Learnt]) -> impl Iterator<Item = &SecretString> {
    secrets.iter().filter(|learnt| learnt.is_redactable()).map(|learnt| &learnt.value)
}

/// Returns the folders in which the server's program is searched: its own PATH, or the default folders of execvp(3).
pub(super) fn search_path(command: &ResolvedCommand) -> OsString {
    let own = command.environment.iter().find(|(name, _)| name == "PATH");
    own.map_or_else(|| OsString::from("/bin:/usr/bin"), |(_, value)| OsString::from(value.expose_secret()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_redacted_from_the_moment_it_is_there_whatever_it_looks_like() {
        let redactor = Arc::new(Redactor::new(None, None));
        let on_secret = learn_token(&redactor);
        assert_eq!(redactor.redact("401 for swordfish"), "401 for swordfish");
        on_secret(&SecretString::from("swordfish"));
        assert_eq!(redactor.redact("401 for swordfish"), "401 for [redacted]");
    }
}
