//! Subjects of approvals: a server as it is configured now, with all that decides what it would start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;

use super::core::Core;
use super::launch::search_path;
use crate::blocking::blocking;
use crate::config::{Locality, OAuthSettings, ServerDefinition, Transport, inputs_of, read_env_file, resolve_command, resolve_http};
use crate::error::Result;
use crate::trust::{Circumstances, Executable, Subject, addresses_of, deciding_folder};

impl Core {
    /// The subject of a server's approval, without its program, which is not part of the digest.
    pub(super) fn subject(&self, server: &ServerDefinition) -> Subject {
        self.subject_with(server, None)
    }

    /// The subject with the program that would be started. It is read on a thread that may block, as it may be large.
    pub(super) async fn full_subject(self: &Arc<Self>, server: &Arc<ServerDefinition>) -> Result<Subject> {
        let (core, definition) = (Arc::clone(self), Arc::clone(server));
        blocking(move || Ok(core.subject_with(&definition, core.executable(&definition)))).await
    }

    fn subject_with(&self, server: &ServerDefinition, executable: Option<Executable>) -> Subject {
        let folder = deciding_folder(server, &self.surroundings);
        let pinned = if server.pin_values { Some(self.pinned_values(server, locality(folder.as_ref()))) } else { None };
        let addresses = addresses_of(server, Some(&self.surroundings));
        Subject::new(server, self.trust.approvals.key(), Circumstances { executable, pinned, folder, addresses })
    }

    /// The values of the environment as they are now, without those that a person is asked for.
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

    pub(super) fn executable(&self, server: &ServerDefinition) -> Option<Executable> {
        let inputs = inputs_of(server).into_iter().map(|id| (id, SecretString::from(""))).collect();
        let locality = locality(deciding_folder(server, &self.surroundings).as_ref());
        // A file that cannot be read keeps the server from starting, and says so then; the program is there all the same.
        let resolve = |read: fn(&Path) -> std::io::Result<Vec<u8>>| resolve_command(server, &self.surroundings, &inputs, locality, read);
        let command = resolve(read_env_file).or_else(|_| resolve(|_| Ok(Vec::new())));
        // So does a variable that is not set.
        let command = command
            .or_else(|_| resolve_command(&with_path_alone(server), &self.surroundings, &inputs, locality, |_| Ok(Vec::new())))
            .ok()??;
        self.trust.executables.find(&command.command, &search_path(&command), &command.working_directory)
    }
}

/// The locality in which a server starts, by the folder that decides what it starts.
pub(super) fn locality(folder: Option<&PathBuf>) -> Locality {
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
