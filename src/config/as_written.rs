//! Reads which files and programs an entry names, even if the entry has errors. A later version of the entry may use the same files.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::SecretString;

use super::boxes::BoxDefinition;
use super::definition::{Confirm, Origin, Parallel, ServerDefinition, ToolFilter, Transport};
use super::filters::UriFilter;
use super::inputs::Inputs;
use super::source::ServerSource;
use super::template::Template;
use super::tree::{Entry, Node, Value};

/// Keys of an entry that are read separately, and keys that name no files. All other texts of an entry with errors count as arguments.
const READ_BY_THEMSELVES: [&str; 10] = ["command", "envFile", "cwd", "env", "box", "roots", "url", "headers", "oauth", "description"];

/// Maximum size in bytes of the texts that are kept of one entry with errors. An entry of this size is too long to be examined, so what is
/// cut is not missed.
const MAX_KEPT_BYTES: usize = 512 << 10;

/// Returns the command, arguments, variables and files of an entry with errors, as far as they can be read. Values of an unexpected type
/// are read too. Unknown placeholders are kept as text. Nothing may start such a server: its definition only shows which files belong to
/// it. `None` if the entry names none.
pub(super) fn as_written(entry: &Entry, origin: Origin, inputs: &Inputs) -> Option<ServerDefinition> {
    let node = &entry.node;
    let all = |node: Option<&Node>| node.map(texts_of).unwrap_or_default().into_iter();
    // The command of an entry can be a list, as in the configs of some programs. An entry that is not an object is a command.
    let mut words = all(if node.entries().is_some() { node.get("command") } else { Some(node) });
    let command = words.next();
    let mut arguments: Vec<String> = words.collect();
    // The arguments can be in the text of the command.
    arguments.extend(command.clone().filter(|command| command.contains(char::is_whitespace)));
    let [mut files, mut folders] = ["envFile", "cwd"].map(|key| all(node.get(key)));
    let environment_file = files.next();
    // A working folder with an invalid placeholder becomes an argument. Without the placeholder, it would be another folder.
    let (working_directory, unknown): (Vec<_>, Vec<_>) = folders.by_ref().take(1).partition(|folder| Template::parse(folder).is_ok());
    arguments.extend(files.chain(unknown).chain(folders));
    for entry in node.entries().unwrap_or_default().iter().filter(|entry| !READ_BY_THEMSELVES.contains(&entry.name.as_str())) {
        arguments.extend(texts_of(&entry.node));
    }
    let in_box = |key: &str| node.get("box").and_then(|in_box| in_box.get(key));
    let mut variables = BTreeMap::new();
    for node in [node.get("env"), in_box("env")].into_iter().flatten() {
        add_variables(node, &mut variables, &mut arguments);
    }
    let mut left = MAX_KEPT_BYTES;
    for text in arguments.iter_mut().chain(variables.values_mut()) {
        cut(text, &mut left);
    }
    if command.is_none() && environment_file.is_none() && arguments.is_empty() && variables.is_empty() {
        return None;
    }
    let texts = arguments.iter().chain(variables.values()).chain(&command).chain(&environment_file).chain(&working_directory);
    let input_defaults = defaults_in(texts, inputs);
    let transport = Transport::Stdio {
        command: command.unwrap_or_default(),
        arguments,
        environment: variables.into_iter().map(|(name, value)| (name, SecretString::from(value))).collect(),
        removed_environment: Vec::new(),
        working_directory: working_directory.into_iter().next(),
        environment_file,
    };
    let roots = [node.get("roots"), in_box("read"), in_box("write")].into_iter().flat_map(all).collect();
    Some(ServerDefinition { roots, input_defaults, ..dormant(entry.name.clone(), ServerSource::default(), transport, origin) })
}

/// Adds the variables of a part of an entry: an object, or texts such as `NAME=value`. A text without a name counts as an argument. Values
/// of the same name are joined, because it is not known which of them will be used.
fn add_variables(node: &Node, variables: &mut BTreeMap<String, String>, arguments: &mut Vec<String>) {
    let mut add = |name: &str, value: &str| {
        let known = variables.entry(name.to_owned()).or_default();
        if !known.is_empty() && !value.is_empty() {
            known.push(':');
        }
        known.push_str(value);
    };
    let Some(entries) = node.entries() else {
        for text in node.scalar().into_iter().chain(texts_of(node)).collect::<BTreeSet<_>>() {
            match text.split_once('=') {
                Some((name, value)) => add(name, value),
                None => arguments.push(text),
            }
        }
        return;
    };
    for Entry { name, node, .. } in entries {
        let values = node.scalar().map_or_else(|| texts_of(node), |value| vec![value]);
        for value in values {
            add(name, &value);
        }
    }
}

/// Cuts a text to the number of bytes that are left.
fn cut(text: &mut String, left: &mut usize) {
    let most = (*left).min(text.len());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.truncate(end);
    *left -= end;
}

/// Returns the defaults of the inputs that the texts name. A default applies if nobody answers.
fn defaults_in<'t>(texts: impl Iterator<Item = &'t String>, inputs: &Inputs) -> Vec<(String, SecretString)> {
    let templates: Vec<Template> = texts.map(|text| Template::lenient(text)).collect();
    let named: BTreeSet<&str> = templates.iter().flat_map(Template::inputs).collect();
    let named = inputs.usable.iter().filter(|input| named.contains(input.id.as_str()));
    named.filter_map(|input| Some((input.id.clone(), input.default.clone()?))).collect()
}

/// Returns all texts of a part of an entry, whatever its shape. Empty texts are left out.
fn texts_of(node: &Node) -> Vec<String> {
    let mut found = Vec::new();
    add_texts(node, &mut found);
    found
}

