//! Connects to servers on behalf of a scope, records the connections and sends events about them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::callbacks::CallScope;
use super::core::Core;
use super::events::Event;
use super::look_up::CallDeadline;
use super::server_logs::Note;
use crate::client::{Closed, ConnectionRequest, Lease, LeaseOrigin};
use crate::config::{ServerDefinition, read_env_file};
use crate::error::{Error, Result};
use crate::sandbox::RunControl;
use crate::store::audit::ConnectionChange;

impl Core {
    /// Returns the open connection of a server whose command is approved. Reads the approval again before starting a process.
    pub(super) async fn connect(
        &self,
        server: &Arc<ServerDefinition>,
        scope: &Arc<CallScope>,
        control: Option<&RunControl>,
        patience: Duration,
        deadline: Option<CallDeadline>,
    ) -> Result<Lease> {
        // The future is boxed because it is large and part of every call.
        Box::pin(self.connect_now(server, scope, control, (patience, deadline))).await
    }

    async fn connect_now(
        &self,
        server: &Arc<ServerDefinition>,
        scope: &Arc<CallScope>,
        control: Option<&RunControl>,
        (patience, deadline): (Duration, Option<CallDeadline>),
    ) -> Result<Lease> {
        self.check_open()?;
        let period = self.check_plugin_on()?;
        let limited = scope.granted.with_connection_limits(server, self.limits.connect_timeout_ms);
        let wanted = wanted(&limited, patience);
        // Another call of the run may be connecting to the same server and asking a person. While this call waits for that call, the clock
        // of the run can stop.
        let waiting = control.map(RunControl::wait_for_turn);
        let launch = async move {
            drop(waiting);
            self.launch(&limited, scope, control, deadline).await
        };
        let started = Instant::now();
        let connecting = Box::pin(self.connections.get(&wanted, launch));
        let outcome = tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Error::Closed { what: "gateway" }),
            () = period.ended.cancelled() => Err(Error::PluginOff),
            outcome = connecting => outcome,
        };
        let outcome = outcome.map_err(|error| self.redacted(error));
        self.note_outcome(server, scope, started.elapsed(), &outcome);
        let connection = outcome?;
        let own = Arc::clone(server);
        if connection.origin() != LeaseOrigin::Shared
            && let Err(error) = self.reading(move |core| core.check_approved(&own, &read_env_file)).await
        {
            // Another process revoked the approval during the connection attempt.
            drop(connection);
            self.end_if_unapproved(&server.name).await;
            return Err(self.redacted(error));
        }
        let is_new = connection.origin() != LeaseOrigin::Shared;
        self.note_use(server, is_new, scope);
        if let Some(run) = control {
            scope.hold(&server.name, &connection, run);
        }
        if is_new {
            self.connected(server, &connection, scope);
        }
        let live = connection.manifest_for(|| self.caller(scope, control)).await?;
        self.report_drift(server, &live)?;
        if connection.origin() != LeaseOrigin::Shared {
            let changed = self.registry.quarantined(&server.name);
            self.server_facts.note(&server.key(), &self.subject(server).digest, |server_facts| server_facts.changed = changed);
            self.resubscribe(server, &connection).await;
        }
        Ok(connection)
    }

    /// Records the outcome of an attempt to connect. Leaves out an outcome whose cause is not the server, such as a closed gateway.
    fn note_outcome(&self, server: &ServerDefinition, scope: &CallScope, duration: Duration, outcome: &Result<Lease>) {
        if let Err(error) = outcome {
            self.trace_connection(server, scope, duration, Err(error));
        }
        let is_of_caller = |error: &Error| {
            let is_refused = matches!(error, Error::NotApproved { .. } | Error::TooManyConnections { .. });
            is_refused || matches!(error, Error::Closed { .. } | Error::PluginOff | Error::CallTimeout { .. })
        };
        if outcome.as_ref().is_err_and(is_of_caller) {
            return;
        }
        self.registry.record(&server.name, outcome);
        if let Err(error) = outcome {
            self.events.server_logs.note(&server.key(), Note::Failed(error.clone()));
            self.record_connection(&server.name, ConnectionChange::Failed(error.code()), scope.identity.audit_name(), None);
        }
    }

    /// Records a new connection, and sends events about it.
    fn connected(&self, server: &ServerDefinition, connection: &Lease, scope: &CallScope) {
        let connect_ms = connection.connect_time().as_secs_f64() * 1000.0;
        // The approval of the server may have been given by another process, so the wait for the end of approvals must start again.
        self.approvals_may_end();
        if let Some(core) = self.weak.upgrade() {
            core.prepare_redacted_soon();
        }
        self.record_connection(&server.name, ConnectionChange::Opened, scope.identity.audit_name(), Some(connection.connect_time()));
        self.trace_connection(server, scope, connection.connect_time(), Ok(connection.protocol_version()));
        self.events.trace(Event::Connected { server: server.name.clone(), connect_ms });
        self.server_facts.note(&server.key(), &self.subject(server).digest, |server_facts| server_facts.era = Some(connection.era()));
        let why = match connection.origin() {
            LeaseOrigin::Shared | LeaseOrigin::First | LeaseOrigin::After(Closed::Ended) => return,
            LeaseOrigin::After(Closed::Lost) => "it had ended",
            LeaseOrigin::After(Closed::Revoked) => "it was revoked, and approved again",
            LeaseOrigin::After(Closed::Evicted) => "its connection had been closed to make room for another server (limits.maxConnections)",
            LeaseOrigin::After(Closed::IdledOut) => "its connection had been idle for too long (idleTimeoutMs)",
        };
        scope.warn(format!("server \"{}\" was connected again, because {why}. Its session state is lost", server.given_name()));
    }

    /// Records that a server sends questions that belong to no call. The next connection must know this before it starts.
    pub(super) fn remember_elicits(&self, name: &str) {
        if let Ok(server) = self.registry.server(name) {
            self.server_facts.note(&server.key(), &self.subject(&server).digest, |server_facts| server_facts.elicits = true);
        }
    }
}

fn wanted(server: &ServerDefinition, patience: Duration) -> ConnectionRequest {
    let (idle_timeout, keep_alive) = (server.idle_timeout_ms.map(Duration::from_millis), server.keep_alive_ms.map(Duration::from_millis));
    ConnectionRequest { server: server.name.clone(), pinned: server.pinned, idle_timeout, keep_alive, patience }
}
