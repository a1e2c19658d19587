//! The entry for the config of a host that starts `boot` itself.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::args::Boot;
use crate::cli::session::Session;

/// Returns the entry for a host's config. It starts `boot --locked`, which takes the tools from the cache and needs no model. Returns `None`
/// with `--no-cache`, or without a prompt.
///
/// A host may start the program in any folder, so the paths are absolute. The entry does not contain the values of secrets: the person
/// writes each in place of `<the value of NAME>`.
pub(super) fn of(session: &Session, arguments: &Boot) -> Option<Json> {
    let Boot { prompt, prompt_file, name, cache_dir, no_cache, secrets, allow_hosts, .. } = arguments;
    if *no_cache {
        return None;
    }
    let mut words = vec!["boot".to_owned(), "--stdio".to_owned(), "--locked".to_owned()];
    let mut add = |option: &str, value: &str| words.push(format!("--{option}={value}"));
    let path = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    match (prompt, prompt_file) {
        (Some(prompt), _) => add("prompt", prompt),
        (None, Some(file)) => add("prompt-file", &path(file)),
        (None, None) => return None,
    }
    add("cache-dir", &path(cache_dir));
    let texts = [("name", name.as_slice()), ("secret", secrets), ("allow-host", allow_hosts)];
    texts
        .iter()
        .flat_map(|(option, values)| values.iter().map(move |value| (option, value)))
        .for_each(|(option, value)| add(option, value));
    if let Some(state) = session.state() {
        add("state", &path(state));
    }
    let variables = secrets.iter().map(|secret| secret.split(['@', ':']).next().unwrap_or_default());
    let env: Json = variables.map(|name| (name.to_owned(), Json::from(format!("<the value of {name}>")))).collect();
    let (command, script) = match &session.context.launch {
        Some(launch) => (launch.node.clone(), Some(launch.script.display().to_string())),
        None => (PathBuf::from("hyperlight-mcp"), None),
    };
    let args: Vec<_> = script.into_iter().chain(words).collect();
    let mut entry = json!({ "command": command, "args": args });
    if env.as_object().is_some_and(|env| !env.is_empty()) {
        entry["env"] = env;
    }
    Some(entry)
}
