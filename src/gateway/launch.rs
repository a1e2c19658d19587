//! Prepares the launch of an approved command or URL: asks for inputs, replaces placeholders and registers secrets for redaction.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Instant;

use secrecy::{ExposeSecret as _, SecretString};

use super::callbacks::CallScope;
use super::core::{Core, Inputs};
use super::events::Event;
use super::look_up::{CallDeadline, until};
use super::server_logs::Note;
use super::subject::{FileOnce, ReadFile};
use crate::client::{Caller, CheckApproved, ConnectClock, HttpTarget, Launch, OAuth, OAuthContext, OnSecret, Target, proxy_logins};
use crate::config::{
    BoxDefinition, InsertedValue, Locality, OAuthSettings, ResolvedCommand, ResolvedHttp, ServerDefinition, Transport, read_env_file,
    resolve_command, resolve_http, resolve_roots,
};
use crate::error::{Error, Result};
use crate::redact::{Redactor, is_redactable, is_secret, secrets_of_arguments, secrets_within};
use crate::sandbox::RunControl;
use crate::trust::{Approval, Subject, locate_program};

/// The text of the error for a server whose start folder is missing.
pub(crate) const MISSING_FOLDER: &str = "its start folder does not exist (cwd)";

impl Core {
    /// Prepares the launch of a server whose command is approved. Asks for inputs. If the program has changed since the approval, refuses
    /// the launch if the program is pinned, and otherwise sends an event.
    pub(super) async fn launch(
        &self,
        server: &Arc<ServerDefinition>,
        scope: &Arc<CallScope>,
        control: Option<&RunControl>,
        deadline: Option<CallDeadline>,
    ) -> Result<Launch> {
        let own = Arc::clone(server);
        until(deadline.as_ref(), self.reading(move |core| core.check_approved(&own, &read_env_file).map(drop))).await?;
        if let Transport::Generated(tools) = &server.transport {
            self.end_boxes_before(server, FileOnce::default()).await;
            return self.launch_generated(server, tools, self.caller(scope, control));
        }
        let asked = Instant::now();
        let inputs = self.ask_inputs(server, &scope.callbacks, control).await?;
        let deadline = deadline.and_then(|deadline| deadline.after_wait(asked.elapsed()));
        // The future is boxed because it is large and part of every call.
        let look_up = Box::pin(self.launch_with(server, inputs, self.caller(scope, control)));
        until(deadline.as_ref(), look_up).await
    }

    /// Prepares the launch of a server whose inputs are known.
    async fn launch_with(&self, server: &Arc<ServerDefinition>, inputs: Inputs, caller: Arc<dyn Caller>) -> Result<Launch> {
        let (own, content) = (Arc::clone(server), FileOnce::default());
        let read = content.clone();
        // Another process may have revoked the approval while a person typed an answer.
        let resolved = self.reading(move |core| {
            let (subject, command) = core.approved_command(&own, &inputs, &|path| read.read(path, &read_env_file))?;
            core.check_links(&own)?;
            Ok((subject, command, resolve_http(&own, &core.surroundings, &inputs)?))
        });
        let (subject, command, remote) = resolved.await?;
        let program = command.as_ref().map(|command| command.command.as_str());
        let clock = ConnectClock::start(program, server.connect_timeout_ms, self.limits.connect_timeout_ms);
        // Another process may have given the approval, so this gateway may not have compared its boxes with this server yet.
        let ending = async {
            self.end_boxes_before(server, content).await;
            Ok(())
        };
        clock.within(&server.name, ending).await?;
        if let Some(remote) = remote {
            return self.launch_http(server, remote, clock, caller);
        }
        let missing = || Error::Internal(format!("server \"{}\" has neither a command nor a url", server.name).into());
        let command = command.ok_or_else(missing)?;
        self.register_secrets(server, &command);
        let registry = subject.registry.clone();
        let target = async {
            let program = self.approved_program(server, subject, &command).await?;
            let target = self.target(server, command, program, registry).await?;
            self.warn_of_absent_paths(server, &target).await.map(|()| target)
        };
        let target = clock.within(&server.name, target).await?;
        self.launch_of(server, target, clock, caller)
    }

