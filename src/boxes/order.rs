//! The order that the gateway sends to the program `hyperlight-mcp-box` over its standard input, and the program's answer on its standard
//! output.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The access that the process has to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    Read,
    Write,
}

/// The treatment of a path that leads through symbolic links, or that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Link {
    /// A folder of the system: its links are kept, and it need not exist.
    System,
    /// A path that the config names, or that was found. A link in it is an error, because a program that can change the link would decide
    /// what is in the box.
    Refused,
}

/// A file or folder of the machine that exists in the box, at the same path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    pub path: PathBuf,
    pub access: Access,
    pub link: Link,
}

/// The limits of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Ceilings {
    /// Maximum memory of all processes together, in bytes, without files that they map.
    pub memory_bytes: u64,
    pub processes: u64,
    /// Maximum number of threads of all processes together.
    pub threads: u64,
    /// Maximum number of files that one process may have open.
    pub open_files: u64,
    /// Maximum size of one file, in bytes.
    pub file_bytes: u64,
    /// Size of `/tmp`, which is in memory, in bytes.
    pub temporary_bytes: u64,
    /// Maximum size of all files in the private home, in bytes.
    pub home_bytes: u64,
    /// Maximum processor time of all processes together, in percent of one processor. `None` means no limit.
    pub cpu_percent: Option<u64>,
}

/// The network of a box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub enum Network {
    /// The network of the machine.
    Shared,
    /// A network without a route to the outside: every address is local. The gateway answers connections to these ports, and all name
    /// queries.
    Own { ports: Vec<u16> },
}

/// Everything that exists in a box, and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Contents {
    /// Files and folders, each after those that contain it.
    pub given: Vec<Given>,
    /// Folders of the machine that are empty in the box, although a given folder contains them, and files that cannot be read, written or
    /// replaced there.
    pub hidden: Vec<PathBuf>,
    /// The folder of the machine that becomes the process's home.
    pub home: PathBuf,
    pub network: Network,
    /// True if the processes may make their own namespaces, as a browser does for its sandbox.
    pub is_nested: bool,
    pub ceilings: Ceilings,
}

/// The order that `hyperlight-mcp-box` reads from its standard input: this value as JSON, after its length in four bytes.
///
/// This input is a Unix socket. After the order comes one byte, together with the descriptor of the pipe that becomes the server's standard
/// input. The program answers with one byte, together with the sockets of the border. Then the socket is closed, so the server cannot use
/// it.
// It has no `Debug`, because the environment contains secrets in plain text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Order {
    pub contents: Contents,
    pub program: PathBuf,
    /// The name of the program that the process gets (`argv[0]`).
    pub name: String,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub working_directory: PathBuf,
    /// The step that fails, for tests. Builds for release refuse an order that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails_at: Option<String>,
}

/// Maximum length of an order in bytes. The system's own limit for arguments and environment is lower.
pub(super) const MAX_ORDER_BYTES: usize = 32 << 20;

impl Order {
    /// Returns the bytes for the program's standard input.
    ///
    /// # Errors
    /// A sentence for a path that is not Unicode, or an order that is too long.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; 4];
        serde_json::to_writer(&mut bytes, self).map_err(|error| error.to_string())?;
        let length = bytes.len() - 4;
        let short = u32::try_from(length).ok().filter(|_| length <= MAX_ORDER_BYTES);
        let short = short.ok_or("the command and its environment are too long for a box")?;
        bytes[..4].copy_from_slice(&short.to_be_bytes());
        Ok(bytes)
    }
}

/// The one line that `hyperlight-mcp-box` writes to its standard output before the server can write there.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "box", rename_all = "camelCase")]
pub enum Report {
    /// The box is complete. The server starts now.
    Ready,
    /// Nothing was started.
    Failed { step: String, problem: String },
}
