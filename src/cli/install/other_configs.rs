//! Finds servers in other configs of the host, which an installation does not change.

use std::path::PathBuf;

use super::TargetConfig;
use crate::cli::files;
use crate::cli::import::{converted, found_in};
use crate::cli::session::Session;
use crate::config::{config_paths, starts_gateway};

/// Returns the host's other configs that contain servers, with the names of the servers. Skips a config that cannot be read.
pub(super) fn servers(session: &Session, target_config: &TargetConfig) -> Vec<(String, Vec<String>)> {
    let host = &target_config.host;
    let workspace = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let folder = workspace.display().to_string();
    // In the user's config, Claude Code also has servers of single projects.
    let own = target_config.servers().unwrap_or_default();
    let own: Vec<String> = own.iter().map(|(name, entry)| converted(host.program, name, entry).name).collect();
    let mut all = Vec::new();
    for (program, path) in config_paths(&[host.program], &session.context.environment, &workspace) {
        let Ok(Some(text)) = files::read_config(&path) else { continue };
        let Ok((found, _inputs)) = found_in(program, &text, Some(&folder)) else { continue };
        let found = found.into_iter().filter(|found| !starts_gateway(&found.entry)).map(|found| found.name);
        let names: Vec<String> = found.filter(|name| path != host.path || !own.contains(name)).collect();
        if !names.is_empty() {
            all.push((path.display().to_string(), names));
        }
    }
    all
}
