//! Warnings about paths in a server's arguments and variables that the server's box does not contain.

use super::core::Core;
use secrecy::ExposeSecret as _;

use crate::blocking::blocking;
use crate::boxes::{Disk, absent_arguments, bare_names, variables_outside, withheld_arguments};
use crate::client::Target;
use crate::config::{ResolvedCommand, ServerDefinition, Transport};
use crate::error::Result;
use crate::text::displayed;

impl Core {
    /// Sends a warning for each path or word of the entry that may be a path, but that the box does not contain. These are: a path in the
    /// arguments at which nothing exists; an existing path that no argument may give to a box; an argument that is only the name of
    /// something in the working folder; and a path in a variable of the entry. The approval request shows all of these, but none of them
    /// adds anything to the box.
    pub(super) async fn warn_of_absent_paths(&self, server: &ServerDefinition, target: &Target) -> Result<()> {
        let Target::Process { command, in_box: Some(in_box), .. } = target else { return Ok(()) };
        let (arguments, given) = (command.arguments.clone(), in_box.contents.given.clone());
        for path in blocking(move || Ok(absent_arguments(&arguments, &given, &Disk))).await? {
            let (name, path) = (&server.name, displayed(&path.to_string_lossy()));
            self.events.warn(format!(
                "nothing exists at {path}, an argument of server \"{name}\", so its box does not have it. If the server is to create it, name the folder in box.write of its entry"
            ));
        }
        let (arguments, given) = (command.arguments.clone(), in_box.contents.given.clone());
        for path in blocking(move || Ok(withheld_arguments(&arguments, &given, &Disk))).await? {
            let (name, path) = (&server.name, displayed(&path.to_string_lossy()));
            self.events.warn(format!(
                "the box of server \"{name}\" does not have {path}, one of its arguments. An argument cannot give a box your home, a folder of this gateway (such as stateDir), a folder above these, or a socket. Name a folder within it"
            ));
        }
        let (arguments, given) = (command.arguments.clone(), in_box.contents.given.clone());
        let folder = command.working_directory.clone();
        for word in blocking(move || Ok(bare_names(&arguments, &folder, &given, &Disk))).await? {
            let (name, word) = (&server.name, displayed(&word));
            self.events.warn(format!(
                "the argument {word} of server \"{name}\" is the name of something in its folder and not a path, so its box does not have it. If it is a path, write ./{word}"
            ));
        }
        let (variables, given) = (paths_in_variables(server, command), in_box.contents.given.clone());
        for (variable, path) in blocking(move || Ok(variables_outside(&variables, &given, &Disk))).await? {
            let (name, path) = (&server.name, displayed(&path.to_string_lossy()));
            self.events.warn(format!(
                "the variable {variable} of server \"{name}\" names {path}, which its box does not have. If the server needs it, name it, or the folder in which the server is to create it, in box.write or box.read of its entry"
            ));
        }
        Ok(())
    }
}

/// Returns the variables of the entry whose values may be paths.
fn paths_in_variables(server: &ServerDefinition, command: &ResolvedCommand) -> Vec<(String, String)> {
    let Transport::Stdio { environment: own, .. } = &server.transport else { return Vec::new() };
    let is_own = |name: &str| own.iter().any(|(own, _)| own == name);
    let values = command.environment.iter().map(|(name, value)| (name, value.expose_secret()));
    let paths = values.filter(|(name, value)| is_own(name) && (value.starts_with('/') || value.starts_with("file:")));
    paths.map(|(name, value)| (name.clone(), value.to_owned())).collect()
}
