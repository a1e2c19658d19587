//! Subjects of approvals. A subject describes a server in its present configuration, including everything that determines which program is
//! started, and how.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use secrecy::SecretString;

use super::core::Core;
use super::inputs::default_of;
use super::launch::search_path;
use sha2::{Digest as _, Sha256};

use crate::config::{
    Locality, OAuthSettings, ResolvedCommand, ServerDefinition, Transport, inputs_of, read_env_file, resolve_command, resolve_http,
};
use crate::error::Result;
use crate::trust::{Circumstances, Executable, Subject, addresses_of, command_depends_on_workspace, deciding_folder};

/// A function that reads an environment file: [`read_env_file`], or a function that returns the bytes of an earlier read.
pub(super) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// The content of an environment file that is read once, so that it is the same wherever it is used.
#[derive(Clone, Default)]
pub(super) struct FileOnce(Arc<OnceLock<(PathBuf, Content)>>);

type Content = std::result::Result<Vec<u8>, String>;

impl FileOnce {
    /// Returns the content. Only the first call reads the file. One content is enough, because an entry names at most one environment file.
    pub(super) fn read(&self, path: &Path, read_file: ReadFile<'_>) -> io::Result<Vec<u8>> {
        let (_, content) = self.0.get_or_init(|| (path.to_owned(), read_file(path).map_err(|error| error.to_string())));
        content.clone().map_err(io::Error::other)
    }

    /// Returns the content of the file at a path, if it is this file and was read.
    pub(super) fn known(&self, path: &Path) -> Option<io::Result<Vec<u8>>> {
        let (_, content) = self.0.get().filter(|(known, _)| known == path)?;
        Some(content.clone().map_err(io::Error::other))
    }

