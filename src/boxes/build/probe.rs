//! Finds out which parts of a box the machine has. Each part is tried in a separate process, because an attempt cannot be undone.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};

use super::group::Group;
use super::quota::SystemV;
use super::restrict::Hold;
use super::step::{At as _, Failure, Fault, Outcome, Step};
use super::{alone, filter, limits, make_namespaces, restrict, root};
use crate::boxes::contents::HOME;
use crate::boxes::machine::{BoxPart, BoxPartName, BoxesReport};
use crate::boxes::order::{Ceilings, Contents, Network};

/// The first version of Landlock with scopes: rules for signals and abstract sockets.
const SCOPES: i64 = 6;

/// Tries all parts, and returns the results.
pub(super) fn report() -> BoxesReport {
    let abi = restrict::landlock_version();
    let scopes = if abi >= SCOPES {
        Ok(None)
    } else {
        let problem = format!("the kernel has version {abi} of Landlock, and scopes came with version {SCOPES} (Linux 6.12)");
        Err(Tried {
            problem,
            remedy: "use a newer kernel, or do not give servers the machine's network: set network to \"none\" or a list of hosts"
                .to_owned(),
        })
    };
    let own = Network::Own { ports: Vec::new() };
    let nothing = |outcome: Result<(), Tried>| outcome.map(|()| None);
    let parts = vec![
        part(BoxPartName::UserNamespaces, nothing(in_child(|| make_namespaces(&Fault::default(), &Network::Shared).map(drop)))),
        part(BoxPartName::NetworkNamespaces, nothing(in_child(|| make_namespaces(&Fault::default(), &own).map(drop)))),
        part(BoxPartName::Mounts, nothing(in_child(make_root))),
        part(BoxPartName::Landlock, in_child(limit_files).map(|()| Some(format!("version {abi}")))),
        part(BoxPartName::Scopes, scopes),
        part(BoxPartName::SystemCallFilter, nothing(in_child(filter_calls))),
        part(BoxPartName::Cgroup, make_group().map(Some)),
    ];
    BoxesReport::of(parts, alone::shows_processes())
}

fn part(name: BoxPartName, outcome: Result<Option<String>, Tried>) -> BoxPart {
    match outcome {
        Ok(detail) => BoxPart { name, available: true, detail, problem: None, remedy: None },
        Err(Tried { problem, remedy }) => {
            let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
            BoxPart { name, available: false, detail: None, problem: Some(problem), remedy }
        }
    }
}

/// The reason why an attempt did not work.
#[derive(Serialize, Deserialize)]
pub(super) struct Tried {
    pub(super) problem: String,
    remedy: String,
}

impl From<Failure> for Tried {
    fn from(failure: Failure) -> Self {
        let Failure { step, problem, remedy, error: _ } = failure;
        Self { problem: format!("could not {}: {problem}", step.name()), remedy: remedy.to_owned() }
    }
}

/// Makes an attempt in a child process.
pub(super) fn in_child(attempt: impl FnOnce() -> Outcome<()>) -> Result<(), Tried> {
    let (reading, writing) = pipe_with(PipeFlags::CLOEXEC).at(Step::StartInit, "pipe")?;
    // SAFETY: this process has one thread, so the child may do whatever this one may.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).at(Step::StartInit, "fork")?,
        0 => {
            drop(reading);
            let outcome = attempt().map_err(Tried::from);
            let text = serde_json::to_vec(&outcome).unwrap_or_default();
            // If the write fails, the parent reads nothing and counts this as a failure.
            let _ = File::from(writing).write_all(&text);
            std::process::exit(0)
        }
        child => {
            drop(writing);
            let mut text = Vec::new();
            let read = File::from(reading).read_to_end(&mut text).at(Step::StartInit, "pipe");
            let _ = Pid::from_raw(child).map(|child| waitpid(Some(child), WaitOptions::empty()));
            read?;
            let ended = |error: serde_json::Error| Tried { problem: format!("the attempt ended early: {error}"), remedy: String::new() };
            serde_json::from_slice(&text).unwrap_or_else(|error| Err(ended(error)))
        }
    }
}

/// Makes the root folder of a box that contains only a home. This home is the folder of this program.
fn make_root() -> Outcome<()> {
    let fault = Fault::default();
    let users = make_namespaces(&fault, &Network::Shared)?;
    let program = std::env::current_exe().at(Step::OpenPaths, "/proc/self/exe")?;
    let home = program.parent().unwrap_or(Path::new("/")).to_owned();
    let contents =
        Contents { given: Vec::new(), hidden: Vec::new(), home, network: Network::Shared, is_nested: false, ceilings: ceilings() };
    // The process table belongs to a PID namespace, which begins with the next process.
    let made = in_child(|| root::enter(&contents, Path::new(HOME), &fault, &users).map(drop));
    made.map_err(|Tried { problem, remedy }| Failure { step: Step::MakeRoot, problem, remedy: remedy.leak(), error: None })
}

fn limit_files() -> Outcome<()> {
    limits::forbid_privileges(&Fault::default())?;
    restrict::limit_files_of(&[], &Fault::default())
}

fn filter_calls() -> Outcome<()> {
    limits::forbid_privileges(&Fault::default())?;
    filter::apply(&Fault::default(), Hold::Namespaces(SystemV::Counted), true, false)
}

/// Makes a group with all limits that this machine supports. Returns the names of these limits.
fn make_group() -> Result<String, Tried> {
    try_group(&ceilings()).or_else(|failure| try_group(&Ceilings { cpu_percent: None, ..ceilings() }).map_err(|_| failure))
}

fn try_group(ceilings: &Ceilings) -> Result<String, Tried> {
    let none = || Tried { problem: "there is no cgroup that this user may write".to_owned(), remedy: String::new() };
    let group = Group::make(ceilings, &Fault::default())?.ok_or_else(none)?;
    let entered = in_child(|| group.enter());
    group.remove();
    let names: Vec<&str> = group.controllers().iter().map(|controller| controller.name()).collect();
    entered.map(|()| names.join(", "))
}

/// Limits that are too high to have an effect.
fn ceilings() -> Ceilings {
    let (memory_bytes, processes, threads, open_files, file_bytes) = (1 << 30, 64, 1_024, 1_024, 1 << 20);
    Ceilings {
        memory_bytes,
        processes,
        threads,
        open_files,
        file_bytes,
        temporary_bytes: 1 << 20,
        home_bytes: 1 << 30,
        cpu_percent: Some(100),
    }
}
