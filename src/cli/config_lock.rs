//! The lock under which commands change the config of hyperlight-mcp and the configs of hosts.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::files::{lock_within, private_folder};

/// Time to wait for another command that changes a config.
const LOCK_TIME: Duration = Duration::from_secs(5);
const LOCK: &str = "config.lock";

/// Locks the configs until the returned file is dropped. A command that writes a config reads it again under this lock, and never asks a
/// person meanwhile, so that it loses no change of another command. There is one lock for all configs, because `install` writes two of them:
/// two commands that each hold one of two locks could wait for each other.
pub(super) fn lock_configs(state: &Path) -> io::Result<File> {
    lock_within(&private_folder(state)?.path.join(LOCK), LOCK_TIME)
}
