//! The steps in which a box is made, and the messages for a failed step.

use rustix::io::Errno;

/// A step of the set-up. If one fails, nothing is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    ReadOrder,
    MakeGroup,
    Namespaces,
    UserMap,
    StartInit,
    TieInit,
    PrivateMounts,
    MakeNetwork,
    OpenBorder,
    HandOver,
    OpenPaths,
    MakeRoot,
    PlaceFolders,
    MakeDevices,
    WriteFiles,
    HideFolders,
    MountProcesses,
    EnterRoot,
    NameHost,
    DropCapabilities,
    ForbidPrivileges,
    WatchHome,
    StartServer,
    EnterGroup,
    EnterFolder,
    LimitResources,
    CloseDescriptors,
    LimitFiles,
    FilterCalls,
    Report,
}

impl Step {
    /// All steps, in their order.
    pub const ALL: [Self; 30] = [
        Self::ReadOrder,
        Self::MakeGroup,
        Self::Namespaces,
        Self::UserMap,
        Self::StartInit,
        Self::TieInit,
        Self::PrivateMounts,
        Self::MakeNetwork,
        Self::OpenBorder,
        Self::HandOver,
        Self::OpenPaths,
        Self::MakeRoot,
        Self::PlaceFolders,
        Self::MakeDevices,
        Self::WriteFiles,
        Self::HideFolders,
        Self::MountProcesses,
        Self::EnterRoot,
        Self::NameHost,
        Self::DropCapabilities,
        Self::ForbidPrivileges,
        Self::WatchHome,
        Self::StartServer,
        Self::EnterGroup,
        Self::EnterFolder,
        Self::LimitResources,
        Self::CloseDescriptors,
        Self::LimitFiles,
        Self::FilterCalls,
        Self::Report,
    ];

    /// Returns the description of the step for errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOrder => "read its order",
            Self::MakeGroup => "make its cgroup",
            Self::Namespaces => "make namespaces",
            Self::UserMap => "map the user",
            Self::StartInit => "start its first process",
            Self::TieInit => "tie its first process to the process that started it",
            Self::PrivateMounts => "separate its mounts",
            Self::MakeNetwork => "make its network",
            Self::OpenBorder => "open the sockets of its network",
            Self::HandOver => "hand over the sockets of its network",
            Self::OpenPaths => "open its files",
            Self::MakeRoot => "make its root folder",
            Self::PlaceFolders => "place its folders",
            Self::MakeDevices => "make its devices",
            Self::WriteFiles => "write its tables of users and names",
            Self::HideFolders => "hide folders",
            Self::MountProcesses => "mount its process table",
            Self::EnterRoot => "enter its root folder",
            Self::NameHost => "set its host name",
            Self::DropCapabilities => "drop capabilities",
            Self::ForbidPrivileges => "forbid new privileges",
            Self::WatchHome => "watch its private home",
            Self::StartServer => "start the server's process",
            Self::EnterGroup => "enter its cgroup",
            Self::EnterFolder => "enter the working folder",
            Self::LimitResources => "limit resources",
            Self::CloseDescriptors => "close descriptors",
            Self::LimitFiles => "limit files with Landlock",
            Self::FilterCalls => "filter system calls",
            Self::Report => "report that it is ready",
        }
    }

    /// Returns the remedy for a failure of this step, if one is known.
    fn remedy(self, error: Option<Errno>) -> &'static str {
        match self {
            Self::Namespaces if error == Some(Errno::NOSPC) => {
                "This machine allows no user namespaces, or all that it allows are in use: set the sysctl user.max_user_namespaces higher"
            }
            Self::Namespaces | Self::UserMap | Self::PrivateMounts | Self::MakeRoot => {
                "This machine does not let this user make namespaces: set the sysctl kernel.unprivileged_userns_clone to 1 (Debian) or \
                 kernel.apparmor_restrict_unprivileged_userns to 0 (Ubuntu), or start the container with permission for user namespaces"
            }
            Self::MountProcesses => {
                "In a container that hides parts of /proc, a box cannot have a process table: start it with an unmasked /proc"
            }
            Self::MakeGroup => {
                "Start the agent in a cgroup that is its own: systemd-run --user --scope -p Delegate=yes -p CPUWeight=100 COMMAND (for root, \
                 without --user), or leave cpuPercent out"
            }
            Self::LimitFiles => "Boxes need Landlock: Linux 5.13 or later, with landlock among the security modules (lsm=)",
            _ => "",
        }
    }
}

