//! Boxes: the files and hosts that a server's process may use. [`contents`] decides what a box contains, without effects on the machine.
//! [`build`] is the program `hyperlight-mcp-box`, which makes the box and starts the server in it. [`border`] connects allowed hosts, in
//! the gateway's process.

mod absent;
pub mod border;
mod budget;
pub mod build;
mod changes;
mod code;
pub(crate) mod contents;
mod kept;
mod links;
pub(crate) mod machine;
mod mounts;
mod order;
mod other_names;
mod own_files;
pub(crate) mod paths;
mod present;
mod registry;
mod running;
pub(crate) mod sentences;
mod services;
mod shown;
mod sockets;
mod words;

pub use absent::{absent_arguments, bare_names, variables_outside, withheld_arguments};
pub use changes::{ChangeableBy, changeable_by};
pub use code::{Code, Command, Variable, code, is_fixed_program};
pub use contents::{BoxInput, Decided, Examined, HOME, Places, contents, decide, examine, places};
pub use kept::{Change, Changes, Effect, Kept, Owner, changes_by_writing};
pub(crate) use links::{WithinProjects, is_of_system, leads_to_system};
pub(crate) use machine::PROBE;
pub use machine::{BoxPart, BoxPartName, BoxesReport};
pub use mounts::Mount;
pub(crate) use mounts::OtherMounts;
pub use order::{Access, Ceilings, Contents, Given, Link, Network, Order, Report};
pub use own_files::{FileOwner, FileTrust, OwnFile, OwnFileUse};
pub(crate) use own_files::{is_hidden_if_given, place_of};
pub use paths::{Disk, Entry, Identity, Kind, Lookup};
pub use present::{Present, present};
pub use registry::{Registry, Runner, RunnerSettings, registry};
pub(crate) use running::{check_secret, check_variables, may_write_other_name, sharing};
pub use sentences::sentences;
pub use services::{Service, services, socket_folders};
pub use shown::OtherServer;
