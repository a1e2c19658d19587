//! What a gateway and its sandboxes share: the rooms, wired. Connections are made here.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use super::callbacks::{CallScope, CallbackChain};
use super::checks::CheckDefaults;
use super::events::{Event, Events};
use super::journal::Note;
use super::launch::search_path;
use super::learnt::LearntServers;
use super::looked::{Look, Looked};
use super::options::ConfigSource;
use super::request::Subscriptions;
use super::slots::CallSlots;
use super::switch::Switch;
use crate::blocking::blocking;
use crate::bridge::ToolSearch;
use crate::catalog::Manifest;
use crate::client::{Closed, Connections, Lease, LeaseOrigin, TokenStore, Wanted};
use crate::config::{
    Locality, OAuthSettings, ServerDefinition, Surroundings, Transport, inputs_of, read_env_file, resolve_command, resolve_http,
};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::redact::Redactor;
use crate::registry::Registry;
use crate::sandbox::{LookOwner, RunControl, Sandboxes};
use crate::trust::{ApprovalStore, Circumstances, Executables, Standing, Subject, addresses_of, deciding_folder};

/// The values of inputs that have been asked for.
pub(super) type Inputs = BTreeMap<String, SecretString>;

pub(super) struct Core {
    pub(super) registry: Registry,
    /// Where the config comes from, to read it again.
    pub(super) source: ConfigSource,
    pub(super) approvals: ApprovalStore,
    pub(super) looked: Looked,
    pub(super) executables: Arc<Executables>,
    pub(super) connections: Connections,
    pub(super) sandboxes: Sandboxes,
    /// Of code that is looked at without a sandbox.
    pub(super) look_owner: LookOwner,
    pub(super) limits: Arc<Limits>,
    pub(super) surroundings: Surroundings,
    /// Manifests that a person was shown, until they are approved, each with the digest of the command that it was read under.
    pub(super) shown: Mutex<HashMap<String, (String, Arc<Manifest>)>>,
    pub(super) closed: CancellationToken,
    pub(super) switch: Switch,
    pub(super) redactor: Arc<Redactor>,
    pub(super) checks: CheckDefaults,
    /// Of runs whose sandbox does not say.
    pub(super) max_result_tokens: Option<usize>,
    pub(super) subscriptions: Subscriptions,
    pub(super) search: Arc<ToolSearch>,
    pub(super) slots: CallSlots,
    pub(super) events: Events,
    pub(super) callbacks: CallbackChain,
    /// What a person allowed as long as the gateway is open.
    pub(super) session: Arc<CallScope>,
    pub(super) learnt: LearntServers,
    pub(super) tokens: TokenStore,
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
        error.redacted(&self.redactor)
    }

    /// The live connection of a server whose command is approved. Reads the approval again before it starts a process.
    pub(super) async fn connect(
        &self,
        server: &Arc<ServerDefinition>,
        scope: &CallScope,
        control: Option<&RunControl>,
        patience: Duration,
    ) -> Result<Lease> {
        // Boxed: it is large, and every call has one.
        Box::pin(self.connect_now(server, scope, control, patience)).await
    }

    async fn connect_now(
        &self,
        server: &Arc<ServerDefinition>,
        scope: &CallScope,
        control: Option<&RunControl>,
        patience: Duration,
    ) -> Result<Lease> {
        self.check_open()?;
        let period = self.check_on()?;
        let wanted = wanted(server, patience);
        // Another call of the run may be connecting it, and ask a person.
        let waiting = control.map(RunControl::wait_for_turn);
        let launch = async move {
            drop(waiting);
            self.launch(server, &scope.callbacks, control).await
        };
        let connecting = Box::pin(self.connections.get(&wanted, launch));
        let outcome = tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Error::Closed { what: "gateway" }),
            () = period.ended.cancelled() => Err(Error::PluginOff),
            outcome = connecting => outcome,
        };
        let outcome = outcome.map_err(|error| self.redacted(error));
        // A refusal or a full house says nothing about the server.
        if !matches!(outcome, Err(Error::Closed { .. } | Error::PluginOff | Error::NotApproved { .. } | Error::TooManyConnections { .. })) {
            self.registry.record(&server.name, &outcome);
            if let Err(error) = &outcome {
                self.events.journal.note(&server.name, Note::Failed(error.clone()));
            }
        }
        let connection = outcome?;
        if connection.origin() != LeaseOrigin::Shared {
            self.connected(server, &connection, scope);
        }
        let live = connection.manifest().await?;
        self.report_drift(server, &live)?;
        if connection.origin() != LeaseOrigin::Shared {
            let changed = self.registry.quarantined(&server.name);
            self.learnt.note(&server.name, &self.subject(server).digest, |learnt| learnt.changed = changed);
            self.resubscribe(server, &connection).await;
        }
        Ok(connection)
    }

    /// A connection was made: what is to be remembered of it, and who should know.
    fn connected(&self, server: &ServerDefinition, connection: &Lease, scope: &CallScope) {
        let connect_ms = connection.connect_time().as_secs_f64() * 1000.0;
        self.events.trace(Event::Connected { server: server.name.clone(), connect_ms });
        self.learnt.note(&server.name, &self.subject(server).digest, |learnt| learnt.era = Some(connection.era()));
        let why = match connection.origin() {
            LeaseOrigin::Shared | LeaseOrigin::First | LeaseOrigin::After(Closed::Ended) => return,
            LeaseOrigin::After(Closed::Lost) => "it had ended",
            LeaseOrigin::After(Closed::Evicted) => "its connection had given way to another server's (limits.maxConnections)",
            LeaseOrigin::After(Closed::IdledOut) => "its connection had been idle for too long (idleTimeoutMs)",
        };
        scope.warn(format!("server \"{}\" was connected anew, since {why}: what it knew of this session is gone", server.name));
    }

    /// A server asks questions of which nothing says whose they are: the next connection has to know that from its start.
    pub(super) fn remember_elicits(&self, name: &str) {
        if let Ok(server) = self.registry.server(name) {
            self.learnt.note(name, &self.subject(&server).digest, |learnt| learnt.elicits = true);
        }
    }

    /// The outcome of what was pending. That the gateway closes ends its servers: whatever fails from then on fails for that.
    pub(super) fn unless_closed<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| match error {
            Error::Aborted { .. } => error,
            _ if self.closed.is_cancelled() => Error::Closed { what: "gateway" },
            _ => error,
        })
    }

    /// What the approval of a server is about, without its program, which is no part of the digest.
    pub(super) fn subject(&self, server: &ServerDefinition) -> Subject {
        self.subject_with(server, None)
    }

    /// The same with the program that would be started: looked for on a thread that may block, as it may be large.
    pub(super) async fn full_subject(self: &Arc<Self>, server: &Arc<ServerDefinition>) -> Result<Subject> {
        let (core, definition) = (Arc::clone(self), Arc::clone(server));
        blocking(move || Ok(core.subject_with(&definition, core.executable(&definition)))).await
    }

    fn subject_with(&self, server: &ServerDefinition, executable: Option<crate::trust::Executable>) -> Subject {
        let folder = deciding_folder(server, &self.surroundings);
        let pinned = if server.pin_values { Some(self.pinned_values(server, locality(folder.as_ref()))) } else { None };
        let addresses = addresses_of(server, Some(&self.surroundings));
        Subject::new(server, self.approvals.key(), Circumstances { executable, pinned, folder, addresses })
    }

    /// The values of the environment as they are now. What a person is asked for is not among them.
    fn pinned_values(&self, server: &ServerDefinition, locality: Locality) -> Vec<(String, SecretString)> {
        let inputs = inputs_of(server).into_iter().map(|id| (id, SecretString::from(""))).collect();
        if let Ok(Some(remote)) = resolve_http(server, &self.surroundings, &inputs) {
            let oauth = remote.oauth.iter().flat_map(OAuthSettings::values);
            return oauth.chain(remote.headers).chain([("url".to_owned(), remote.url)]).collect();
        }
        match resolve_command(server, &self.surroundings, &inputs, locality, read_env_file) {
            Ok(Some(command)) => command.environment,
            // It cannot be started as it is: that is said when it is.
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    pub(super) fn executable(&self, server: &ServerDefinition) -> Option<crate::trust::Executable> {
        let inputs = inputs_of(server).into_iter().map(|id| (id, SecretString::from(""))).collect();
        let locality = locality(deciding_folder(server, &self.surroundings).as_ref());
        // A file that cannot be read keeps the server from starting, and says so then; the program is there all the same.
        let resolve = |read: fn(&Path) -> std::io::Result<Vec<u8>>| resolve_command(server, &self.surroundings, &inputs, locality, read);
        let command = resolve(read_env_file).or_else(|_| resolve(|_| Ok(Vec::new())));
        // So does a variable that is not set.
        let command = command
            .or_else(|_| resolve_command(&with_path_alone(server), &self.surroundings, &inputs, locality, |_| Ok(Vec::new())))
            .ok()??;
        self.executables.find(&command.command, &search_path(&command), &command.working_directory)
    }

    /// The approved manifests that a run sees which starts now.
    pub(super) fn visible_servers(&self) -> Result<BTreeMap<String, Arc<Manifest>>> {
        self.visible_servers_by(Look::Now)
    }

    pub(super) fn visible_servers_by(&self, look: Look) -> Result<BTreeMap<String, Arc<Manifest>>> {
        self.check_open()?;
        self.check_on()?;
        let mut visible = BTreeMap::new();
        for server in self.registry.servers().iter().filter(|server| self.registry.is_enabled(&server.name)) {
            if let Standing::Full(manifest) = self.standing_by(server, look)? {
                visible.insert(server.name.clone(), manifest);
            }
        }
        Ok(visible)
    }
}

/// Where a server starts, by the folder that decides what it starts.
pub(super) fn locality(folder: Option<&std::path::PathBuf>) -> Locality {
    if folder.is_some() { Locality::Workspace } else { Locality::Anywhere }
}

/// The server without what does not decide where its program is found.
fn with_path_alone(server: &ServerDefinition) -> ServerDefinition {
    let mut server = server.clone();
    if let Transport::Stdio { environment, environment_file, .. } = &mut server.transport {
        environment.retain(|(name, _)| name == "PATH");
        *environment_file = None;
    }
    server
}

fn wanted(server: &ServerDefinition, patience: Duration) -> Wanted {
    let (idle_timeout, keep_alive) = (server.idle_timeout_ms.map(Duration::from_millis), server.keep_alive_ms.map(Duration::from_millis));
    Wanted { server: server.name.clone(), pinned: server.pinned, idle_timeout, keep_alive, patience }
}
