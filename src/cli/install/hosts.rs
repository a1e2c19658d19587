//! The configs of the five hosts: their paths, their formats, and the entry that starts `hyperlight-mcp serve`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::cli::Launch;
use crate::cli::args::{Program, Scope};
use crate::cli::edit::Shape;

/// The name of our entry in a host's config.
pub(super) const NAME: &str = "hyperlight-mcp";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A host's config file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostFile {
    pub(super) program: Program,
    pub(super) scope: Scope,
    pub(super) path: PathBuf,
    pub(super) shape: Shape,
    /// The folder of the project, for the scope `project`. Other people may have written its files.
    pub(super) project: Option<PathBuf>,
}

/// The reason why there is no config file to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoFile {
    /// The host has no config for projects.
    NoProjectScope,
    NoHome,
}

/// Returns the config file of a host. `exists` returns whether a folder exists.
pub(super) fn host_file(
    program: Program,
    scope: Scope,
    environment: &BTreeMap<String, String>,
    workspace: &Path,
    exists: impl Fn(&Path) -> bool,
) -> Result<HostFile, NoFile> {
    let shape = match program {
        Program::Vscode => Shape::Json("servers"),
        Program::ClaudeCode | Program::ClaudeDesktop | Program::Cursor => Shape::Json("mcpServers"),
        Program::Codex => Shape::Toml,
    };
    let (path, project) = match scope {
        Scope::User => (user_path(program, environment, exists).ok_or(NoFile::NoHome)?, None),
        Scope::Project => (workspace.join(project_path(program).ok_or(NoFile::NoProjectScope)?), Some(workspace.to_owned())),
    };
    Ok(HostFile { program, scope, path, shape, project })
}

fn project_path(program: Program) -> Option<&'static str> {
    match program {
        Program::Vscode => Some(".vscode/mcp.json"),
        Program::ClaudeCode => Some(".mcp.json"),
        Program::Cursor => Some(".cursor/mcp.json"),
        // Codex reads this file in trusted projects (developers.openai.com/codex/mcp).
        Program::Codex => Some(".codex/config.toml"),
        Program::ClaudeDesktop => None,
    }
}

fn user_path(program: Program, environment: &BTreeMap<String, String>, exists: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let set = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = |path: &str| set("HOME").map(|home| home.join(path));
    let config = || set("XDG_CONFIG_HOME").or_else(|| home(".config"));
    match program {
        Program::Vscode => {
            let folders = ["Code", "Code - Insiders", "VSCodium"].map(|name| config().map(|config| config.join(name).join("User")));
            let there = folders.iter().flatten().find(|folder| exists(folder)).cloned();
            there.or_else(|| folders[0].clone()).map(|folder| folder.join("mcp.json"))
        }
        Program::ClaudeDesktop => config().map(|config| config.join("Claude/claude_desktop_config.json")),
        Program::ClaudeCode => set("CLAUDE_CONFIG_DIR").map(|folder| folder.join(".claude.json")).or_else(|| home(".claude.json")),
        Program::Cursor => home(".cursor/mcp.json"),
        Program::Codex => set("CODEX_HOME").or_else(|| home(".codex")).map(|folder| folder.join("config.toml")),
    }
}

/// Options that the entry passes to `serve`.
#[derive(Debug, Clone, Default)]
pub(super) struct ServeOptions<'o> {
    pub(super) config: Option<&'o Path>,
    pub(super) state: Option<&'o Path>,
    pub(super) servers: Option<&'o [String]>,
    pub(super) agent: Option<&'o str>,
}

/// Returns the entry that starts `hyperlight-mcp serve`. All paths are absolute, because a host may have another `PATH` and another working
/// directory. npm may empty the cache folder of `npx`. So a copy of this package in that folder is started by `npx` itself, with the
/// version of the copy. `npx` is the path of npm's `npx-cli.js`.
///
/// A host starts the entry in its project. There, `npx` prefers a package of this name, and settings, that it finds in the project. A
/// server in a box that may write in the project could place these files, and they would run outside of the box. So `--prefix` names
/// another folder: the folder of `npx-cli.js`, because `npx` needs a folder that exists.
pub(super) fn entry(program: Program, launch: &Launch, npx: Option<&Path>, options: &ServeOptions) -> Json {
    let text = |path: &Path| path.display().to_string();
    let mut words = match npx.filter(|_| is_in_npx_cache(&launch.script)) {
        Some(npx) => {
            let folder = text(npx.parent().unwrap_or(Path::new("/")));
            vec![text(npx), "--prefix".to_owned(), folder, "--yes".to_owned(), format!("hyperlight-mcp@{VERSION}")]
        }
        None => vec![text(&launch.script)],
    };
    words.push("serve".to_owned());
    for (option, path) in [("--config", options.config), ("--state", options.state)] {
        words.extend(path.map(|path| [option.to_owned(), text(path)]).into_iter().flatten());
    }
    words.extend(options.servers.map(|servers| ["--servers".to_owned(), servers.join(",")]).into_iter().flatten());
    words.extend(options.agent.map(|agent| ["--agent".to_owned(), agent.to_owned()]).into_iter().flatten());
    let entry = json!({ "command": text(&launch.node), "args": words });
    match program {
        Program::Vscode | Program::ClaudeCode | Program::Cursor => {
            json!({ "type": "stdio", "command": entry["command"], "args": entry["args"] })
        }
        Program::ClaudeDesktop | Program::Codex => entry,
    }
}

