//! The cache of approvals as they were last read. The JavaScript thread uses it, because that thread must not wait for files.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::core::{Core, TrustState};
use super::subject::ReadFile;
use crate::boxes::Registry;
use crate::config::{Address, ServerDefinition, read_env_file};
use crate::error::Result;
use crate::trust::{Approval, ApprovalSnapshot, ApprovalStatus, NotApprovedReason, Subject};

/// The choice between reading approvals from disk and using the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalRead {
    /// Reads approvals, environment files and pinned programs from disk. Blocks.
    Fresh,
    /// Reads the approvals from disk, but compares them with the environment files, folders and programs of the last read. The files of a
    /// server that was never read before are read too. Blocks. Used for lists of many servers, where each server is checked again before it
    /// is used.
    Store,
    /// Uses the approvals of the last read, and starts a new read for later callers. Never blocks.
    Cached,
}

/// The approvals of all servers at one moment. They are read once for a list of many servers, and not once for each server.
pub(super) struct ApprovalReading<'core> {
    core: &'core Core,
    snapshot: ApprovalSnapshot,
    read: ApprovalRead,
}

impl ApprovalReading<'_> {
    /// Returns the approval status of a server.
    pub(super) fn status(&self, server: &ServerDefinition) -> ApprovalStatus {
        self.status_of(server, &server.key())
    }

    /// Returns the approval status of a server whose key is known. With this function, code that handles many servers computes each key
    /// only once.
    pub(super) fn status_of(&self, server: &ServerDefinition, key: &str) -> ApprovalStatus {
        let core = self.core;
        let TrustState { approvals, approval_cache, .. } = &core.trust;
        let known = || approval_cache.get(key);
        match self.read {
            ApprovalRead::Fresh => approvals.status_in(&self.snapshot, key, |approval| Arc::new(core.current_subject(server, approval))),
            ApprovalRead::Store => approvals
                .status_in(&self.snapshot, key, |approval| known().unwrap_or_else(|| Arc::new(core.current_subject(server, approval)))),
            ApprovalRead::Cached => match known() {
                Some(subject) => approvals.status_in(&self.snapshot, key, |_| subject),
                None => ApprovalStatus::Unapproved(NotApprovedReason::Never),
            },
        }
    }

    /// Returns the digest of the server's command, with which a valid approval must agree.
    pub(super) fn digest(&self, server: &ServerDefinition, key: &str) -> String {
        match self.read {
            ApprovalRead::Fresh => self.core.subject(server).digest,
            ApprovalRead::Store | ApprovalRead::Cached => {
                self.core.trust.approval_cache.get(key).map(|subject| subject.digest.clone()).unwrap_or_default()
            }
        }
    }
}

/// The cache of the subjects of approvals. A `Subject` is everything that an approval is compared with.
pub(super) struct ApprovalCache {
    subjects: Mutex<Subjects>,
    /// The subjects that were computed last, with the definitions that they describe. They are kept because computing the digest of a large
    /// entry takes a long time.
    computed: Mutex<HashMap<String, (Arc<ServerDefinition>, Subject)>>,
    /// Locked while one thread reads the approvals for all callers.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// The runtime's handle. `None` once the gateway is closed, because a handle keeps the runtime's file descriptors open.
    runtime: Mutex<Option<Handle>>,
}

/// The subjects of the last read.
#[derive(Default)]
struct Subjects {
    /// The subjects by the keys of their servers.
    by_key: HashMap<String, Arc<Subject>>,
    /// Number of changes of `by_key` until now.
    changes: u64,
}

impl ApprovalCache {
    pub(super) fn new(runtime: Handle) -> Self {
        Self { subjects: Mutex::default(), computed: Mutex::default(), reading: Arc::default(), runtime: Mutex::new(Some(runtime)) }
    }

    /// Returns the runtime's handle for background work, while the gateway is open.
    pub(super) fn runtime(&self) -> Option<Handle> {
        self.runtime.lock().clone()
    }

    /// Stops background reads, and drops the runtime's handle.
    pub(super) fn end(&self) {
        self.runtime.lock().take();
    }

    fn note(&self, subject: &Subject) {
        let mut subjects = self.subjects();
        if subjects.by_key.get(&subject.key).is_none_or(|known| **known != *subject) {
            subjects.by_key.insert(subject.key.clone(), Arc::new(subject.clone()));
            subjects.changes += 1;
        }
    }

