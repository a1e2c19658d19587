//! Sentences for the approval about what a box has on this machine now, in addition to what the config names.

use std::collections::BTreeMap;

use super::programs::{Outside, kept_among};
use crate::boxes::{Disk, decide, present, sentences_of_other};
use crate::config::{BoxDefinition, ServerDefinition, Transport};
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
    /// Returns sentences about what the boxes of other servers, approved or not, can change that a server runs. They come from the settings of
    /// these servers, so they do not depend on whether these run. Reads the disk.
    pub(super) fn changeable_by_others(&self, server: &ServerDefinition) -> Vec<String> {
        if !matches!(server.transport, Transport::Stdio { .. }) {
            return Vec::new();
        }
        let (own, others): (Vec<_>, Vec<_>) = self.code_of_servers().into_iter().partition(|(known, _)| known.name == server.name);
        let by_box: BTreeMap<_, _> = others
            .iter()
            .filter_map(|(other, _)| {
                let Some(BoxDefinition::On(settings)) = &other.in_box else { return None };
                let kept = || kept_among(&other.name, &own);
                let outside = Outside { files: &[], kept: &kept };
                // A box that cannot be made changes nothing. Whether a file of the gateway prevents it is not looked at.
                let decided = self.with_box_input(other, settings, &outside, |request, _| decide(request, &Disk))?.ok()?;
                Some((other.name.clone(), decided.changes.of_servers))
            })
            .collect();
        sentences_of_other(&by_box, &server.name)
    }
}
