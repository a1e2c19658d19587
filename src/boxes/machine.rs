//! The parts of a box that this machine supports. The program `hyperlight-mcp-box` tries each of them ([`super::build`]).

use serde::{Deserialize, Serialize};

/// The argument that makes the program `hyperlight-mcp-box` try each part and print the [`BoxesReport`].
pub(crate) const PROBE: &str = "--probe";

/// A feature of the kernel that boxes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BoxPartName {
    /// User, mount, PID, IPC, UTS and cgroup namespaces of this user.
    UserNamespaces,
    /// Network namespaces of this user, for a box without the machine's network.
    NetworkNamespaces,
    /// A root folder and a process table of the box's own.
    Mounts,
    /// Rules for files, which apply even if a mount is lost.
    Landlock,
    /// Landlock's rules for signals and abstract sockets (ABI 6). Without them, a box with the machine's network reaches the abstract
    /// sockets of the machine.
    Scopes,
    /// The filter of system calls (seccomp).
    SystemCallFilter,
    /// A cgroup for limits that the kernel enforces. Without it, memory and processes are counted, and `cpuPercent` is refused.
    Cgroup,
}

impl BoxPartName {
    /// Returns the name as it is shown to a person.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::UserNamespaces => "user namespaces",
            Self::NetworkNamespaces => "network namespaces",
            Self::Mounts => "mounts",
            Self::Landlock => "Landlock",
            Self::Scopes => "Landlock's scopes",
            Self::SystemCallFilter => "seccomp",
            Self::Cgroup => "cgroup",
        }
    }

    /// Returns whether every box needs the part.
    #[must_use]
    pub fn is_needed(self) -> bool {
        match self {
            Self::UserNamespaces | Self::NetworkNamespaces | Self::Mounts | Self::Landlock | Self::SystemCallFilter => true,
            Self::Scopes | Self::Cgroup => false,
        }
    }
}

/// A part, with the result of the attempt to use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoxPart {
    pub name: BoxPartName,
    pub available: bool,
    /// For Landlock, its version. For a cgroup, the resources that it can limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The reason why the machine does not have the part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The action with which the user can solve the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The report of `boxes()`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoxesReport {
    /// True if this machine can make boxes with all their features.
    pub available: bool,
    /// True if Landlock and the filter of system calls can enforce a box without namespaces.
    pub landlock_alone: bool,
    /// All parts. Those that every box needs come first. Empty if the program that makes boxes cannot be run.
    pub parts: Vec<BoxPart>,
    /// The reason why the program that makes boxes cannot be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl BoxesReport {
    /// Returns the report. `shows_processes` is true if the process table hides no process. Otherwise, only namespaces make it possible to
    /// end all processes of a box.
    pub(crate) fn of(parts: Vec<BoxPart>, shows_processes: bool) -> Self {
        let has = |name| parts.iter().any(|part| part.available && part.name == name);
        Self {
            available: parts.iter().all(|part| part.available || !part.name.is_needed()),
            landlock_alone: shows_processes
                && [BoxPartName::Landlock, BoxPartName::Scopes, BoxPartName::SystemCallFilter].into_iter().all(has),
            parts,
            problem: None,
        }
    }

    pub(crate) fn without_program(problem: String) -> Self {
        Self { available: false, landlock_alone: false, parts: Vec::new(), problem: Some(problem) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_need_no_cgroup_and_all_namespaces() {
        let part = |name, available| BoxPart { name, available, detail: None, problem: None, remedy: None };
        let report = |cgroup, network| {
            BoxesReport::of(vec![part(BoxPartName::NetworkNamespaces, network), part(BoxPartName::Cgroup, cgroup)], true).available
        };
        let alone = |scopes, shows_processes| {
            let parts = [(BoxPartName::Landlock, true), (BoxPartName::SystemCallFilter, true), (BoxPartName::Scopes, scopes)];
            BoxesReport::of(parts.map(|(name, available)| part(name, available)).into(), shows_processes).landlock_alone
        };
        assert!(alone(true, true) && !alone(false, true) && !alone(true, false));
        assert!(report(true, true) && report(false, true) && !report(true, false));
    }
}