/// Returns whether `npx` downloaded this copy of the package for one command.
pub(super) fn is_in_npx_cache(script: &Path) -> bool {
    script.components().any(|part| part.as_os_str() == "_npx")
}

/// Returns the possible paths of `npx-cli.js`: in the npm that is running now, and in the npm that was installed with Node.
pub(super) fn npx_paths(launch: &Launch, environment: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let running = environment.get("npm_execpath").map(|npm| Path::new(npm).with_file_name("npx-cli.js"));
    let with_node = launch.node.parent().and_then(Path::parent).map(|prefix| prefix.join("lib/node_modules/npm/bin/npx-cli.js"));
    running.into_iter().chain(with_node).filter(|path| path.is_absolute()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(program: Program, scope: Scope, environment: &[(&str, &str)], there: &str) -> Result<String, NoFile> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let file = host_file(program, scope, &environment, Path::new("/w"), |path| path == Path::new(there))?;
        Ok(file.path.display().to_string())
    }

    #[test]
    fn each_host_has_its_place() {
        let home = [("HOME", "/h")];
        for (program, user, project) in [
            (Program::Vscode, "/h/.config/Code/User/mcp.json", Ok("/w/.vscode/mcp.json")),
            (Program::ClaudeDesktop, "/h/.config/Claude/claude_desktop_config.json", Err(NoFile::NoProjectScope)),
            (Program::ClaudeCode, "/h/.claude.json", Ok("/w/.mcp.json")),
            (Program::Cursor, "/h/.cursor/mcp.json", Ok("/w/.cursor/mcp.json")),
            (Program::Codex, "/h/.codex/config.toml", Ok("/w/.codex/config.toml")),
        ] {
            assert_eq!(path_of(program, Scope::User, &home, ""), Ok(user.to_owned()));
            assert_eq!(path_of(program, Scope::Project, &home, ""), project.map(str::to_owned));
            assert_eq!(path_of(program, Scope::User, &[], ""), Err(NoFile::NoHome));
        }
    }

    #[test]
    fn a_variable_of_the_host_moves_its_place() {
        let of = |program, name, value| path_of(program, Scope::User, &[("HOME", "/h"), (name, value)], "").unwrap();
        assert_eq!(of(Program::Codex, "CODEX_HOME", "/c"), "/c/config.toml");
        assert_eq!(of(Program::ClaudeCode, "CLAUDE_CONFIG_DIR", "/c"), "/c/.claude.json");
        assert_eq!(of(Program::Vscode, "XDG_CONFIG_HOME", "/c"), "/c/Code/User/mcp.json");
        assert_eq!(of(Program::Codex, "CODEX_HOME", ""), "/h/.codex/config.toml");
        let other = path_of(Program::Vscode, Scope::User, &[("HOME", "/h")], "/h/.config/VSCodium/User").unwrap();
        assert_eq!(other, "/h/.config/VSCodium/User/mcp.json");
    }

    #[test]
    fn the_entry_names_node_and_this_copy_by_absolute_paths() {
        let launch = Launch { node: "/n/bin/node".into(), script: "/p/bin/hyperlight-mcp.mjs".into() };
        let options = ServeOptions {
            config: Some(Path::new("/c.json")),
            state: None,
            servers: Some(&["a".to_owned(), "b".to_owned()]),
            agent: Some("coder"),
        };
        let expected = json!({ "command": "/n/bin/node", "args": ["/p/bin/hyperlight-mcp.mjs", "serve", "--config", "/c.json", "--servers", "a,b", "--agent", "coder"] });
        assert_eq!(entry(Program::Codex, &launch, Some(Path::new("/x/npx-cli.js")), &options), expected);
        assert_eq!(entry(Program::Vscode, &launch, None, &options)["type"], "stdio");
    }

    #[test]
    fn a_copy_that_npm_may_remove_is_started_by_its_version() {
        let launch =
            Launch { node: "/n/bin/node".into(), script: "/h/.npm/_npx/0a1b/node_modules/hyperlight-mcp/bin/hyperlight-mcp.mjs".into() };
        let environment = BTreeMap::from([("npm_execpath".to_owned(), "/m/npm/bin/npm-cli.js".to_owned())]);
        let places = npx_paths(&launch, &environment);
        assert_eq!(places, [Path::new("/m/npm/bin/npx-cli.js"), Path::new("/n/lib/node_modules/npm/bin/npx-cli.js")]);
        let entry = entry(Program::Codex, &launch, Some(&places[0]), &ServeOptions::default());
        assert_eq!(
            entry["args"],
            json!(["/m/npm/bin/npx-cli.js", "--prefix", "/m/npm/bin", "--yes", format!("hyperlight-mcp@{VERSION}"), "serve"])
        );
    }
}