    /// Checks the approval, and returns its subject and the command. The environment file is read only once. So the process gets exactly
    /// the bytes that were compared with the approval (`pinValues`), even if the file changes at the same time.
    pub(super) fn approved_command(
        &self,
        server: &ServerDefinition,
        inputs: &Inputs,
        read_file: ReadFile<'_>,
    ) -> Result<(Subject, Option<ResolvedCommand>)> {
        let content = OnceCell::new();
        // One cell is enough, because an entry names at most one environment file, and the path of this file contains no inputs.
        let read_once = |path: &Path| {
            let content: &std::result::Result<Vec<u8>, String> = content.get_or_init(|| read_file(path).map_err(|error| error.to_string()));
            content.clone().map_err(io::Error::other)
        };
        let subject = self.check_approved(server, &read_once)?;
        // A server whose approval is not limited to a folder starts outside the workspace. So new files in the workspace cannot change what
        // the server does. A file that appears after the check must not have the effect that the server starts in a folder that was not
        // approved.
        let locality = if subject.folder.is_some() { self.locality(server) } else { Locality::Anywhere };
        if server.pin_values {
            // Values that cannot be determined are not part of the digest. In this case, the following call returns an error.
            self.pinned_values(server, locality, &read_once)?;
        }
        Ok((subject, resolve_command(server, &self.surroundings, inputs, locality, read_once)?))
    }

    fn launch_http(
        &self,
        server: &Arc<ServerDefinition>,
        remote: ResolvedHttp,
        clock: ConnectClock,
        caller: Arc<dyn Caller>,
    ) -> Result<Launch> {
        self.learn_remote_secrets(&remote);
        self.redactor.add(&proxy_logins());
        let ResolvedHttp { url, headers, oauth, secrets: _ } = remote;
        let context = OAuthContext {
            key: server.key(),
            store: self.tokens.clone(),
            check_approved: self.approval_check(server),
            on_secret: register_token(&self.redactor, &server.name),
            allow_insecure: server.allow_insecure_http,
        };
        let tokens = OAuth::new(&server.name, url.expose_secret(), oauth.unwrap_or_default(), context)?;
        let target = HttpTarget {
            server: server.name.clone(),
            url,
            headers,
            allow_insecure: server.allow_insecure_http,
            tokens: Some(tokens),
            network: Arc::clone(&self.network),
        };
        self.launch_of(server, Target::Http(target), clock, caller)
    }

    pub(super) fn launch_of(
        &self,
        server: &ServerDefinition,
        target: Target,
        clock: ConnectClock,
        caller: Arc<dyn Caller>,
    ) -> Result<Launch> {
        let roots = resolve_roots(server, &self.surroundings)?;
        let redactor = Arc::clone(&self.redactor);
        let (server_logs, key) = (self.events.server_logs.clone(), server.key());
        let server_facts = self.server_facts.get(&server.key(), &self.subject(server).digest);
        Ok(Launch {
            server: server.name.clone(),
            target,
            redact: Arc::new(move |words| words.open(&redactor)),
            on_stderr: Arc::new(move |line| server_logs.note(&key, Note::Stderr(line.to_owned()))),
            caller,
            clock,
            protocol_version: server.protocol_version.map(|version| version.as_str().to_owned()),
            era: server_facts.era,
            roots,
            elicits: server.elicits || server_facts.elicits,
        })
    }

    /// Returns a function that checks whether the approval is still valid. Another process may revoke it while a person uses a browser.
    fn approval_check(&self, server: &Arc<ServerDefinition>) -> CheckApproved {
        let (core, server) = (Weak::clone(&self.weak), Arc::clone(server));
        Arc::new(move || {
            let core = core.upgrade().ok_or(Error::Closed { what: "gateway" })?;
            core.check_approved(&server, &read_env_file).map(drop)
        })
    }

