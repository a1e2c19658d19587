//! Reads what an entry names, although the entry cannot be used. A later version of the entry may take the same files.

use secrecy::SecretString;

use super::boxes::BoxDefinition;
use super::definition::{Confirm, Origin, Parallel, ServerDefinition, ToolFilter, Transport};
use super::filters::UriFilter;
use super::source::ServerSource;
use super::template::Template;
use super::tree::{Entry, Node};

/// Returns the command, arguments, variables and files of an entry with errors, as far as they can be read. Nothing may start such a server: its
/// definition says only which files belong to it. `None` if the entry names none.
pub(super) fn as_written(entry: &Entry, origin: Origin) -> Option<ServerDefinition> {
    let node = &entry.node;
    let is_readable = |text: &&str| !text.is_empty() && Template::parse(text).is_ok();
    let text = |key: &str| node.get(key).and_then(Node::text).filter(is_readable).map(str::to_owned);
    let [command, environment_file, working_directory] = ["command", "envFile", "cwd"].map(text);
    if command.is_none() && environment_file.is_none() {
        return None;
    }
    let arguments = node.get("args").and_then(Node::items).unwrap_or_default().iter().filter_map(Node::text).filter(is_readable);
    let variables = node.get("env").and_then(Node::entries).unwrap_or_default().iter();
    let variables = variables.filter_map(|Entry { name, node, .. }| Some((name.clone(), node.scalar()?)));
    let transport = Transport::Stdio {
        command: command.unwrap_or_default(),
        arguments: arguments.map(str::to_owned).collect(),
        environment: variables
            .filter(|(_, value)| Template::parse(value).is_ok())
            .map(|(name, value)| (name, SecretString::from(value)))
            .collect(),
        removed_environment: Vec::new(),
        working_directory,
        environment_file,
    };
    Some(dormant(entry.name.clone(), ServerSource::default(), transport, origin))
}

/// Converts a server that is not in force to one without a box. The variables that its box sets become variables of the server.
pub(crate) fn out_of_force(server: &ServerDefinition) -> ServerDefinition {
    let mut transport = server.transport.clone();
    if let (Transport::Stdio { environment, .. }, Some(BoxDefinition::On(settings))) = (&mut transport, &server.in_box) {
        environment.retain(|(name, _)| !settings.environment.contains_key(name));
        environment.extend(settings.environment.iter().map(|(name, value)| (name.clone(), SecretString::from(value.as_str()))));
    }
    dormant(server.name.clone(), server.source.clone(), transport, server.origin.clone())
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