fn add_texts(node: &Node, found: &mut Vec<String>) {
    match &node.value {
        Value::Text(text) if !text.is_empty() => found.push(text.clone()),
        Value::List(items) => items.iter().for_each(|item| add_texts(item, found)),
        Value::Object(entries) => entries.iter().for_each(|entry| add_texts(&entry.node, found)),
        Value::Text(_) | Value::Null | Value::Boolean(_) | Value::Number(_) | Value::Foreign => {}
    }
}

/// Converts a server whose entry is not used, such as an earlier entry, to a server without a box. The variables that the box sets become
/// variables of the server, and the paths that the box gets become roots.
pub(crate) fn out_of_force(server: &ServerDefinition) -> ServerDefinition {
    let mut transport = server.transport.clone();
    if let (Transport::Stdio { environment, .. }, Some(BoxDefinition::On(settings))) = (&mut transport, &server.in_box) {
        environment.retain(|(name, _)| !settings.environment.contains_key(name));
        environment.extend(settings.environment.iter().map(|(name, value)| (name.clone(), SecretString::from(value.as_str()))));
    }
    let given = match &server.in_box {
        Some(BoxDefinition::On(settings)) => settings.read.iter().chain(&settings.write),
        Some(BoxDefinition::Off) | None => [].iter().chain(&[]),
    };
    let roots = server.roots.iter().chain(given).cloned().collect();
    let input_defaults = server.input_defaults.clone();
    ServerDefinition { roots, input_defaults, ..dormant(server.name.clone(), server.source.clone(), transport, server.origin.clone()) }
}

fn dormant(name: String, source: ServerSource, transport: Transport, origin: Origin) -> ServerDefinition {
    ServerDefinition {
        name,
        source,
        transport,
        origin,
        // Nobody asks for an input of a server that does not start.
        secret_inputs: Vec::new(),
        input_defaults: Vec::new(),
        input_descriptions: Vec::new(),
        in_box: None,
        filter: ToolFilter::default(),
        call_timeout_ms: None,
        connect_timeout_ms: None,
        disabled: true,
        confirm: Confirm::default(),
        reads: Vec::new(),
        pin_executable: false,
        pin_values: false,
        pinned: false,
        schema_violations: None,
        argument_checks: None,
        parallel: Parallel::default(),
        resource_filter: UriFilter::default(),
        prompt_filter: ToolFilter::default(),
        allow_insecure_http: false,
        elicits: false,
        idle_timeout_ms: None,
        keep_alive_ms: None,
        max_call_timeout_ms: None,
        protocol_version: None,
        roots: Vec::new(),
        keywords: Vec::new(),
        capabilities: Vec::new(),
        required_environment: Vec::new(),
        description: None,
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::super::parse::parse_text;
    use super::*;

    /// Returns all that the entry names, as it is written.
    fn written(entry: &str) -> String {
        let inputs = r#"[{ "type": "promptString", "id": "hook", "default": "/ws/hook.mjs" }]"#;
        let config = parse_text(&format!(r#"{{ "inputs": {inputs}, "mcpServers": {{ "a": {entry} }} }}"#), "config.json", 20).unwrap();
        let Some(server) = config.invalid[0].as_written.clone() else { return String::new() };
        let Transport::Stdio { command, arguments, environment, working_directory, environment_file, .. } = &server.transport else {
            panic!("it is a process")
        };
        let pair = |(name, value): &(String, SecretString)| format!("{name}={}", value.expose_secret());
        let variables = environment.iter().chain(&server.input_defaults).map(pair);
        let files =
            environment_file.iter().map(|file| format!("file {file}")).chain(working_directory.iter().map(|folder| format!("in {folder}")));
        let parts = [command.clone()].into_iter().chain(arguments.clone()).chain(variables).chain(files);
        parts.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn all_that_an_entry_names_is_read_in_any_shape() {
        for (entry, expected) in [
            (r#""node /ws/x.mjs""#, "node /ws/x.mjs|node /ws/x.mjs"),
            (r#"["node", "/ws/x.mjs"]"#, "node|/ws/x.mjs"),
            (r#"{ "command": "node /ws/x.mjs", "timeoutMs": "?" }"#, "node /ws/x.mjs|node /ws/x.mjs|?"),
            (r#"{ "command": "/ws/x ${file}" }"#, "/ws/x ${file}|/ws/x ${file}"),
            (r#"{ "command": "n", "args": ["--import=/ws/x.mjs ${command:pick}", ""] }"#, "n|--import=/ws/x.mjs ${command:pick}"),
            (r#"{ "command": "n", "env": ["A=/ws/x", "A=/ws/y", "word"] }"#, "n|word|A=/ws/x:/ws/y"),
            (r#"{ "command": "n", "env": "A=/ws/x" }"#, "n|A=/ws/x"),
            (r#"{ "command": "n", "env": { "A": ["/ws/x", ["/ws/y"]], "B": 1, "C": "${file}/z" } }"#, "n|A=/ws/x:/ws/y|B=1|C=${file}/z"),
            (r#"{ "command": "n", "envFile": ["/ws/x", "/ws/y"] }"#, "n|/ws/y|file /ws/x"),
            (r#"{ "command": "n", "envFile": "/ws/x${command:x}" }"#, "n|file /ws/x${command:x}"),
            (r#"{ "command": "n", "cwd": ["/ws", "/other"] }"#, "n|/other|in /ws"),
            (r#"{ "command": "n", "cwd": "/ws${file}" }"#, "n|/ws${file}"),
            (r#"{ "command": "n", "args": ["${input:hook}"] }"#, "n|${input:hook}|hook=/ws/hook.mjs"),
            (r#"{ "url": 1 }"#, ""),
            ("1", ""),
        ] {
            assert_eq!(written(entry), expected, "{entry}");
        }
    }
}
