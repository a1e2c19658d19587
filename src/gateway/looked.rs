//! Approvals as they were found last: for JavaScript's thread, which reads no file and waits for none.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::core::Core;
use crate::config::ServerDefinition;
use crate::error::Result;
use crate::trust::{Approval, Standing, Subject};

/// The place at which an approval is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// On the disk, as it is now: reads approvals, environment files and pinned programs. Blocks.
    Now,
    /// In what was found the last time; and soon on the disk, for whoever asks next. Reads nothing and never waits.
    Last,
}

/// The subjects of approvals, as they were found last.
pub(super) struct Looked {
    subjects: Mutex<HashMap<String, Subject>>,
    /// Locked while one thread looks on behalf of the others.
    looking: Arc<tokio::sync::Mutex<()>>,
    /// `None` once the gateway is closed: a handle keeps the runtime's descriptors open.
    runtime: Mutex<Option<Handle>>,
}

impl Looked {
    pub(super) fn new(runtime: Handle) -> Self {
        Self { subjects: Mutex::default(), looking: Arc::default(), runtime: Mutex::new(Some(runtime)) }
    }

    /// Looks no more on behalf of others, and lets go of the runtime.
    pub(super) fn end(&self) {
        self.runtime.lock().take();
    }

    fn note(&self, subject: &Subject) {
        let mut subjects = self.subjects();
        if subjects.get(&subject.server) != Some(subject) {
            subjects.insert(subject.server.clone(), subject.clone());
        }
    }

    fn get(&self, server: &str) -> Option<Subject> {
        self.subjects().get(server).cloned()
    }

    fn subjects(&self) -> MutexGuard<'_, HashMap<String, Subject>> {
        self.subjects.lock()
    }
}

impl Core {
    /// Returns how far the approval of a server holds.
    pub(super) fn standing_by(&self, server: &ServerDefinition, look: Look) -> Result<Standing> {
        match look {
            Look::Now => self.standing(server),
            Look::Last => self.trust.approvals.known_standing(&server.name, self.trust.looked.get(&server.name).as_ref()),
        }
    }

    /// Returns how far the approval on disk holds.
    pub(super) fn standing(&self, server: &ServerDefinition) -> Result<Standing> {
        self.trust.approvals.standing_of(&server.name, |approval| self.judged(server, approval))
    }

    /// Returns the subject by which an approval is judged. A program is read only where it is pinned, and only for an approved command.
    pub(super) fn judged(&self, server: &ServerDefinition, approval: &Approval) -> Subject {
        let mut subject = self.subject(server);
        if server.pin_executable && approval.command_digest == subject.digest {
            subject.executable = self.executable(server);
        }
        self.trust.looked.note(&subject);
        subject
    }

    /// The digest of what an approval of the server is about.
    pub(super) fn digest_by(&self, server: &ServerDefinition, look: Look) -> String {
        match look {
            Look::Now => self.subject(server).digest,
            Look::Last => self.trust.looked.get(&server.name).map(|subject| subject.digest).unwrap_or_default(),
        }
    }

    /// Looks at all servers, so that their standing is known. An approval file that cannot be read is an error for whoever asks later.
    pub(super) fn look_at_all(&self) {
        for server in self.registry.servers() {
            let _ = self.standing(&server);
        }
    }

    /// Looks at all servers on another thread, once for all who ask meanwhile: another process may have changed something.
    pub(super) fn look_soon(self: &Arc<Self>) {
        let Some(runtime) = self.trust.looked.runtime.lock().clone() else { return };
        let Ok(looking) = Arc::clone(&self.trust.looked.looking).try_lock_owned() else { return };
        let core = Arc::clone(self);
        drop(runtime.spawn_blocking(move || {
            if core.check_open().is_ok() {
                core.look_at_all();
            }
            drop(looking);
        }));
    }

    /// Looks soon where an answer was given by what was found last, so that the next one is newer.
    pub(super) fn asked_by(self: &Arc<Self>, look: Look) {
        if look == Look::Last {
            self.look_soon();
        }
    }
}
