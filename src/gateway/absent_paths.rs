//! Warns about files that a server is to create where its box has nothing.

use super::core::Core;
use crate::blocking::blocking;
use crate::boxes::{Disk, absent_arguments};
use crate::client::Target;
use crate::config::ServerDefinition;
use crate::error::Result;

impl Core {
    /// Sends a warning for each path in the arguments at which nothing exists. The approval request shows such a path, but a box has only
    /// what exists.
    pub(super) async fn warn_of_absent_paths(&self, server: &ServerDefinition, target: &Target) -> Result<()> {
        let Target::Process { command, in_box: Some(in_box), .. } = target else { return Ok(()) };
        let (arguments, given) = (command.arguments.clone(), in_box.contents.given.clone());
        for path in blocking(move || Ok(absent_arguments(&arguments, &given, &Disk))).await? {
            let (name, path) = (&server.name, path.display());
            self.events.warn(format!(
                "nothing exists at {path}, an argument of server \"{name}\", so its box does not have it. If the server is to create it, name the folder in box.write of its entry"
            ));
        }
        Ok(())
    }
}
