//! Replaces the `${…}` placeholders of a config. This is done only when a server is started, so that resolved secrets stay in memory only
//! as long as necessary.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::boxes::BoxSettings;
use super::definition::{Origin, ServerDefinition, Transport};
use super::env_file::{MAX_ENV_FILE_BYTES, MAX_NAME_CHARS, parse_env_file};
use super::inserted_value::{InsertedValue, Source};
use super::loaders::loads_code;
use super::oauth::{self, OAuthSettings};
use super::template::{Allowed, Part, Placeholder, Template, shown_name};
use super::workspace::Locality;
use super::{address, rules};
use crate::error::Result;
use crate::files::Projects;
use crate::redact::is_secret;
use crate::text::{Problem, displayed, displayed_within};

/// The values that placeholders refer to. The caller passes them, so that tests do not need a real environment.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub environment: BTreeMap<String, String>,
    pub workspace_folder: PathBuf,
    pub user_home: PathBuf,
}

/// A command without placeholders.
#[derive(Debug)]
pub struct ResolvedCommand {
    pub command: String,
    pub arguments: Vec<String>,
    /// All variables that the child process gets, sorted by name.
    pub environment: Vec<(String, SecretString)>,
    pub working_directory: PathBuf,
    /// Values that may have to be redacted: those from variables, inputs and the environment file, and defaults that look like secrets.
    /// None of them is empty, and a value may appear twice.
    pub secrets: Vec<InsertedValue>,
}

/// A Streamable HTTP address without placeholders.
#[derive(Debug)]
pub struct ResolvedHttp {
    /// The address. Its query may contain a secret.
    pub url: SecretString,
    pub headers: Vec<(String, SecretString)>,
    pub oauth: Option<OAuthSettings>,
    /// Values that may have to be redacted: those from variables and inputs, defaults that look like secrets, and the secrets of `oauth`.
    /// None of them is empty, and a value may appear twice.
    pub secrets: Vec<InsertedValue>,
}