/// A step that failed.
#[derive(Debug)]
pub struct Failure {
    pub step: Step,
    pub problem: String,
    /// The remedy. Empty if nothing is known.
    pub remedy: &'static str,
    /// The error of the system call that failed.
    pub error: Option<Errno>,
}

impl Failure {
    pub(super) fn new(step: Step, problem: impl Into<String>) -> Self {
        Self { step, problem: problem.into(), remedy: "", error: None }
    }

    /// Returns the failure of a system call.
    pub(super) fn of(step: Step, what: &str, error: Errno) -> Self {
        let error_text = std::io::Error::from(error);
        Self { step, problem: format!("{what}: {error_text}"), remedy: step.remedy(Some(error)), error: Some(error) }
    }

    /// Returns the failure of something that the machine does not have.
    pub(super) fn missing(step: Step, what: impl std::fmt::Display) -> Self {
        Self { step, problem: what.to_string(), remedy: step.remedy(None), error: None }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { step: _, problem, remedy, error: _ } = self;
        if remedy.is_empty() { formatter.write_str(problem) } else { write!(formatter, "{problem}. {remedy}") }
    }
}

pub(super) type Outcome<T> = Result<T, Failure>;

/// Adds the step to errors of system calls.
pub(super) trait At<T> {
    fn at(self, step: Step, what: &str) -> Outcome<T>;
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, step: Step, what: &str) -> Outcome<T> {
        self.map_err(|error| Failure::of(step, what, error))
    }
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, step: Step, what: &str) -> Outcome<T> {
        self.map_err(|error| match Errno::from_io_error(&error) {
            Some(error) => Failure::of(step, what, error),
            None => Failure::missing(step, format!("{what}: {error}")),
        })
    }
}

/// The step at which a test lets the set-up fail.
#[derive(Debug, Default)]
pub(super) struct Fault(Option<String>);

impl Fault {
    /// Returns the fault that an order asks for. Only tests need one, so builds for release refuse an order that has it.
    pub(super) fn new(fails_at: Option<String>) -> Outcome<Self> {
        match fails_at {
            Some(_) if !cfg!(debug_assertions) => Err(Failure::new(Step::ReadOrder, "it names a step that should fail")),
            fails_at => Ok(Self(fails_at)),
        }
    }

    /// Begins a step. Fails if this is the step that should fail.
    pub(super) fn begin(&self, step: Step) -> Outcome<()> {
        if self.0.as_deref() == Some(step.name()) { Err(Failure::of(step, "test", Errno::IO)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = Step::ALL.iter().map(|step| step.name()).collect();
        assert_eq!(names.len(), Step::ALL.len());
    }

    #[test]
    fn what_the_machine_cannot_do_has_its_remedy() {
        let said = |step, error| Failure::of(step, "x", error).to_string();
        assert!(said(Step::Namespaces, Errno::NOSPC).contains("user.max_user_namespaces"));
        assert!(said(Step::Namespaces, Errno::PERM).contains("unprivileged_userns_clone"));
        assert!(said(Step::MakeRoot, Errno::ACCESS).contains("apparmor_restrict"));
        assert!(said(Step::MountProcesses, Errno::PERM).contains("/proc"));
        assert!(Failure::missing(Step::LimitFiles, "x").to_string().contains("Landlock"));
    }
}
