//! Reads what an entry names, although the entry cannot be used. A later version of the entry may take the same files.

use secrecy::SecretString;

use super::boxes::BoxDefinition;
use super::definition::{Confirm, Origin, Parallel, ServerDefinition, ToolFilter, Transport};
use super::filters::UriFilter;
use super::source::ServerSource;
use super::template::Template;
use super::tree::{Entry, Node, Value};

/// Keys of an entry that are read by themselves, and keys that name no files. All other texts of an entry with errors count as arguments.
const READ_BY_THEMSELVES: [&str; 10] = ["command", "envFile", "cwd", "env", "box", "roots", "url", "headers", "oauth", "description"];

/// Returns the command, arguments, variables and files of an entry with errors, as far as they can be read, whatever their shape. Nothing may start
/// such a server: its definition says only which files belong to it. `None` if the entry names none.
pub(super) fn as_written(entry: &Entry, origin: Origin) -> Option<ServerDefinition> {
    let node = &entry.node;
    let is_readable = |text: &str| !text.is_empty() && Template::parse(text).is_ok();
    let text = |key: &str| node.get(key).and_then(Node::text).filter(|text| is_readable(text)).map(str::to_owned);
    let [environment_file, working_directory] = ["envFile", "cwd"].map(text);
    // The command of an entry can be a list, as in the configs of some programs.
    let mut words = Vec::new();
    node.get("command").into_iter().for_each(|node| texts(node, &mut words));
    let command = (!words.is_empty()).then(|| words.remove(0));
    for entry in node.entries().unwrap_or_default().iter().filter(|entry| !READ_BY_THEMSELVES.contains(&entry.name.as_str())) {
        texts(&entry.node, &mut words);
    }
    let in_box = |key: &str| node.get("box").and_then(|in_box| in_box.get(key));
    let mut given = Vec::new();
    [node.get("roots"), in_box("read"), in_box("write")].into_iter().flatten().for_each(|node| texts(node, &mut given));
    words.retain(|text| is_readable(text));
    given.retain(|text| is_readable(text));
    let variables = [node.get("env"), in_box("env")].into_iter().flatten().filter_map(Node::entries).flatten();
    let variables: Vec<_> = variables.filter_map(|Entry { name, node, .. }| Some((name.clone(), node.scalar()?))).collect();
    if command.is_none() && environment_file.is_none() && words.is_empty() && variables.is_empty() {
        return None;
    }
    let transport = Transport::Stdio {
        command: command.filter(|command| is_readable(command)).unwrap_or_default(),
        arguments: words,
        environment: variables
            .into_iter()
            .filter(|(_, value)| Template::parse(value).is_ok())
            .map(|(name, value)| (name, SecretString::from(value)))
            .collect(),
        removed_environment: Vec::new(),
        working_directory,
        environment_file,
    };
    Some(ServerDefinition { roots: given, ..dormant(entry.name.clone(), ServerSource::default(), transport, origin) })
}

/// Adds all texts of a part of an entry, whatever its shape.
fn texts(node: &Node, found: &mut Vec<String>) {
    match &node.value {
        Value::Text(text) => found.push(text.clone()),
        Value::List(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(entries) => entries.iter().for_each(|entry| texts(&entry.node, found)),
        Value::Null | Value::Boolean(_) | Value::Number(_) | Value::Foreign => {}
    }
}

/// Converts a server that is not in force to one without a box. The variables that its box sets become variables of the server, and the paths that
/// its box is given become roots.
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
    ServerDefinition { roots, ..dormant(server.name.clone(), server.source.clone(), transport, server.origin.clone()) }
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