/// The advice in errors about an input that no person can answer.
pub(crate) const INPUT_ADVICE: &str = "give onInput, a callback that returns it";
/// Variables of this process that a child process gets in addition to the variables of its config: the safe list of the MCP SDKs, and
/// `TMPDIR`.
const INHERITED: [&str; 9] = ["PATH", "HOME", "LANG", "LC_ALL", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL"];

/// Length in bytes from which on the kernel refuses a path. To follow a longer path part by part would take quadratic time.
pub(crate) const TOO_LONG_PATH: usize = 4_096;
/// Maximum size in bytes of all values that are inserted into one entry. An entry can name a long value very often. Linux gives a program at
/// most 2 MiB of arguments and variables.
const MAX_INSERTED_BYTES: usize = 4 << 20;
/// The same for an entry that is only examined ([`with_known_values`]).
pub(crate) const MAX_KNOWN_BYTES: usize = 1 << 20;

/// Replaces the placeholders of a stdio server. Returns `None` for a server that has no command.
///
/// `inputs` contains a person's answers, by the ids that [`crate::config::inputs_of`] returns. `read_file` reads the environment file
/// ([`crate::config::read_env_file`]). For each variable, the config's own value takes precedence over the file's value, and the file's
/// value over the inherited one. `locality` decides in which folder a command without `cwd` is started, and which parts of the inherited
/// `PATH` it gets.
///
/// # Errors
/// `ERR_CONFIG_INVALID` with all problems: variables that are not set, inputs without a value, an unusable environment file, or a variable in that
/// file that loads code ([`crate::config::loads_code`]) without `pinValues`.
///
/// ```
/// use hyperlight_mcp::config::{Locality, Surroundings, parse_text, read_env_file, resolve_command};
/// let text = r#"{ "servers": { "a": { "command": "${userHome}/bin/a", "env": { "TOKEN": "${A_TOKEN}" } } } }"#;
/// let config = parse_text(text, "config.json", 20).unwrap();
/// let environment = [("A_TOKEN".to_owned(), "t0k".to_owned())].into();
/// let surroundings = Surroundings { environment, workspace_folder: "/work".into(), user_home: "/home/ada".into() };
/// let resolved = resolve_command(&config.servers[0], &surroundings, &Default::default(), Locality::Anywhere, read_env_file);
/// let resolved = resolved.unwrap().unwrap();
/// assert_eq!(resolved.command, "/home/ada/bin/a");
/// assert_eq!(resolved.working_directory.to_str(), Some("/"));
/// assert_eq!(resolved.secrets.len(), 1);
/// ```
pub fn resolve_command(
    server: &ServerDefinition,
    surroundings: &Surroundings,
    inputs: &BTreeMap<String, SecretString>,
    locality: Locality,
    read_file: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
) -> Result<Option<ResolvedCommand>> {
    let Transport::Stdio { command, arguments, environment, removed_environment, working_directory, environment_file } = &server.transport
    else {
        return Ok(None);
    };
    let surroundings = &*locality.surroundings(surroundings);
    let mut filler = Filler::new(&server.origin, surroundings, inputs);
    let command = filler.plain("command", command);
    let arguments = arguments.iter().enumerate().map(|(index, text)| filler.plain(&format!("args[{index}]"), text)).collect();
    let folder = working_directory.as_ref().map(|folder| filler.plain("cwd", folder));
    // A map sorts the variables and finds each of them quickly by name, because a file may contain very many.
    let mut variables: BTreeMap<String, SecretString> = inherited(surroundings);
    if let Some(file) = environment_file {
        let path = surroundings.workspace_folder.join(filler.plain("envFile", file));
        for (name, value) in filler.environment_file(&path, read_file)? {
            filler.check_from_file(&path, &name, server.pin_values);
            filler.keep(value.expose_secret(), Source::Named(name.clone()));
            variables.insert(name, value);
        }
    }
    for (name, value) in environment {
        let key = format!("env.{name}");
        let value = filler.fill(&key, value.expose_secret(), Allowed::All);
        filler.check(&key, rules::check_no_nul(&value));
        variables.insert(name.clone(), SecretString::from(value));
    }
    for name in removed_environment {
        variables.remove(name);
    }
    let secrets = filler.finish()?;
    let start = || locality.start(surroundings);
    let working_directory = folder.map_or_else(start, |folder| surroundings.workspace_folder.join(folder));
    Ok(Some(ResolvedCommand { command, arguments, environment: variables.into_iter().collect(), working_directory, secrets }))
}

/// Returns the path of the entry's environment file. `None` if the entry has none. If a placeholder in the path has no value now, returns
/// the path without this placeholder, but only if a file exists there. If the path of a missing file were returned, no box that can make
/// this file could start.
pub(crate) fn environment_file(server: &ServerDefinition, surroundings: &Surroundings, locality: Locality) -> Option<PathBuf> {
    let Transport::Stdio { environment_file: Some(file), .. } = &server.transport else { return None };
    let (surroundings, inputs) = (&*locality.surroundings(surroundings), BTreeMap::new());
    let mut filler = Filler::new(&server.origin, surroundings, &inputs);
    let path = filler.plain("envFile", file);
    let placed = |path: String| Some(surroundings.workspace_folder.join(path)).filter(|path| path.as_os_str().len() < TOO_LONG_PATH);
    if filler.finish().is_ok() {
        return placed(path);
    }
    let without = |unknown: fn(&str) -> &str| with_values(file, surroundings, &server.input_defaults, unknown, &mut { MAX_KNOWN_BYTES });
    let (known, whole) = (without(|source| source), without(|_| ""));
    let is_whole = known == whole;
    placed(whole).filter(|path| is_whole || path.is_file())
}

/// Replaces those placeholders of a text whose values are known now, and leaves the others unchanged. `defaults` are the values of inputs
/// that nobody answers. Use it only for texts that are not used yet: the result only shows which files an entry names.
/// `left` is the number of bytes that the values of the entry may still have: a text can name a long value very often. The text ends
/// before the first value that is too long.
pub(crate) fn with_known_values(text: &str, surroundings: &Surroundings, defaults: &[(String, SecretString)], left: &mut usize) -> String {
    with_values(text, surroundings, defaults, |source| source, left)
}

/// Replaces the placeholders of a text. `unknown` returns the text for a placeholder that has no value now. `left` is the number of bytes
/// that the values may still have.
fn with_values(
    text: &str,
    surroundings: &Surroundings,
    defaults: &[(String, SecretString)],
    unknown: fn(&str) -> &str,
    left: &mut usize,
) -> String {
    let folder = |path: &Path| path.to_string_lossy().into_owned();
    let value = |part: &Part<'_>| match *part {
        Part::Literal(text) => text.to_owned(),
        Part::Placeholder { meaning: Placeholder::WorkspaceFolder, .. } => folder(&surroundings.workspace_folder),
        Part::Placeholder { meaning: Placeholder::UserHome, .. } => folder(&surroundings.user_home),
        Part::Placeholder { meaning: Placeholder::Variable { name, default }, source } => {
            let value = surroundings.environment.get(name).map(String::as_str).filter(|value| !value.is_empty());
            value.or(default).unwrap_or_else(|| unknown(source)).to_owned()
        }
        Part::Placeholder { meaning: Placeholder::Input(id), source } => {
            let default = defaults.iter().find(|(known, _)| known.as_str() == id).map(|(_, default)| default.expose_secret());
            default.unwrap_or_else(|| unknown(source)).to_owned()
        }
    };
    let mut output = String::new();
    for part in Template::lenient(text).parts() {
        let value = value(part);
        if matches!(part, Part::Placeholder { .. }) {
            let Some(rest) = left.checked_sub(value.len()) else { break };
            *left = rest;
        }
        output.push_str(&value);
    }
    output
}