    /// Returns the stored subject, if it was computed for this very definition, with the same folder, addresses and registry. Pointers are
    /// compared: the cache keeps the definition alive, so no other definition can have the same address in memory.
    pub(super) fn computed(
        &self,
        server: &ServerDefinition,
        folder: Option<&PathBuf>,
        addresses: &[(&'static str, Address)],
        registry: &Registry,
    ) -> Option<Subject> {
        let computed = self.computed.lock();
        let (definition, subject) = computed.get(&server.name)?;
        let is_same = std::ptr::eq(Arc::as_ptr(definition), server)
            && subject.folder.as_ref() == folder
            && subject.addresses == addresses
            && subject.registry == *registry;
        is_same.then(|| subject.clone())
    }

    pub(super) fn keep(&self, definition: Arc<ServerDefinition>, subject: Subject) {
        self.computed.lock().insert(definition.name.clone(), (definition, subject));
    }

    fn get(&self, key: &str) -> Option<Arc<Subject>> {
        self.subjects().by_key.get(key).cloned()
    }

    /// Returns the number of changes of the subjects until now.
    pub(super) fn changes(&self) -> u64 {
        self.subjects().changes
    }

    fn subjects(&self) -> MutexGuard<'_, Subjects> {
        self.subjects.lock()
    }
}

impl Core {
    /// Reads the approvals of all servers, or takes them from the cache.
    pub(super) fn read_approvals(&self, read: ApprovalRead) -> Result<ApprovalReading<'_>> {
        let approvals = &self.trust.approvals;
        let snapshot = if read == ApprovalRead::Cached { approvals.last_snapshot() } else { approvals.snapshot() };
        Ok(ApprovalReading { core: self, snapshot: snapshot?, read })
    }

    /// Returns the approvals of this snapshot, compared with the subjects in the cache.
    pub(super) fn cached_approvals(&self, snapshot: ApprovalSnapshot) -> ApprovalReading<'_> {
        ApprovalReading { core: self, snapshot, read: ApprovalRead::Cached }
    }

    /// Returns the approval status of a server, from disk or from the cache.
    pub(super) fn approval_status_by(&self, server: &ServerDefinition, read: ApprovalRead) -> Result<ApprovalStatus> {
        Ok(self.read_approvals(read)?.status(server))
    }

    /// Returns the approval status of a server, from the approval on disk.
    pub(super) fn approval_status(&self, server: &ServerDefinition) -> Result<ApprovalStatus> {
        self.trust.approvals.approval_status_of(&server.key(), |approval| self.current_subject(server, approval))
    }

    /// Returns the subject with which an approval is compared. The program file is read only if it is pinned and the command is approved.
    pub(super) fn current_subject(&self, server: &ServerDefinition, approval: &Approval) -> Subject {
        self.current_subject_with(server, approval, &read_env_file)
    }

    /// Returns the subject with which an approval is compared, like [`Self::current_subject`]. `read_file` reads the environment file.
    pub(super) fn current_subject_with(&self, server: &ServerDefinition, approval: &Approval, read_file: ReadFile<'_>) -> Subject {
        let mut subject = self.subject_with(server, None, read_file);
        if server.pin_executable && approval.command_digest == subject.digest {
            subject.executable = self.executable(server);
        }
        self.trust.approval_cache.note(&subject);
        subject
    }

    /// Reads the approvals of all servers into the cache. Ignores errors: a later call that needs an approval reports the error.
    pub(super) fn read_all_approvals(&self) {
        let Ok(reading) = self.read_approvals(ApprovalRead::Fresh) else { return };
        for server in self.registry.servers() {
            reading.status(&server);
        }
    }

    /// Starts a read of the approvals of all servers on another thread, because another process may have changed them. Concurrent requests
    /// share one read.
    pub(super) fn read_approvals_soon(self: &Arc<Self>) {
        let Some(runtime) = self.trust.approval_cache.runtime() else { return };
        let Ok(reading) = Arc::clone(&self.trust.approval_cache.reading).try_lock_owned() else { return };
        let core = Arc::clone(self);
        drop(runtime.spawn_blocking(move || {
            if core.check_open().is_ok() {
                core.read_all_approvals();
                core.prepare_statuses();
                let _ = core.grants_now(ApprovalRead::Fresh);
            }
            drop(reading);
        }));
    }

    /// Starts a new read of the approvals, if `approval_read` is [`ApprovalRead::Cached`].
    pub(super) fn refresh_if_cached(self: &Arc<Self>, approval_read: ApprovalRead) {
        if approval_read == ApprovalRead::Cached {
            self.read_approvals_soon();
        }
    }
}