    /// Returns the subject of a valid approval. Returns an error if no approval is valid.
    pub(super) fn check_approved(&self, server: &ServerDefinition, read_file: ReadFile<'_>) -> Result<Subject> {
        let mut current_subject = None;
        let judge = |approval: &Approval| current_subject.insert(self.current_subject_with(server, approval, read_file)).clone();
        let approval_status = self.trust.approvals.approval_status_of(&server.key(), judge)?;
        approval_status.require_command(&server.name)?;
        current_subject.ok_or_else(|| Error::Internal("a valid approval was not checked".into()))
    }

    /// Registers secrets for redaction: values that come from outside of the config, and literal values that look like secrets, including
    /// those in arguments.
    fn register_secrets(&self, server: &ServerDefinition, command: &ResolvedCommand) {
        self.redactor.add(redactable(&command.secrets));
        // The program is one of these words, because it determines which options take a password.
        let words: Vec<String> = [&command.command].into_iter().chain(&command.arguments).cloned().collect();
        let in_arguments: Vec<SecretString> = secrets_of_arguments(&words).into_iter().map(SecretString::from).collect();
        self.redactor.add(&in_arguments);
        if let Some(BoxDefinition::On(settings)) = &server.in_box {
            let of_box = settings.environment.iter().filter(|(name, value)| is_secret(name, value));
            self.redactor.add(&of_box.map(|(_, value)| SecretString::from(value.as_str())).collect::<Vec<_>>());
            self.learn_within(settings.environment.values().map(String::as_str));
        }
        let Transport::Stdio { environment, .. } = &server.transport else { return };
        // The final values are checked, as the process gets them: a literal may be the default of a placeholder, or may contain a variable.
        let names: BTreeSet<&String> = environment.iter().map(|(name, _)| name).collect();
        let own: Vec<_> = command.environment.iter().filter(|(name, _)| names.contains(name)).collect();
        self.redactor.add(own.iter().filter(|(name, value)| is_secret(name, value.expose_secret())).map(|(_, value)| value));
        self.learn_within(own.iter().map(|(_, value)| value.expose_secret()));
    }

    /// Registers the secrets of an HTTP server for redaction.
    fn learn_remote_secrets(&self, remote: &ResolvedHttp) {
        let ResolvedHttp { url, headers, oauth, secrets } = remote;
        let of_oauth = oauth.iter().flat_map(|OAuthSettings { client_secret, private_key, .. }| [client_secret, private_key]).flatten();
        self.redactor.add(of_oauth);
        // The value of any header may be a credential, so headers of all names are checked.
        let values = headers.iter().filter(|(name, value)| is_redactable(name, value.expose_secret())).map(|(_, value)| value);
        self.redactor.add(values.chain(redactable(secrets)));
        self.learn_within([url].into_iter().chain(headers.iter().map(|(_, value)| value)).map(SecretString::expose_secret));
    }