/// Returns the folders of `roots` as URIs. A relative folder is resolved in the workspace folder.
///
/// # Errors
/// `ERR_CONFIG_INVALID` for a placeholder that has no value.
///
/// ```
/// use hyperlight_mcp::config::{Surroundings, parse_text, resolve_roots};
/// let text = r#"{ "servers": { "a": { "command": "a", "roots": ["${workspaceFolder}", "src", "/data"] } } }"#;
/// let server = &parse_text(text, "config.json", 20).unwrap().servers[0];
/// let surroundings = Surroundings { environment: [].into(), workspace_folder: "/project".into(), user_home: "/home/ada".into() };
/// assert_eq!(resolve_roots(server, &surroundings).unwrap(), ["file:///project", "file:///project/src", "file:///data"]);
/// ```
pub fn resolve_roots(server: &ServerDefinition, surroundings: &Surroundings) -> Result<Vec<String>> {
    let inputs = BTreeMap::new();
    let mut filler = Filler::new(&server.origin, surroundings, &inputs);
    let fill = |(index, text): (usize, &String)| surroundings.workspace_folder.join(filler.plain(&format!("roots[{index}]"), text));
    let folders: Vec<_> = server.roots.iter().enumerate().map(fill).collect();
    filler.finish()?;
    // The workspace folder is absolute, so the joined paths are absolute too.
    Ok(folders.iter().filter_map(|folder| url::Url::from_file_path(folder).ok()).map(String::from).collect())
}

/// The paths that an entry names for its box, without placeholders.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BoxPaths {
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub roots: Vec<PathBuf>,
}

