//! Finds the package that a definition starts, if the definition leaves no doubt about it. npm and uv accept many kinds of package names:
//! an alias of another package, an address, a file or a folder. Options, variables and folders can also change which package they start.
//! This module accepts only plain names, and treats everything else as uncertain. So a new kind of name in a later version of npm or uv
//! cannot bypass a policy. All functions are pure.

use serde_json::{Map, Value as Json};

use crate::config::{URL_KEYS, loads_code};

/// The package that a definition starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Started {
    /// No package. The definition is for a remote server.
    Nothing,
    Package {
        /// The name without its version. The name of a Python package is converted by [`python_form`].
        name: String,
        registry: Registry,
    },
    /// The package is uncertain. The text contains the reason and the remedy.
    Uncertain(&'static str),
}

/// The registry of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registry {
    Npm,
    Python,
}

const OTHER_COMMAND: &str =
    "only npx and uvx start a package that is known; remove \"command\", or use [\"-y\", PACKAGE] with npx, [PACKAGE] with uvx";
const OTHER_NAME: &str = "its package is not a plain name with a plain version, like @acme/files@1.2.0; use the name that the registry has";
const SWITCHED: &str = "its arguments have an option that can name another package; remove -p, --package, --from, --with, -c or --call";
const PLACEHOLDER: &str = "its command or arguments have a ${…}, whose value is not known yet; pass the value with envRequired";
const OTHER_FOLDER: &str = "it sets cwd, and the folder can decide what is started; remove it";
const VARIABLE: &str =
    "it sets a variable that can decide what is started, like npm_config_registry, PATH or any other name of one word; remove it";
const NOT_TEXT: &str = "its command, arguments or variables are not texts; write each as a text";
const MIXED: &str = "it has both a url and a command or arguments; keep one of them";

/// File name endings of archives and scripts, which are read as files and not as package names.
const FILE_ENDS: [&str; 8] = [".tgz", ".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".zip", ".whl", ".py"];
/// Names that make uvx start a Python interpreter instead of a package. The arguments of an interpreter can be code.
const INTERPRETERS: [&str; 4] = ["python", "cpython", "pypy", "graalpy"];
const SWITCHES: [&str; 6] = ["--package", "--from", "--with", "--call", "--registry", "--index"];
const VARIABLE_STARTS: [&str; 7] = ["npm_", "npx_", "node_", "uv_", "pip_", "python", "ssl_"];

/// Returns the package that a definition starts. The definition is not checked yet.
pub(super) fn started(definition: &Map<String, Json>) -> Started {
    let has = |key: &str| definition.contains_key(key);
    if URL_KEYS.into_iter().any(has) {
        return if has("command") || has("args") { Started::Uncertain(MIXED) } else { Started::Nothing };
    }
    started_here(definition).unwrap_or_else(Started::Uncertain)
}

fn started_here(definition: &Map<String, Json>) -> Result<Started, &'static str> {
    if definition.contains_key("cwd") {
        return Err(OTHER_FOLDER);
    }
    check_variables(definition)?;
    let package = definition.get("package").map(|package| package.as_str().ok_or(NOT_TEXT)).transpose()?;
    let command = definition.get("command").map_or(Ok("npx"), |command| command.as_str().ok_or(NOT_TEXT))?;
    let arguments: Option<Vec<&str>> = match definition.get("args") {
        None => None,
        Some(Json::Array(items)) => Some(items.iter().map(|item| item.as_str().ok_or(NOT_TEXT)).collect::<Result<_, _>>()?),
        Some(_) => return Err(NOT_TEXT),
    };
    let texts = || [command].into_iter().chain(arguments.iter().flatten().copied());
    if texts().any(|text| text.contains("${")) {
        return Err(PLACEHOLDER);
    }
    // A definition without arguments gets the arguments that `npx` needs, even if it has another command.
    let arguments = match (arguments, package) {
        (Some(arguments), _) => arguments,
        (None, Some(package)) => vec!["-y", package],
        (None, None) => Vec::new(),
    };
    let (spec, others, registry) = match (command, arguments.as_slice()) {
        ("npx", ["-y" | "--yes", spec, others @ ..]) => (*spec, others, Registry::Npm),
        ("uvx", [spec, others @ ..]) => (*spec, others, Registry::Python),
        _ => return Err(OTHER_COMMAND),
    };
    if others.iter().any(|argument| is_switch(argument)) {
        return Err(SWITCHED);
    }
    let name = match registry {
        Registry::Npm => npm_name(spec),
        Registry::Python => python_name(spec),
    };
    name.map(|name| Started::Package { name, registry }).ok_or(OTHER_NAME)
}

