//! What a gateway and its sandboxes share: the rooms, wired. Connections are made here.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use secrecy::{ExposeSecret as _, SecretString};
use tokio_util::sync::CancellationToken;

use super::callbacks::{CallScope, CallbackChain, pause};
use super::events::{Event, Events};
use super::options::ConfigSource;
use crate::catalog::Manifest;
use crate::client::{Connection, Connections, Launch};
use crate::config::{
    OAuthSettings, ResolvedCommand, ServerDefinition, Surroundings, Transport, inputs_of, read_env_file, resolve_command, resolve_http,
};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::registry::Registry;
use crate::sandbox::{RunControl, Sandboxes};
use crate::trust::{ApprovalStore, Executables, Redactor, Standing, Subject, is_redactable, is_secret};

/// The values of inputs that have been asked for.
type Inputs = BTreeMap<String, SecretString>;

pub(super) struct Core {
    pub(super) registry: Registry,
    /// Where the config comes from, to read it again.
    pub(super) source: ConfigSource,
    pub(super) approvals: ApprovalStore,
    pub(super) executables: Arc<Executables>,
    pub(super) connections: Connections,
    pub(super) sandboxes: Sandboxes,
    pub(super) limits: Arc<Limits>,
    pub(super) surroundings: Surroundings,
    /// Manifests that a person was shown, until they are approved.
    pub(super) shown: Mutex<HashMap<String, Arc<Manifest>>>,
    pub(super) closed: CancellationToken,
    pub(super) redactor: Arc<Redactor>,
    pub(super) events: Events,
    pub(super) callbacks: CallbackChain,
    /// What a person allowed as long as the gateway is open.
    pub(super) session: CallScope,
    /// Asked for once. The lock is held while a person answers: nobody is asked the same twice.
    pub(super) inputs: tokio::sync::Mutex<Inputs>,
}