    /// Returns the digest of the content. `None` if the file was not read, or could not be read.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        let (_, content) = self.0.get()?;
        Some(Sha256::digest(content.as_ref().ok()?).into())
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Core {
    /// Returns the subject of a server's approval, without its program. The digest does not cover the program.
    pub(super) fn subject(&self, server: &ServerDefinition) -> Subject {
        self.subject_with(server, None, &read_env_file)
    }

    /// Returns the subject with the program that would be started, and with the facts about the server's box on this machine. Reads the
    /// program on a blocking thread, because the file may be large. If the box cannot be made now, the folders for the program are left
    /// out. So a request that is shown in this state has another digest than a request with all sentences.
    pub(super) async fn full_subject(&self, server: &Arc<ServerDefinition>) -> Result<Subject> {
        let definition = Arc::clone(server);
        let whole = move |core: &Self| {
            let (subject, present) = (core.whole_subject(&definition), core.present_in_box(&definition));
            let subject = if present.refusal.is_some() { subject.with_places(None) } else { subject };
            let named = core.named_files(&definition);
            Ok(Subject { named, ..subject }.with_neighbours(present, core.changeable_by_others(&definition)))
        };
        self.reading(whole).await
    }

    /// Returns the subject with the program that would be started and the folders that the server's box has for this program. Reads the
    /// disk.
    pub(super) fn whole_subject(&self, server: &ServerDefinition) -> Subject {
        let subject = self.subject_with(server, self.executable(server), &read_env_file);
        subject.with_places(self.places_in_box(server)).with_linked(self.linked_programs(server))
    }

    pub(super) fn subject_with(&self, server: &ServerDefinition, executable: Option<Executable>, read_file: ReadFile<'_>) -> Subject {
        let folder = deciding_folder(server, &self.surroundings);
        // If the values cannot be determined, the server cannot be started. The attempt to start it reports the error.
        let pinned = server.pin_values.then(|| self.pinned_values(server, self.locality(server), read_file).unwrap_or_default());
        let addresses = addresses_of(server, Some(&self.surroundings));
        let registry = self.start_registry(server);
        let key = self.store.key();
        if pinned.is_some() {
            return Subject::new(server, key, Circumstances { executable, pinned, folder, addresses, registry });
        }
        let known = self.trust.approval_cache.computed(server, folder.as_ref(), &addresses, &registry);
        let subject = known.unwrap_or_else(|| {
            let subject = Subject::new(server, key, Circumstances { executable: None, pinned, folder, addresses, registry });
            if let Some(definition) =
                self.registry.server(&server.name).ok().filter(|definition| std::ptr::eq(Arc::as_ptr(definition), server))
            {
                self.trust.approval_cache.keep(definition, subject.clone());
            }
            subject
        });
        subject.with_executable(executable)
    }

    /// Returns the present values of the environment, without the inputs that a person is asked for.
    pub(super) fn pinned_values(
        &self,
        server: &ServerDefinition,
        locality: Locality,
        read_file: ReadFile<'_>,
    ) -> Result<Vec<(String, SecretString)>> {
        let inputs = inputs_of(server).into_iter().map(|id| (id, SecretString::from(""))).collect();
        if let Some(remote) = resolve_http(server, &self.surroundings, &inputs)? {
            let oauth = remote.oauth.iter().flat_map(OAuthSettings::values);
            return Ok(oauth.chain(remote.headers).chain([("url".to_owned(), remote.url)]).collect());
        }
        let command = resolve_command(server, &self.surroundings, &inputs, locality, read_file)?;
        Ok(command.map(|command| command.environment).unwrap_or_default())
    }

    /// Returns the locality in which a server starts.
    pub(super) fn locality(&self, server: &ServerDefinition) -> Locality {
        if command_depends_on_workspace(server, &self.surroundings) { Locality::Workspace } else { Locality::Anywhere }
    }

    pub(super) fn executable(&self, server: &ServerDefinition) -> Option<Executable> {
        let command = self.command_without_inputs(server)?;
        self.trust.executables.find(&command.command, &search_path(&command), &command.working_directory)
    }

    /// Returns the command as far as it is known before a person has answered the questions for the server's inputs.
    pub(super) fn command_without_inputs(&self, server: &ServerDefinition) -> Option<ResolvedCommand> {
        self.command_with(server, |_| None, &read_env_file)
    }

    /// Returns the command that would be started if nobody answers the questions for the server's inputs.
    pub(super) fn command_with_defaults(&self, server: &ServerDefinition, read_file: ReadFile<'_>) -> Option<ResolvedCommand> {
        self.command_with(server, |id| default_of(server, id).cloned(), read_file)
    }

    /// Returns the command with the values that `value_of` returns for inputs. An input without a value is empty.
    fn command_with(
        &self,
        server: &ServerDefinition,
        value_of: impl Fn(&str) -> Option<SecretString>,
        read_file: ReadFile<'_>,
    ) -> Option<ResolvedCommand> {
        let filled = |id: String| {
            let value = value_of(&id).unwrap_or_else(|| SecretString::from(""));
            (id, value)
        };
        let inputs = inputs_of(server).into_iter().map(filled).collect();
        let locality = self.locality(server);
        // An unreadable environment file is reported when the server is started. The program can be found without the file.
        let resolve = |read: ReadFile<'_>| resolve_command(server, &self.surroundings, &inputs, locality, read);
        let command = resolve(read_file).or_else(|_| resolve(&|_| Ok(Vec::new())));
        // A variable that is not set is reported when the server is started too.
        command.or_else(|_| resolve_command(&with_path_alone(server), &self.surroundings, &inputs, locality, |_| Ok(Vec::new()))).ok()?
    }
}

/// Returns the server with only those settings that determine where its program is found.
fn with_path_alone(server: &ServerDefinition) -> ServerDefinition {
    let mut server = server.clone();
    if let Transport::Stdio { environment, environment_file, .. } = &mut server.transport {
        environment.retain(|(name, _)| name == "PATH");
        *environment_file = None;
    }
    server
}