fn check_variables(definition: &Map<String, Json>) -> Result<(), &'static str> {
    let set = match definition.get("env") {
        None => Vec::new(),
        Some(Json::Object(variables)) => variables.keys().map(String::as_str).collect(),
        Some(_) => return Err(NOT_TEXT),
    };
    let required = definition.get("envRequired").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    if set.into_iter().chain(required).any(decides_what_is_started) { Err(VARIABLE) } else { Ok(()) }
}

/// Returns whether a variable with this name can change which package npx or uvx starts, or the place from which the package is downloaded.
fn decides_what_is_started(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    // A name of one word is not one of the server alone: npm reads `PREFIX`, and programs that it starts read others.
    loads_code(name)
        || !name.contains('_')
        || VARIABLE_STARTS.iter().any(|start| lower.starts_with(start))
        || lower.ends_with("_proxy")
        || lower.contains("registry")
}

fn is_switch(argument: &str) -> bool {
    // The value of `-p` and `-c` may be in the same argument.
    ["-p", "-c"].iter().any(|short| argument.starts_with(short)) || SWITCHES.iter().any(|long| argument.starts_with(long))
}

fn is_file(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    FILE_ENDS.iter().any(|end| lower.ends_with(end))
}

/// Returns whether a text begins with an ASCII letter or digit, contains only these and the characters in `others`, and is not a file name.
fn is_plain(text: &str, others: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|next| next.is_ascii_alphanumeric() || others.contains(next))
        && !is_file(text)
}

/// Returns the package name if npx would read the text as the name of a package in npm's registry, with or without a version.
fn npm_name(spec: &str) -> Option<String> {
    // Only old packages of npm have names with capital letters. Such a package is not the package with the same name in lower case.
    let is_part = |part: &str| is_plain(part, "._-") && !part.chars().any(|next| next.is_ascii_uppercase());
    let start = usize::from(spec.starts_with('@'));
    let (name, version) = match spec.get(start..)?.split_once('@') {
        Some((name, version)) => (spec.get(..start + name.len())?, Some(version)),
        None => (spec, None),
    };
    let is_name = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, rest)| is_part(scope) && is_part(rest)),
        None => is_part(name),
    };
    let is_version = version.is_none_or(|version| is_plain(version.strip_prefix(['^', '~']).unwrap_or(version), ".-+"));
    (is_name && is_version).then(|| name.to_owned())
}

/// Returns the package name if uvx would read the text as the name of a package in `PyPI`, with or without extras and a version.
fn python_name(spec: &str) -> Option<String> {
    let (rest, is_version) = if let Some((rest, version)) = spec.split_once("==") {
        (rest, is_plain(version, ".+"))
    } else if let Some((rest, version)) = spec.split_once('@') {
        // If the text after `@` is anything else, uvx reads it as an address or a folder.
        let is_number = |part: &str| !part.is_empty() && part.chars().all(|next| next.is_ascii_digit());
        (rest, version == "latest" || version.split('.').all(is_number))
    } else {
        (spec, true)
    };
    let (name, are_extras) = match rest.split_once('[') {
        Some((name, extras)) => {
            (name, extras.strip_suffix(']').is_some_and(|extras| extras.split(',').all(|extra| is_plain(extra, "._-"))))
        }
        None => (rest, true),
    };
    let is_interpreter = |name: &str| {
        let rest = INTERPRETERS.iter().find_map(|start| name.strip_prefix(start));
        rest.is_some_and(|rest| rest.chars().all(|next| next.is_ascii_digit() || "-w".contains(next)))
    };
    let is_name = is_plain(name, "._-");
    let name = python_form(name);
    (is_version && are_extras && is_name && !is_interpreter(&name)).then_some(name)
}

/// Returns the form in which `PyPI` compares names: lower case, with one `-` in place of each run of `-`, `_` and `.`.
pub(super) fn python_form(name: &str) -> String {
    let mut form = String::with_capacity(name.len());
    for next in name.chars() {
        match next {
            '-' | '_' | '.' if form.ends_with('-') => {}
            '-' | '_' | '.' => form.push('-'),
            other => form.push(other.to_ascii_lowercase()),
        }
    }
    form
}

#[cfg(test)]
#[path = "started_tests.rs"]
mod tests;
