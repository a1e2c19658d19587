//! The command `types`: writes TypeScript declarations of everything that a script can import and use, for an editor.

use std::path::Path;

use serde_json::json;

use super::args::Types;
use super::error::CliError;
use super::grants::agent_of;
use super::session::Session;
use super::{Exit, files};

/// A tsconfig.json for an editor, so that it checks scripts for the environment in which they run.
const TSCONFIG: &str = r#"{
  "compilerOptions": {
    "target": "es2023", "lib": ["es2023"], "types": [], "module": "esnext", "moduleResolution": "bundler",
    "strict": true, "checkJs": true, "noEmit": true
  },
  "include": ["*.ts", "*.js"]
}"#;

/// Default name of the output file, in the current folder.
const DEFAULT_FILE: &str = "hyperlight-mcp.d.ts";

/// Declarations of the guest's global names that are not part of ES2023.
const GLOBALS: &str = include_str!("../../guest/globals.d.ts");

pub(super) fn types(session: &Session, arguments: &Types) -> Result<Exit, CliError> {
    session.check_config()?;
    let gateway = session.open_for(arguments.servers.as_deref())?;
    let agent = agent_of(session, &gateway, &arguments.as_agent)?;
    let declarations = agent.declarations(None, arguments.tool_errors.into())?;
    let modules: Vec<String> = agent.list_modules()?.into_iter().map(|module| module.specifier).collect();
    let text = format!(
        "// Written by `hyperlight-mcp types`: what scripts of `hyperlight-mcp run` can import.\n\n{GLOBALS}\n{}\n",
        declarations.trim_end()
    );
    let out = arguments.out.as_deref();
    let to_output = out == Some(Path::new("-"));
    match out {
        Some(_) if to_output => {}
        Some(path) => files::write(path, &text, 0o644)?,
        None => files::write_in_project(Path::new(DEFAULT_FILE), &text, 0o644)?,
    }
    let file = out.unwrap_or(Path::new(DEFAULT_FILE)).display().to_string();
    match (session.json(), to_output) {
        (true, true) => session.terminal.print_json(&json!({ "modules": modules, "declarations": text })),
        (true, false) => session.terminal.print_json(&json!({ "modules": modules, "file": file })),
        (false, true) => session.terminal.print(&text),
        (false, false) => {
            session.terminal.print(&format!("{file}: {}\n", modules.join(", ")));
            session.terminal.say(&format!(
                "For an editor, keep the file in the folder of your scripts, together with this tsconfig.json:\n{TSCONFIG}\n"
            ));
        }
    }
    Ok(Exit::Done)
}