/// Returns the paths that `box` and `roots` name. A relative path is resolved in the workspace folder.
///
/// # Errors
/// `ERR_CONFIG_INVALID` for a placeholder that has no value.
///
/// ```
/// use hyperlight_mcp::config::{BoxDefinition, Surroundings, parse_text, resolve_box_paths};
/// let text = r#"{ "servers": { "a": { "command": "a", "box": { "read": ["${userHome}/data"], "write": ["out"] } } } }"#;
/// let server = &parse_text(text, "config.json", 20).unwrap().servers[0];
/// let surroundings = Surroundings { environment: [].into(), workspace_folder: "/project".into(), user_home: "/home/ada".into() };
/// let Some(BoxDefinition::On(settings)) = &server.in_box else { panic!() };
/// let paths = resolve_box_paths(server, settings, &surroundings).unwrap();
/// assert_eq!([paths.read[0].to_str(), paths.write[0].to_str()], [Some("/home/ada/data"), Some("/project/out")]);
/// ```
pub fn resolve_box_paths(server: &ServerDefinition, settings: &BoxSettings, surroundings: &Surroundings) -> Result<BoxPaths> {
    let inputs = BTreeMap::new();
    let mut filler = Filler::new(&server.origin, surroundings, &inputs);
    let mut fill = |key: &str, texts: &[String]| -> Vec<PathBuf> {
        let path = |(index, text): (usize, &String)| surroundings.workspace_folder.join(filler.plain(&format!("{key}[{index}]"), text));
        texts.iter().enumerate().map(path).collect()
    };
    let paths =
        BoxPaths { read: fill("box.read", &settings.read), write: fill("box.write", &settings.write), roots: fill("roots", &server.roots) };
    filler.finish()?;
    Ok(paths)
}

/// Returns the paths of a box whose placeholders have values, in the form that [`resolve_box_paths`] returns. All other paths are left out.
pub(crate) fn known_box_paths(server: &ServerDefinition, settings: &BoxSettings, surroundings: &Surroundings) -> BoxPaths {
    let inputs = BTreeMap::new();
    let known = |texts: &[String]| -> Vec<PathBuf> {
        let path = |text: &String| {
            let mut filler = Filler::new(&server.origin, surroundings, &inputs);
            let path = surroundings.workspace_folder.join(filler.plain("box", text));
            filler.finish().ok().map(|_| path)
        };
        texts.iter().filter_map(path).collect()
    };
    BoxPaths { read: known(&settings.read), write: known(&settings.write), roots: known(&server.roots) }
}

/// Replaces the placeholders of a server over HTTP. Returns `None` for a server that has a command.
///
/// # Errors
/// `ERR_CONFIG_INVALID` with all missing values, and with each URL or header that is not valid after the replacement.
///
/// ```
/// use hyperlight_mcp::config::{Surroundings, parse_text, resolve_http};
/// use secrecy::{ExposeSecret, SecretString};
/// let text = r#"{
///     "inputs": [{ "type": "promptString", "id": "token" }],
///     "servers": { "a": { "url": "https://${HOST:-example.com}/mcp", "headers": { "Authorization": "Bearer ${input:token}" } } }
/// }"#;
/// let server = &parse_text(text, "mcp.json", 20).unwrap().servers[0];
/// let surroundings = Surroundings { environment: [].into(), workspace_folder: "/work".into(), user_home: "/home/ada".into() };
/// let answers = [("token".to_owned(), SecretString::from("t0k"))].into();
/// let resolved = resolve_http(server, &surroundings, &answers).unwrap().unwrap();
/// assert_eq!(resolved.url.expose_secret(), "https://example.com/mcp");
/// assert_eq!(resolved.headers[0].1.expose_secret(), "Bearer t0k");
/// let error = resolve_http(server, &surroundings, &[].into()).unwrap_err();
/// assert!(error.redacted(&hyperlight_mcp::redact::Redactor::new(None, None)).to_string().contains("onInput"));
/// ```
pub fn resolve_http(
    server: &ServerDefinition,
    surroundings: &Surroundings,
    inputs: &BTreeMap<String, SecretString>,
) -> Result<Option<ResolvedHttp>> {
    let Transport::Http { url, headers, oauth } = &server.transport else { return Ok(None) };
    let mut filler = Filler::new(&server.origin, surroundings, inputs);
    let url = address::fill(&mut filler, "url", url, address::check_url);
    let mut header = |(name, value): &(String, SecretString)| {
        let key = format!("headers.{name}");
        let value = filler.fill(&key, value.expose_secret(), Allowed::All);
        filler.check(&key, rules::check_header_value(&value));
        (name.clone(), SecretString::from(value))
    };
    let headers = headers.iter().map(&mut header).collect();
    let oauth = oauth.as_ref().map(|definition| oauth::resolve(definition, &mut filler));
    Ok(Some(ResolvedHttp { url: SecretString::from(url), headers, oauth, secrets: filler.finish()? }))
}

