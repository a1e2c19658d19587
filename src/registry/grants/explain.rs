//! Explains in a sentence why an agent may or may not use something. These sentences are only for the operator.

use serde::Serialize;

use super::{Access, Grants, Patterns};
use crate::config::{DefaultGrant, Item, ServerRef};
use crate::text::NextCommand;

/// The answer to the question whether an agent may use an item, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub granted: bool,
    /// The reason, as one sentence for the operator.
    pub reason: String,
}

impl Grants {
    /// Explains whether an agent may use an item of a server. `name` has the same meaning as in [`Grants::access`].
    #[must_use]
    pub fn explain(&self, next_command: &NextCommand, name: Option<&str>, server: ServerRef<'_>, item: Item<'_>) -> Verdict {
        let what = format!("{}/{item}", server.name);
        let verdict = |granted, reason: String| Verdict { granted, reason };
        if name.is_some() && server.added_by == name {
            return verdict(true, format!("it has added the server \"{}\" itself", server.name));
        }
        let access = self.access(name);
        let Some(toolboxes) = name.and_then(|name| self.toolboxes_of(name)) else {
            let why = match self.default_grant() {
                DefaultGrant::All => "gets everything that is approved and enabled",
                DefaultGrant::Nothing => "gets nothing",
            };
            let granted = access == Access::All && server.added_by.is_none();
            let but = if granted { String::new() } else { of_added(server) };
            return verdict(granted, format!("it has no grant, and an agent without one {why} (defaultGrant){but}"));
        };
        if let Some(missing) = toolboxes.iter().find(|toolbox| self.toolbox(toolbox).is_none()) {
            return verdict(false, format!("its toolbox \"{missing}\" does not exist, so it has nothing"));
        }
        let Access::Only(patterns) = &access else {
            return verdict(true, "it may use everything".to_owned());
        };
        let Some(pattern) = patterns.deciding(server, item) else {
            let remedy = self.remedy(next_command, name, server, item);
            return verdict(false, format!("no pattern of its toolboxes matches {what}{remedy}{}", of_added(server)));
        };
        let does = if pattern.denies() { "denies" } else { "allows" };
        let of = self.owner_of(toolboxes, pattern.as_str());
        verdict(!pattern.denies(), format!("the pattern \"{}\" of the toolbox \"{of}\" {does} {what}", pattern.as_str()))
    }

    /// Returns the end of a sentence that names the toolboxes which would allow an item.
    fn remedy(&self, next_command: &NextCommand, name: Option<&str>, server: ServerRef<'_>, item: Item<'_>) -> String {
        let allows = |toolbox: &&str| {
            let patterns = Patterns::new(self.toolbox(toolbox).unwrap_or_default().to_vec());
            patterns.allows(server, item)
        };
        let having: Vec<_> = self.toolbox_names().into_iter().filter(allows).map(|toolbox| format!("\"{toolbox}\"")).collect();
        let agent = name.unwrap_or("NAME");
        let how = match (name.and_then(|name| self.place_of_agent(name)), having.first()) {
            (Some(place), _) => format!("; its toolboxes are those of {place}"),
            (None, Some(toolbox)) => {
                format!("; to grant it: {}", next_command.with(&format!("grant {agent} {}", toolbox.trim_matches('"'))))
            }
            (None, None) => String::new(),
        };
        if having.is_empty() { format!("; no toolbox has it{how}") } else { format!("; the toolbox {} has it{how}", having.join(" or ")) }
    }

    /// Returns the last toolbox in a list that contains a pattern.
    fn owner_of<'a>(&self, toolboxes: &'a [String], pattern: &str) -> &'a str {
        let has = |toolbox: &&String| self.toolbox(toolbox).unwrap_or_default().iter().any(|own| own.as_str() == pattern);
        toolboxes.iter().rev().find(has).map_or("", String::as_str)
    }
}

/// Returns the end of a sentence that names the patterns which can grant a server that an agent has added to other agents.
fn of_added(server: ServerRef<'_>) -> String {
    match server.added_by {
        Some("") => format!("; the operator's agent has added \"{0}\", so only patterns that begin with agent::{0}/ grant it", server.name),
        Some(agent) => {
            format!(
                "; the agent \"{agent}\" has added \"{0}\", so only patterns that begin with agent:{agent}:{0}/ grant it to others",
                server.name
            )
        }
        None => String::new(),
    }
}
