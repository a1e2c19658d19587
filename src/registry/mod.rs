//! Which servers exist now, which of them this gateway has enabled, and how they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::config::{Config, ServerDefinition};
use crate::error::{Error, Result};

/// A server as `servers()` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    pub name: String,
    pub state: ServerState,
    /// Both stages, as the server is configured now.
    pub approved: bool,
    pub enabled: bool,
    pub source: &'static str,
    /// Raw names of the approved tools.
    pub tools: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

/// What a person would say of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerState {
    /// `disabled: true` in the config.
    Disabled,
    /// Nothing may run.
    Unapproved,
    /// The command is approved, its tools are not.
    CommandApproved,
    /// Both stages are; there is no process.
    Idle,
    /// There is a live connection.
    Connected,
    /// The last attempt to connect failed.
    Error,
}

/// The last thing that went wrong with a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    pub code: &'static str,
    pub message: String,
}

/// The servers of one gateway.
#[derive(Debug)]
pub struct Registry {
    servers: Vec<Arc<ServerDefinition>>,
    enabled: Mutex<BTreeSet<String>>,
    errors: Mutex<BTreeMap<String, LastError>>,
}

impl Registry {
    #[must_use]
    pub fn new(config: Config) -> Self {
        let servers = config.servers.into_iter().map(Arc::new).collect();
        Self { servers, enabled: Mutex::default(), errors: Mutex::default() }
    }

    /// All servers, in the config's order.
    #[must_use]
    pub fn servers(&self) -> &[Arc<ServerDefinition>] {
        &self.servers
    }

    /// The server of this name.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, naming those that exist.
    pub fn server(&self, name: &str) -> Result<Arc<ServerDefinition>> {
        let found = self.servers.iter().find(|server| server.name == name);
        found.cloned().ok_or_else(|| Error::UnknownServer {
            server: name.to_owned(),
            place: "in the config",
            known: self.servers.iter().map(|server| server.name.clone()).collect(),
        })
    }

    pub fn set_enabled(&self, name: &str, enabled: bool) {
        let mut set = lock(&self.enabled);
        if enabled {
            set.insert(name.to_owned());
        } else {
            set.remove(name);
        }
    }

    #[must_use]
    pub fn is_enabled(&self, name: &str) -> bool {
        lock(&self.enabled).contains(name)
    }

    /// Remembers how the last attempt to reach a server went.
    pub fn record<T>(&self, name: &str, outcome: &Result<T>) {
        let mut errors = lock(&self.errors);
        match outcome {
            Ok(_) => errors.remove(name),
            Err(error) => errors.insert(name.to_owned(), LastError { code: error.code(), message: error.to_string() }),
        };
    }

    #[must_use]
    pub fn last_error(&self, name: &str) -> Option<LastError> {
        lock(&self.errors).get(name).cloned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
