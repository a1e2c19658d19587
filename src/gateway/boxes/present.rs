//! Sentences for the approval about what a box has on this machine now, in addition to what the config names.

use super::programs::Outside;
use crate::boxes::{Disk, present};
use crate::config::{BoxDefinition, ServerDefinition};
use crate::gateway::core::Core;
use crate::trust::Subject;

impl Core {
    /// Returns sentences about the folders of the program and its packages, about sockets in given folders, and about what the box can change
    /// that runs outside. Reads the disk. Returns no sentences if the program was not found, or if a value that is still missing decides what
    /// the box has.
    pub(super) fn present_in_box(&self, server: &ServerDefinition, subject: &Subject) -> Vec<String> {
        let (Some(BoxDefinition::On(settings)), Some(_)) = (&server.in_box, &subject.executable) else { return Vec::new() };
        let kept = || self.kept_from(&server.name);
        let outside = Outside { files: &self.own_files(server), kept: &kept };
        self.with_box_input(server, settings, &outside, |request, _| present(request, &Disk)).unwrap_or_default()
    }
}