fn inherited(surroundings: &Surroundings) -> BTreeMap<String, SecretString> {
    let pass = |name: &&str| surroundings.environment.get(*name).map(|value| ((*name).to_owned(), SecretString::from(value.clone())));
    INHERITED.iter().filter_map(pass).collect()
}

/// Replaces placeholders, and collects problems and secrets.
pub(super) struct Filler<'a> {
    origin: &'a Origin,
    surroundings: &'a Surroundings,
    inputs: &'a BTreeMap<String, SecretString>,
    problems: Vec<Problem>,
    secrets: Vec<InsertedValue>,
    /// The number of bytes that inserted values may still have. `None` after a value that was too long, which is a recorded problem.
    left: Option<usize>,
}

impl<'a> Filler<'a> {
    fn new(origin: &'a Origin, surroundings: &'a Surroundings, inputs: &'a BTreeMap<String, SecretString>) -> Self {
        Self { origin, surroundings, inputs, problems: Vec::new(), secrets: Vec::new(), left: Some(MAX_INSERTED_BYTES) }
    }

    fn finish(self) -> Result<Vec<InsertedValue>> {
        if self.problems.is_empty() { Ok(self.secrets) } else { Err(self.origin.error(self.problems)) }
    }

    /// Replaces the placeholders of a text that other people or processes can see. Such a text may contain only placeholders of folders.
    fn plain(&mut self, key: &str, text: &str) -> String {
        self.fill(key, text, Allowed::Folders)
    }

    pub(super) fn fill(&mut self, key: &str, text: &str, allowed: Allowed) -> String {
        let filled = self.fill_with(key, text, allowed, |_| ()).unwrap_or_default();
        // The whole text is redacted as well. An answer may be too short to be redacted alone. An encoding of the whole text, such as a
        // login in base64, may not contain the encoding of the answer.
        if Template::parse(text).is_ok_and(|template| template.parts().len() > 1 && template.inputs().next().is_some()) {
            self.keep(&filled, Source::Confidential);
        }
        filled
    }

    /// Replaces the placeholders of a text. Calls `look` with each value before inserting it. Returns `None` if a problem was recorded.
    pub(super) fn fill_with(&mut self, key: &str, text: &str, allowed: Allowed, mut look: impl FnMut(&str)) -> Option<String> {
        let before = self.problems.len();
        self.left?;
        let checked = Template::parse(text).and_then(|template| template.check(allowed).map(|()| template));
        let template = match checked {
            Ok(template) => template,
            Err(problems) => {
                self.problems.extend(problems.into_iter().map(|problem| self.origin.problem(key, problem)));
                return None;
            }
        };
        let mut output = String::with_capacity(text.len());
        for part in template.parts() {
            match part {
                Part::Literal(text) => output.push_str(text),
                Part::Placeholder { meaning, .. } => match self.look_up(key, *meaning).and_then(|value| self.take(value)) {
                    Ok(value) => {
                        look(&value);
                        output.push_str(&value);
                    }
                    Err(problem) => self.problems.push(self.origin.problem(key, problem)),
                },
            }
            self.left?;
        }
        (self.problems.len() == before).then_some(output)
    }

    /// Returns the value if the entry may still have its bytes.
    fn take(&mut self, value: String) -> std::result::Result<String, String> {
        self.left = self.left.and_then(|left| left.checked_sub(value.len()));
        self.left
            .map(|_| value)
            .ok_or_else(|| format!("the values of the entry's placeholders have more than {MAX_INSERTED_BYTES} bytes together"))
    }

