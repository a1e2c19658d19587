//! The machine as it is without the links in projects that lead out of them.

use std::path::{Path, PathBuf};

use super::mounts::Mount;
use super::own_files::system_elsewhere;
use super::paths::{Entry, Identity, Kind, Lookup, is_system};
use crate::files::{Projects, follow};

/// The machine on which this process runs, in which nothing exists behind a link that leads out of a project ([`Projects::led_out`]).
pub(crate) struct WithinProjects<'a, L> {
    pub(crate) projects: &'a Projects,
    pub(crate) lookup: &'a L,
}

impl<L: Lookup> WithinProjects<'_, L> {
    fn is_out(&self, path: &Path) -> bool {
        self.projects.led_out(path).is_some()
    }
}

impl<L: Lookup> Lookup for WithinProjects<'_, L> {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        self.lookup.real(path).filter(|_| !self.is_out(path))
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.lookup.link(path).filter(|_| !self.is_out(path))
    }

    fn kind(&self, path: &Path) -> Option<Kind> {
        self.lookup.kind(path).filter(|_| !self.is_out(path))
    }

    fn interpreter(&self, path: &Path) -> Option<Vec<String>> {
        self.lookup.interpreter(path).filter(|_| !self.is_out(path))
    }

    fn is_program(&self, path: &Path) -> bool {
        self.lookup.is_program(path) && !self.is_out(path)
    }

    fn identity(&self, path: &Path) -> Option<Identity> {
        self.lookup.identity(path)
    }

    fn entries(&self, folder: &Path, most: usize) -> Option<Vec<Entry>> {
        self.lookup.entries(folder, most).filter(|_| !self.is_out(folder))
    }

    fn is_unknown(&self, path: &Path) -> bool {
        self.lookup.is_unknown(path) && !self.is_out(path)
    }

    fn is_shared(&self, path: &Path) -> bool {
        self.lookup.is_shared(path)
    }

    fn mounts(&self) -> Vec<Mount> {
        self.lookup.mounts()
    }
}

/// Returns whether a link leads from elsewhere to a file that each box has as a part of the system. Whoever makes such a link must not stop all
/// boxes, or take a library away from them: this holds for links outside of projects too.
pub(crate) fn leads_to_system(path: &Path, lookup: &impl Lookup) -> bool {
    let followed = follow(path, |at| lookup.link(at));
    !followed.links.is_empty() && !is_system(path) && is_of_system(&followed.place, lookup)
}

/// Returns whether a place is one that each box has as a part of the system. Some paths of the system are links to other places.
pub(crate) fn is_of_system(place: &Path, lookup: &impl Lookup) -> bool {
    is_system(place) || system_elsewhere(lookup).iter().any(|(_, real)| place.starts_with(real))
}