    /// Registers secrets inside of texts: the password in an address, or a key in its path or query. Then these secrets are redacted even
    /// if a server repeats its request or its command line in an error.
    fn learn_within<'t>(&self, texts: impl IntoIterator<Item = &'t str>) {
        let secrets: Vec<SecretString> = texts.into_iter().flat_map(secrets_within).map(SecretString::from).collect();
        self.redactor.add(&secrets);
    }

    /// Returns the path of the program that the command starts. If the program differs from the approved program, refuses it if the config
    /// pins the program, and otherwise sends an event.
    async fn approved_program(&self, server: &ServerDefinition, subject: Subject, command: &ResolvedCommand) -> Result<PathBuf> {
        let (key, name, folder) = (server.key(), command.command.clone(), command.working_directory.clone());
        let (search, server_name) = (search_path(command), server.name.clone());
        let compared = self.reading(move |core| {
            let known = core.trust.approvals.approval(&key)?.and_then(|approval| approval.executable);
            let program = locate_program(&name, &search, &folder);
            let found = program.as_ref().and_then(|path| core.trust.executables.at(path));
            // The environment of the real command may lead to a different program than the program that was checked before.
            let subject = Subject { executable: found.clone(), ..subject };
            core.trust.approvals.approval_status(&subject)?.require_command(&server_name)?;
            Ok((known, found, program, folder.is_dir()))
        });
        let (known, found, program, has_folder) = compared.await?;
        if let Some((known, found)) = known.zip(found).filter(|(known, found)| known != found) {
            tracing::warn!(server = server.name, "the program changed since its command was approved");
            self.events.send(&Event::ExecutableChanged {
                server: server.name.clone(),
                path: found.path.display().to_string(),
                before: known.sha256,
                now: found.sha256,
            });
        }
        // The operating system reports a missing folder with the same error as a missing program.
        if !has_folder {
            return Err(Error::SpawnFailed {
                server: server.name.clone(),
                command: command.command.clone().into(),
                problem: format!("{MISSING_FOLDER}: {}", command.working_directory.display()).into(),
            });
        }
        program.ok_or_else(|| Error::SpawnFailed {
            server: server.name.clone(),
            command: command.command.clone().into(),
            problem: "no folder in PATH has a program with this name that you may start".into(),
        })
    }
}

/// Returns a listener that registers each new token of a server for redaction immediately. Every value that the listener receives is a
/// secret, so no rule checks whether the value looks like one. Only the latest tokens are kept, because the authorization server can send
/// any number of new tokens.
fn register_token(redactor: &Arc<Redactor>, server: &str) -> OnSecret {
    let tokens = redactor.holder(server);
    Arc::new(move |secret| tokens.add(secret))
}

/// Returns the values in a server's settings that have to be redacted.
fn redactable(secrets: &[InsertedValue]) -> impl Iterator<Item = &SecretString> {
    secrets.iter().filter(|secret| secret.is_redactable()).map(|secret| &secret.value)
}