    fn look_up(&mut self, key: &str, placeholder: Placeholder) -> std::result::Result<String, String> {
        match placeholder {
            Placeholder::WorkspaceFolder => Ok(self.surroundings.workspace_folder.to_string_lossy().into_owned()),
            Placeholder::UserHome => Ok(self.surroundings.user_home.to_string_lossy().into_owned()),
            Placeholder::Variable { name, default } => {
                let value = self.surroundings.environment.get(name);
                // The default also replaces an empty value, as in a shell.
                match (value.filter(|value| default.is_none() || !value.is_empty()), default) {
                    (Some(value), _) => {
                        self.keep(value, Source::Named(format!("{key} {name}")));
                        Ok(value.clone())
                    }
                    (None, Some(default)) => {
                        // A default is a literal of the config, so it is a secret only if it looks like one.
                        if is_secret(&format!("{key} {name}"), default) {
                            self.keep(default, Source::Confidential);
                        }
                        Ok(default.to_owned())
                    }
                    (None, None) => {
                        let name = shown_name(name);
                        Err(format!("the environment variable {name} is not set. Set it, or write a default: ${{{name}:-default}}"))
                    }
                }
            }
            Placeholder::Input(id) => {
                let missing = || format!("the input \"{}\" has no value: {INPUT_ADVICE}", displayed(id));
                let value = self.inputs.get(id).ok_or_else(missing)?.expose_secret();
                self.keep(value, Source::Confidential);
                Ok(value.to_owned())
            }
        }
    }

    /// Keeps a value for later redaction. Ignores an empty value.
    pub(super) fn keep(&mut self, value: &str, source: Source) {
        if !value.is_empty() {
            self.secrets.push(InsertedValue { value: SecretString::from(value), source });
        }
    }

    pub(super) fn check(&mut self, key: &str, verdict: std::result::Result<(), &'static str>) {
        if let Err(problem) = verdict {
            self.problems.push(self.origin.problem(key, problem));
        }
    }

    /// Refuses a variable that loads code and comes from the environment file, unless `pinValues` makes it part of the approval's digest. A
    /// person sees the variables in `env`, but not those of the file.
    fn check_from_file(&mut self, path: &Path, name: &str, pin_values: bool) {
        if loads_code(name) && !pin_values {
            let problem = format!(
                "the file {} sets {}, which can make a program load code that nobody approved. Write it in env, where it is shown, or set \
                 pinValues, which makes the file's values part of the approval",
                path.display(),
                displayed_within(name, MAX_NAME_CHARS)
            );
            self.problems.push(self.origin.problem("envFile", problem));
        }
    }

    /// Returns the variables of the environment file. If the file cannot be read, records a problem of the config. Problems within the file
    /// are returned as a separate error, because they belong to another file.
    fn environment_file(
        &mut self,
        path: &Path,
        read_file: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Vec<(String, SecretString)>> {
        if !self.problems.is_empty() {
            // After a problem, the file's path may contain a placeholder that was not replaced.
            return Ok(Vec::new());
        }
        let file = path.display().to_string();
        let projects = Projects::new(&self.surroundings.workspace_folder, &self.surroundings.user_home, []);
        if let Some(place) = projects.led_out(path) {
            let problem = self.origin.problem("envFile", led_out_problem(path, &place));
            self.problems.push(problem);
            return Ok(Vec::new());
        }
        let unusable = match read_file(path).map(|bytes| (bytes.len(), String::from_utf8(bytes))) {
            Ok((size, _)) if size > MAX_ENV_FILE_BYTES => {
                format!("the file {file} is too large: the limit of an environment file is {MAX_ENV_FILE_BYTES} bytes")
            }
            Ok((_, Ok(text))) => return parse_env_file(&text, &file),
            Ok((_, Err(error))) => {
                let before = error.utf8_error().valid_up_to();
                let line = error.as_bytes().iter().take(before).filter(|byte| **byte == b'\n').count() + 1;
                format!("the file {file} is not UTF-8 text in line {line}")
            }
            Err(error) => format!("the file {file} cannot be read: {error}. Create it, or leave out envFile"),
        };
        let problem = self.origin.problem("envFile", unusable);
        self.problems.push(problem);
        Ok(Vec::new())
    }
}

/// Returns the problem of an environment file that a link leads out of its project ([`Projects::led_out`]).
pub(crate) fn led_out_problem(file: &Path, place: &Path) -> String {
    let (file, place) = (file.display(), place.display());
    format!("{file} leads out of the project by a link: if {place} is the file that the server should have, write this path")
}

#[cfg(test)]
#[path = "substitute_tests.rs"]
mod tests;
