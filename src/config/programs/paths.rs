//! Paths of the config files of other programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Program;
use crate::config::user_folders::{folder_of_variable, settings_folder, user_home};

/// Returns the possible config files of these programs, or of all programs if the list is empty. Files of the project come first.
pub(crate) fn config_paths(programs: &[Program], environment: &BTreeMap<String, String>, workspace: &Path) -> Vec<(Program, PathBuf)> {
    let (home, config) = (user_home(environment), settings_folder(environment));
    let codex = folder_of_variable(environment, "CODEX_HOME").unwrap_or_else(|| home.join(".codex"));
    let of = |program: Program| match program {
        Program::Vscode => {
            let user = ["Code", "Code - Insiders", "VSCodium"].map(|name| config.join(name).join("User"));
            let mut all = vec![workspace.join(".vscode/mcp.json")];
            all.extend(user.iter().flat_map(|folder| [folder.join("mcp.json"), folder.join("settings.json")]));
            all
        }
        Program::ClaudeDesktop => vec![config.join("Claude/claude_desktop_config.json")],
        Program::ClaudeCode => vec![workspace.join(".mcp.json"), home.join(".claude.json"), home.join(".claude/mcp.json")],
        Program::Cursor => vec![workspace.join(".cursor/mcp.json"), home.join(".cursor/mcp.json")],
        Program::Codex => vec![codex.join("config.toml")],
    };
    let all = if programs.is_empty() { &Program::ALL } else { programs };
    all.iter().flat_map(|program| of(*program).into_iter().map(|path| (*program, path))).collect()
}