/// Returns the folders in which the server's program is searched: the folders of the server's own `PATH`, or the default folders of
/// execvp(3).
pub(super) fn search_path(command: &ResolvedCommand) -> OsString {
    let own = command.environment.iter().find(|(name, _)| name == "PATH");
    own.map_or_else(|| OsString::from("/bin:/usr/bin"), |(_, value)| OsString::from(value.expose_secret()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use parking_lot::Mutex;
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::gateway::{Gateway, GatewayOptions};

    /// A gateway with one server named `a`.
    struct Scene {
        folder: tempfile::TempDir,
        gateway: Gateway,
        server: Arc<ServerDefinition>,
        events: Arc<Mutex<Vec<Json>>>,
    }

    impl Scene {
        fn new(entry: impl FnOnce(&Path) -> Json) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
            options.config = Some(json!({
                "inputs": [{ "type": "promptString", "id": "document" }], "mcpServers": { "a": entry(folder.path()) }
            }));
            options.state_dir = Some(folder.path().join("state"));
            options.environment =
                [("ACCOUNT", "ours"), ("ANIMAL", "horse")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let events = Arc::new(Mutex::new(Vec::new()));
            let heard = Arc::clone(&events);
            options.on_event = Some(Arc::new(move |event| heard.lock().push(event)));
            let gateway = Gateway::open(options).unwrap();
            let server = gateway.core.registry.server("a").unwrap();
            Self { folder, gateway, server, events }
        }

        fn approve(&self, subject: &Subject) {
            let approvals = &self.gateway.core.trust.approvals;
            approvals.approve_command(subject, None, &approvals.basis("a").unwrap()).unwrap();
        }

        fn write_program(&self, text: &str) -> PathBuf {
            let (path, new) = (self.folder.path().join("program"), self.folder.path().join("new"));
            fs::write(&new, text).unwrap();
            fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(&new, &path).unwrap();
            path
        }

        /// Approves the program, replaces it after its command was checked, and returns the result of checking the program again.
        async fn replaced_program(&self) -> Result<PathBuf> {
            let core = &self.gateway.core;
            self.write_program("ours");
            let subject = core.full_subject(&self.server).await.unwrap();
            self.approve(&subject);
            let (subject, command) = core.approved_command(&self.server, &Inputs::new(), &read_env_file).unwrap();
            let command = command.unwrap();
            assert!(core.approved_program(&self.server, subject.clone(), &command).await.is_ok() && self.events.lock().is_empty());
            self.write_program("theirs");
            core.approved_program(&self.server, subject, &command).await
        }
    }

    #[tokio::test]
    async fn the_bytes_of_an_environment_file_that_are_compared_are_the_bytes_that_are_used() {
        let scene = Scene::new(|_| json!({ "command": "sh", "envFile": "/somewhere/.env", "pinValues": true }));
        let core = &scene.gateway.core;
        let (good, evil) = (b"MODE=good".to_vec(), b"MODE=good\nNODE_OPTIONS=--require=/evil.js".to_vec());
        scene.approve(&core.subject_with(&scene.server, None, &|_| Ok(good.clone())));
        let readings = Cell::new(0);
        // The file changes after the first read.
        let changing = |_: &Path| {
            readings.set(readings.get() + 1);
            Ok(if readings.get() == 1 { good.clone() } else { evil.clone() })
        };
        let (_, command) = core.approved_command(&scene.server, &Inputs::new(), &changing).unwrap();
        let names: Vec<_> = command.unwrap().environment.into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"MODE".to_owned()) && !names.contains(&"NODE_OPTIONS".to_owned()), "{names:?}");
        assert_eq!(readings.get(), 1);
        let error = core.approved_command(&scene.server, &Inputs::new(), &|_| Ok(evil.clone())).unwrap_err();
        assert_eq!(error.code(), "ERR_NOT_APPROVED");
    }

    #[tokio::test]
    async fn values_that_should_be_pinned_and_cannot_be_compared_start_nothing() {
        let address = "https://client.example/${input:document}";
        let entry = json!({
            "url": "https://mcp.example", "headers": { "X-Account": "${ACCOUNT}" }, "oauth": { "clientMetadataUrl": address }, "pinValues": true
        });
        let scene = Scene::new(|_| entry);
        let core = &scene.gateway.core;
        scene.approve(&core.subject(&scene.server));
        let inputs: Inputs = [("document".to_owned(), SecretString::from("client.json"))].into();
        assert!(resolve_http(&scene.server, &core.surroundings, &inputs).is_ok());
        assert_eq!(core.approved_command(&scene.server, &inputs, &read_env_file).unwrap_err().code(), "ERR_CONFIG_INVALID");
    }

    #[tokio::test]
    async fn a_pinned_program_that_is_replaced_after_its_command_was_checked_is_refused() {
        let scene = Scene::new(|folder| json!({ "command": folder.join("program"), "pinExecutable": true }));
        let error = scene.replaced_program().await.unwrap_err();
        assert!(error.code() == "ERR_NOT_APPROVED" && error.to_string().contains("changed on disk"), "{error}");
    }

    #[tokio::test]
    async fn another_program_is_an_event_where_it_is_not_pinned() {
        let scene = Scene::new(|folder| json!({ "command": folder.join("program") }));
        assert_eq!(scene.replaced_program().await.unwrap(), scene.folder.path().join("program"));
        assert_eq!(scene.events.lock().iter().map(|event| &event["type"]).collect::<Vec<_>>(), ["executable-changed"]);
    }

    #[tokio::test]
    async fn a_pinned_program_to_which_the_real_environment_does_not_lead_is_refused() {
        let scene = Scene::new(|folder| json!({ "command": "program", "env": { "PATH": folder }, "pinExecutable": true }));
        scene.write_program("ours");
        let core = &scene.gateway.core;
        let subject = core.full_subject(&scene.server).await.unwrap();
        scene.approve(&subject);
        let (subject, command) = core.approved_command(&scene.server, &Inputs::new(), &read_env_file).unwrap();
        let mut command = command.unwrap();
        command.environment.retain(|(name, _)| name != "PATH");
        command.command = "sh".to_owned();
        assert_eq!(core.approved_program(&scene.server, subject, &command).await.unwrap_err().code(), "ERR_NOT_APPROVED");
    }

    #[tokio::test]
    async fn a_secret_that_is_written_into_an_address_is_redacted() {
        let secret = "Zx9Qw8Er7Ty6Ui5Op4As3Df2";
        let login = STANDARD.encode(format!("bob:{secret}"));
        for (address, told) in [
            (format!("https://mcp.example/api/mcp/s/{secret}/mcp"), "GET /api/mcp/s/[redacted]/mcp"),
            (format!("https://mcp.example/mcp?api_key={secret}"), "GET /mcp?api_key=[redacted]"),
            (format!("https://mcp.example/mcp?profile={secret}"), "GET /mcp?profile=[redacted]"),
            (format!("https://bob:{secret}@mcp.example/mcp"), "GET /mcp (Basic [redacted])"),
        ] {
            let scene = Scene::new(|_| json!({ "url": address }));
            let core = &scene.gateway.core;
            let remote = resolve_http(&scene.server, &core.surroundings, &Inputs::new()).unwrap().unwrap();
            core.learn_remote_secrets(&remote);
            let said = told.replace("Basic [redacted]", &format!("Basic {login}")).replace("[redacted]", secret);
            assert_eq!(core.redactor.redact(&said), told);
            // The host is not a secret.
            assert_eq!(core.redactor.redact("mcp.example"), "mcp.example");
        }
    }

    #[tokio::test]
    async fn a_secret_that_is_written_into_an_argument_or_a_plain_variable_is_redacted() {
        let secret = "correct-horse-battery";
        for entry in [
            json!({ "command": "sh", "args": ["--api-key", secret] }),
            json!({ "command": "sh", "args": [format!("--token={secret}")] }),
            json!({ "command": "sh", "args": ["--header", format!("Authorization: Bearer {secret}")] }),
            json!({ "command": "sh", "args": [format!("postgres://u:{secret}@h/db")] }),
            json!({ "command": "sh", "args": ["-e", "API_TOKEN", secret] }),
            json!({ "command": "sh", "env": { "SETTINGS": format!("{{\"password\":\"{secret}\"}}") } }),
            json!({ "command": "sh", "env": { "API_KEY": format!("${{NOPE:-{secret}}}") } }),
            json!({ "command": "sh", "env": { "SETTING": format!("${{API_TOKEN:-{secret}}}") } }),
            json!({ "command": "sh", "env": { "DATABASE_URL": format!("postgres://u:${{NOPE:-{secret}}}@h/db") } }),
            json!({ "command": "sh", "env": { "DATABASE_URL": "postgres://u:correct-${ANIMAL}-battery@h/db" } }),
            json!({ "command": "sh", "env": { "SETTINGS": "Server=h;Password=correct-${ANIMAL}-battery;" } }),
            json!({ "command": "sh", "box": { "env": { "API_TOKEN": secret } } }),
            json!({ "command": "sh", "box": { "env": { "DATABASE_URL": format!("postgres://u:{secret}@h/db") } } }),
        ] {
            let scene = Scene::new(|_| entry.clone());
            let core = &scene.gateway.core;
            scene.approve(&core.subject(&scene.server));
            let (_, command) = core.approved_command(&scene.server, &Inputs::new(), &read_env_file).unwrap();
            core.register_secrets(&scene.server, &command.unwrap());
            assert_eq!(core.redactor.redact(&format!("401 for {secret}")), "401 for [redacted]", "{entry}");
        }
    }

    #[test]
    fn a_token_is_redacted_from_the_moment_it_is_there_whatever_it_looks_like() {
        let redactor = Arc::new(Redactor::new(None, None));
        let on_secret = register_token(&redactor, "weather");
        assert_eq!(redactor.redact("401 for swordfish"), "401 for swordfish");
        on_secret(&SecretString::from("swordfish"));
        assert_eq!(redactor.redact("401 for swordfish"), "401 for [redacted]");
    }
}