impl Core {
    /// Fails once the gateway is closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.is_cancelled() { Err(Error::Closed { what: "gateway" }) } else { Ok(()) }
    }

    /// An error as it may leave the crate.
    pub(super) fn redacted(&self, error: Error) -> Error {
        error.map_text(|text| self.redactor.redact(text).into_owned())
    }

    /// The live connection of a server whose command is approved. Reads the approval again before it starts a process.
    pub(super) async fn connect(
        &self,
        server: &Arc<ServerDefinition>,
        callbacks: &CallbackChain,
        control: Option<&RunControl>,
    ) -> Result<Arc<Connection>> {
        self.check_open()?;
        // Boxed: it is large, and every call has one.
        let launched = AtomicBool::new(false);
        let launch = async {
            launched.store(true, Ordering::Relaxed);
            self.launch(server, callbacks, control).await
        };
        let connecting = Box::pin(self.connections.get(&server.name, server.connect_timeout_ms, launch));
        let outcome = tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Error::Closed { what: "gateway" }),
            outcome = connecting => outcome,
        };
        let outcome = outcome.map_err(|error| self.redacted(error));
        // A refusal or a full house says nothing about the server.
        if !matches!(outcome, Err(Error::Closed { .. } | Error::NotApproved { .. } | Error::TooManyConnections { .. })) {
            self.registry.record(&server.name, &outcome);
        }
        let connection = outcome?;
        if launched.into_inner() {
            let connect_ms = connection.connect_time().as_secs_f64() * 1000.0;
            self.events.trace(|| Event::Connected { server: server.name.clone(), connect_ms });
        }
        let live = connection.manifest().await?;
        self.report_drift(server, &live)?;
        Ok(connection)
    }

    /// How far the approval on disk holds.
    pub(super) fn standing(&self, server: &ServerDefinition) -> Result<Standing> {
        self.approvals.standing(&self.subject(server))
    }

    /// What the approval of a server is about, as far as it decides now.
    fn subject(&self, server: &ServerDefinition) -> Subject {
        let executable = if server.pin_executable { self.executable(server) } else { None };
        self.subject_with(server, executable)
    }

    /// The same with the program that would be started: looked for on a thread that may block, as it may be large.
    pub(super) async fn full_subject(self: &Arc<Self>, server: &Arc<ServerDefinition>) -> Result<Subject> {
        let (core, definition) = (Arc::clone(self), Arc::clone(server));
        let executable = tokio::task::spawn_blocking(move || core.executable(&definition)).await;
        Ok(self.subject_with(server, executable.map_err(|error| Error::Internal(error.to_string()))?))
    }

    fn subject_with(&self, server: &ServerDefinition, executable: Option<crate::trust::Executable>) -> Subject {
        let pinned = if server.pin_values { Some(self.pinned_values(server)) } else { None };
        Subject::new(server, self.approvals.key(), executable, pinned.as_deref())
    }

    /// The values of the environment as they are now. What a person is asked for is not among them.
    fn pinned_values(&self, server: &ServerDefinition) -> Vec<(String, SecretString)> {
        let inputs = inputs_of(server).into_iter().map(|id| (id, SecretString::from(""))).collect();
        if let Ok(Some(remote)) = resolve_http(server, &self.surroundings, &inputs) {
            let oauth = remote.oauth.iter().flat_map(OAuthSettings::values);
            return oauth.chain(remote.headers).chain([("url".to_owned(), remote.url)]).collect();
        }
        match resolve_command(server, &self.surroundings, &inputs, read_env_file) {
            Ok(Some(command)) => command.environment,
            // It cannot be started as it is: that is said when it is.
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    fn executable(&self, server: &ServerDefinition) -> Option<crate::trust::Executable> {
        let inputs = inputs_of(server).into_iter().map(|id| (id, SecretString::from(""))).collect();
        // A file that cannot be read keeps the server from starting, and says so then; the program is there all the same.
        let resolve = |read: fn(&Path) -> std::io::Result<Vec<u8>>| resolve_command(server, &self.surroundings, &inputs, read);
        let command = resolve(read_env_file).or_else(|_| resolve(|_| Ok(Vec::new()))).ok()??;
        self.executables.find(&command.command, &search_path(&command), &command.working_directory)
    }

    /// The approved manifests that a run sees which starts now.
    pub(super) fn visible_servers(&self) -> Result<BTreeMap<String, Arc<Manifest>>> {
        self.check_open()?;
        let mut visible = BTreeMap::new();
        for server in self.registry.servers().iter().filter(|server| self.registry.is_enabled(&server.name)) {
            if let Standing::Full(manifest) = self.standing(server)? {
                visible.insert(server.name.clone(), manifest);
            }
        }
        Ok(visible)
    }

    /// What to start, where that is approved. Asks for inputs; tells where the program has changed.
    async fn launch(&self, server: &Arc<ServerDefinition>, callbacks: &CallbackChain, control: Option<&RunControl>) -> Result<Launch> {
        self.check_approved(server)?;
        if matches!(server.transport, Transport::Http { .. }) {
            let problem = "servers over HTTP cannot be connected by this version; use one with a command".to_owned();
            return Err(Error::UnsupportedTransport { server: server.name.clone(), problem });
        }
        let inputs = self.ask_inputs(server, callbacks, control).await?;
        // While a person typed, another may have taken the approval back.
        self.check_approved(server)?;
        let resolved = resolve_command(server, &self.surroundings, &inputs, read_env_file)?;
        let missing = || Error::Internal(format!("server \"{}\" has no command", server.name));
        let command = resolved.ok_or_else(missing)?;
        self.learn_secrets(server, &command);
        self.check_executable(server, &command).await?;
        let redactor = Arc::clone(&self.redactor);
        Ok(Launch { server: server.name.clone(), command, redact: Arc::new(move |text| redactor.redact(text).into_owned()) })
    }

    fn check_approved(&self, server: &ServerDefinition) -> Result<()> {
        match self.standing(server)? {
            Standing::Unapproved(lack) => Err(Error::NotApproved { server: server.name.clone(), reason: lack.to_string() }),
            Standing::Command | Standing::Full(_) => Ok(()),
        }
    }

    /// The values of the inputs that a server uses. One that uses none waits for nobody's answer.
    async fn ask_inputs(&self, server: &ServerDefinition, callbacks: &CallbackChain, control: Option<&RunControl>) -> Result<Inputs> {
        let needed = inputs_of(server);
        if needed.is_empty() {
            return Ok(Inputs::new());
        }
        let clock = pause(control);
        let mut inputs = self.inputs.lock().await;
        for id in needed {
            if inputs.contains_key(&id) {
                continue;
            }
            let description = self.registry.input(&id).and_then(|input| input.description).unwrap_or_default();
            let given = match callbacks.input(&id, &description) {
                Some(answer) => Some(answer.await?),
                None => self.registry.input(&id).and_then(|input| input.default),
            };
            if let Some(value) = given {
                inputs.insert(id, value);
            }
        }
        drop(clock);
        Ok(inputs.clone())
    }

    /// From now on these are redacted: what came from elsewhere, and literals that look secret.
    fn learn_secrets(&self, server: &ServerDefinition, command: &ResolvedCommand) {
        self.redactor.add(command.secrets.iter().filter(|secret| is_redactable(secret.expose_secret())));
        let values = match &server.transport {
            Transport::Stdio { environment, .. } => environment,
            Transport::Http { headers, .. } => headers,
        };
        let literals = values.iter().filter(|(name, value)| is_secret(name, value.expose_secret()));
        self.redactor.add(literals.map(|(_, value)| value));
    }

    /// Tells where the program is not the one that was approved. Where that needs approval, the standing says so already.
    async fn check_executable(&self, server: &ServerDefinition, command: &ResolvedCommand) -> Result<()> {
        let Some(known) = self.approvals.approval(&server.name)?.and_then(|approval| approval.executable) else { return Ok(()) };
        let path = search_path(command);
        let (program, folder) = (command.command.clone(), command.working_directory.clone());
        let executables = Arc::clone(&self.executables);
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

/// Where the child's program is looked for: in its own PATH; without one, where execvp(3) looks then.
fn search_path(command: &ResolvedCommand) -> OsString {
    let own = command.environment.iter().find(|(name, _)| name == "PATH");
    own.map_or_else(|| OsString::from("/bin:/usr/bin"), |(_, value)| OsString::from(value.expose_secret()))
}

/// A manifest without the tools that the config hides.
pub(super) fn filtered(server: &ServerDefinition, manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.tools.retain(|tool| server.filter.admits(&tool.name));
    manifest
}
