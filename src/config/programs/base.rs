//! A base layer: the servers of another program's config, in a layer under the operator's own config. The file of the other program is read
//! each time, not copied.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{FreeNames, Program, ProgramServer, renamed_inputs, servers_in, starts_gateway, valid_name};
use crate::config::{Config, InputDefinition, InvalidServer, ServerDefinition, ServerSource, SourceKind, out_of_force, parse_object};
use crate::error::Error;
use crate::redact::Redactor;

/// Maximum number of servers that are used from one file, which is also the maximum of `limits.maxServers`. That limit counts only the operator's own
/// servers.
const MAX_SERVERS: usize = 1_000;
/// Maximum number of problems of one entry that its error lists.
const MAX_PROBLEMS: usize = 5;
/// Maximum number of warnings about one program's files. Each is an event for the operator.
const MAX_WARNINGS: usize = 100;

/// A file of a base, as it was read.
#[derive(Debug, Clone)]
pub struct BaseFile {
    /// The path, for messages.
    pub path: String,
    /// The text of the file. `None` if there is no such file. The error is a sentence for a person.
    pub content: Result<Option<String>, String>,
}

/// The servers of another program's config, in a layer under the operator's own config.
#[derive(Debug, Clone, Default)]
pub struct BaseLayer {
    pub source: ServerSource,
    pub servers: Vec<ServerDefinition>,
    pub invalid: Vec<InvalidServer>,
    /// The servers of later files that servers of earlier files hide. None of them can be used. They only say which files belong to them.
    pub hidden: Vec<Arc<ServerDefinition>>,
    /// The inputs of these servers. Each id begins with the name of the program, so that an answer for an input of the operator's config is
    /// never used for them.
    pub inputs: Vec<InputDefinition>,
    /// Problems of the files, and remarks on parts that were omitted.
    pub warnings: Vec<String>,
}

/// Reads the servers of a base from its files. A server in an earlier file hides servers of the same name in later files. A file with an
/// error causes a warning, and the other files are used. `folder` selects the project in a config for several projects. `inputs` are the
/// ids that the layers above already use.
///
/// ```
/// use hyperlight_mcp::config::{BaseFile, Program, base_layer};
/// let text = r#"{ "mcpServers": { "My Files": { "command": "npx", "args": ["server-files"] } } }"#;
/// let file = BaseFile { path: "~/.claude.json".to_owned(), content: Ok(Some(text.to_owned())) };
/// let layer = base_layer(Program::ClaudeCode, &[file], "/work", &[]);
/// assert_eq!(layer.servers[0].key(), "config:claude-code:my-files");
/// ```
#[must_use]
pub fn base_layer(program: Program, files: &[BaseFile], folder: &str, inputs: &[String]) -> BaseLayer {
    let source = ServerSource::named(SourceKind::Config, program.word());
    let mut layer = BaseLayer { source, ..BaseLayer::default() };
    let mut ids: HashSet<String> = inputs.iter().cloned().collect();
    let mut owners: HashMap<String, String> = HashMap::new();
    let mut exists = false;
    let mut read = Vec::new();
    // The later files are the user's own. Their inputs get their ids first, so that a file of a repository does not change these ids.
    for BaseFile { path, content } in files.iter().rev() {
        let servers = match content {
            Ok(None) => continue,
            Ok(Some(text)) => servers_in(program, text, Some(folder), MAX_SERVERS + 1),
            Err(problem) => Err(problem.clone()),
        };
        read.push((path, servers.map(|(servers, declared)| (servers, renamed(program, declared, &mut ids)))));
    }
    for (path, read) in read.into_iter().rev() {
        exists = true;
        match read {
            Ok((mut servers, declared)) => {
                if servers.len() > MAX_SERVERS {
                    servers.truncate(MAX_SERVERS);
                    layer
                        .warnings
                        .push(format!("base {}: {path} has more than {MAX_SERVERS} servers: the rest is not used", program.word()));
                }
                let NamedServers { used, hidden } = named(servers, path, &mut owners);
                layer.add(path, used, declared);
                layer.hidden.extend(hidden.into_iter().filter_map(|(name, server)| names_of_hidden(&name, &server, path, &layer.source)));
            }
            Err(problem) => layer.warnings.push(format!("base {}: {path} cannot be read: {problem}", program.word())),
        }
    }
    if !exists {
        let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
        layer.warnings.push(format!("base {}: there is no config of {} ({})", program.word(), program.title(), paths.join(", ")));
    }
    let more = layer.warnings.len().saturating_sub(MAX_WARNINGS);
    layer.warnings.truncate(MAX_WARNINGS);
    layer.warnings.extend((more > 0).then(|| format!("base {}: {more} more warnings", program.word())));
    layer
}

impl BaseLayer {
    /// Adds the servers of one file.
    fn add(&mut self, path: &str, servers: Vec<(String, ProgramServer)>, RenamedInputs { ids, declared }: RenamedInputs) {
        let mut entries = Map::new();
        for (name, ProgramServer { entry, notes, .. }) in servers {
            self.warnings.extend(notes.iter().map(|note| format!("{path}: {name}: {note}")));
            entries.insert(name, renamed_inputs(&entry, &|id| ids.get(id).cloned()));
        }
        let mut document = json!({ "inputs": declared });
        document["mcpServers"] = Json::Object(entries);
        match parse_object(&document, path, usize::MAX) {
            Ok(config) => self.take(config),
            Err(error) => self.warnings.push(readable(&error)),
        }
    }

    fn take(&mut self, config: Config) {
        let source = &self.source;
        let of_source = |server| ServerDefinition { source: source.clone(), ..server };
        self.servers.extend(config.servers.into_iter().map(of_source));
        self.invalid.extend(config.invalid.into_iter().map(|server| {
            let [without_box, as_written] =
                [&server.without_box, &server.as_written].map(|server| server.as_deref().map(|server| Arc::new(of_source(server.clone()))));
            InvalidServer { source: source.clone(), without_box, as_written, error: shortened(server.error), ..server }
        }));
        self.inputs.extend(config.inputs);
        self.warnings.extend(config.warnings);
    }
}

/// Returns the error of an entry with its first problems. The list of all servers contains these errors, and anybody can commit a file with very
/// many entries.
fn shortened(error: Error) -> Error {
    let Error::ConfigInvalid { file, problems } = error else { return error };
    Error::ConfigInvalid { file, problems: problems.first(MAX_PROBLEMS) }
}

/// Returns the message of an error in a file. No gateway is open yet, so no secret is known for redaction. But the parser's messages never
/// quote a value.
fn readable(error: &Error) -> String {
    error.clone().redacted(&Redactor::new(None, None)).to_string()
}

/// Returns the server of an entry that an earlier file hides, to show which files the entry names. Its inputs have no values, because
/// nobody is asked for them.
fn names_of_hidden(name: &str, server: &ProgramServer, path: &str, source: &ServerSource) -> Option<Arc<ServerDefinition>> {
    let mut config = parse_object(&json!({ "mcpServers": { name: server.entry } }), path, 1).ok()?;
    let invalid = config.invalid.pop().and_then(|server| server.as_written).map(|server| ServerDefinition::clone(&server));
    let server = config.servers.pop().or(invalid)?;
    Some(Arc::new(out_of_force(&ServerDefinition { source: source.clone(), ..server })))
}

/// The servers of a file, with valid names.
#[derive(Default)]
struct NamedServers {
    used: Vec<(String, ProgramServer)>,
    /// The servers whose names an earlier file already uses.
    hidden: Vec<(String, ProgramServer)>,
}

/// Gives each server of a file a valid name. Omits servers that start hyperlight-mcp itself.
fn named(servers: Vec<ProgramServer>, path: &str, owners: &mut HashMap<String, String>) -> NamedServers {
    let (mut named, mut free) = (NamedServers::default(), FreeNames::default());
    for server in servers.into_iter().filter(|server| !starts_gateway(&server.entry)) {
        let valid = valid_name(&server.name);
        if owners.get(&valid).is_some_and(|owner| owner != path) {
            named.hidden.push((valid, server));
            continue;
        }
        // Two names in one file may become equal when they are made valid.
        let valid = free.choose(&valid, |name| owners.contains_key(name));
        owners.insert(valid.clone(), path.to_owned());
        named.used.push((valid, server));
    }
    named
}

/// The inputs that a file declares, with changed ids.
struct RenamedInputs {
    /// The new ids, by the ids in the file.
    ids: HashMap<String, String>,
    declared: Vec<Json>,
}

/// Gives each input of a file a unique id. `taken` are the ids that are already in use.
fn renamed(program: Program, declared: Vec<Json>, taken: &mut HashSet<String>) -> RenamedInputs {
    let (mut ids, mut free) = (HashMap::new(), FreeNames::default());
    let rename = |mut input: Json| {
        if let Some(id) = input["id"].as_str().map(ToOwned::to_owned) {
            let new = ids.entry(id).or_insert_with_key(|id| {
                let new = free.choose(&format!("{}/{id}", program.word()), |name| taken.contains(name));
                taken.insert(new.clone());
                new
            });
            input["id"] = json!(new);
        }
        input
    };
    let declared = declared.into_iter().map(rename).collect();
    RenamedInputs { ids, declared }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Transport;

    fn file(path: &str, text: &str) -> BaseFile {
        BaseFile { path: path.to_owned(), content: Ok(Some(text.to_owned())) }
    }

    fn names(layer: &BaseLayer) -> Vec<&str> {
        layer.servers.iter().map(|server| server.name.as_str()).collect()
    }

    #[test]
    fn an_earlier_file_hides_a_later_one_and_a_wrong_one_hurts_no_other() {
        let files = [
            file("a", r#"{ "mcpServers": { "x": { "command": "first" }, "Y!": { "command": "y" }, "y": { "command": "z" } } }"#),
            file("b", "{ wrong"),
            BaseFile { path: "c".to_owned(), content: Ok(None) },
            BaseFile { path: "d".to_owned(), content: Err("permission denied".to_owned()) },
            file(
                "e",
                r#"{ "mcpServers": { "x": { "command": "second" }, "w": {}, "us": { "command": "hyperlight-mcp", "args": ["serve"] } } }"#,
            ),
        ];
        let layer = base_layer(Program::Cursor, &files, "/w", &[]);
        assert_eq!(names(&layer), ["x", "y", "y-2"]);
        assert_eq!(layer.servers[0].origin.file(), "a");
        assert!(layer.servers.iter().all(|server| server.key().starts_with("config:cursor:")));
        assert_eq!(layer.invalid.iter().map(|server| (server.name.as_str(), &server.source)).collect::<Vec<_>>(), [("w", &layer.source)]);
        assert_eq!(layer.warnings.len(), 2, "{:?}", layer.warnings);
        assert!(layer.warnings[0].starts_with("base cursor: b cannot be read: "), "{:?}", layer.warnings);
        assert_eq!(layer.warnings[1], "base cursor: d cannot be read: permission denied");
    }

    #[test]
    fn what_a_hidden_server_names_is_known_whether_its_entry_has_errors_or_not() {
        let hidden = r#"{ "mcpServers": {
            "x": { "command": "second", "envFile": "/1", "env": { "T": "${input:token}" } },
            "X": { "command": "third", "envFile": "/2" }, "y": { "url": "https://a.example/mcp" } } }"#;
        let files = [
            file("a", r#"{ "mcpServers": { "x": { "command": "first" }, "y": { "command": "first" } } }"#),
            file("b", hidden),
            file("c", hidden),
        ];
        let layer = base_layer(Program::ClaudeCode, &files, "/w", &[]);
        assert_eq!((names(&layer), layer.warnings.len(), layer.invalid.len()), (vec!["x", "y"], 0, 0), "{:?}", layer.warnings);
        let named = layer.hidden.iter().filter_map(|server| match &server.transport {
            Transport::Stdio { environment_file, .. } => Some((server.key(), environment_file.clone()?)),
            Transport::Http { .. } | Transport::Generated(_) => None,
        });
        let of = |file: &str| ("config:claude-code:x".to_owned(), file.to_owned());
        assert_eq!(named.collect::<Vec<_>>(), [of("/1"), of("/2"), of("/1"), of("/2")]);
    }

    #[test]
    fn a_file_of_very_many_servers_is_used_up_to_the_limit() {
        let with = |count: usize| {
            let servers: Map<String, Json> = (0..count).map(|number| (format!("s{number}"), json!({ "command": "x" }))).collect();
            base_layer(Program::Cursor, &[file("a", &json!({ "mcpServers": servers }).to_string())], "/w", &[])
        };
        let (most, more) = (with(MAX_SERVERS), with(MAX_SERVERS + 1));
        assert_eq!((most.servers.len(), most.warnings.len()), (MAX_SERVERS, 0));
        assert_eq!(more.servers.len(), MAX_SERVERS);
        assert_eq!(more.warnings, ["base cursor: a has more than 1000 servers: the rest is not used"]);
        let wrong: Map<String, Json> = (0..8).map(|number| (format!("A={number}"), json!(""))).collect();
        let wrong = json!({ "mcpServers": { "x": { "command": "x", "env": wrong } } }).to_string();
        let invalid = base_layer(Program::Cursor, &[file("a", &wrong)], "/w", &[]).invalid.remove(0);
        let Error::ConfigInvalid { problems, .. } = &invalid.error else { panic!("{:?}", invalid.error) };
        assert_eq!((problems.in_full().len(), problems.in_full()[5].problem.as_str()), (6, "3 more problems"));
        let keys: Map<String, Json> = (0..150).map(|number| (format!("k{number}"), json!(1))).collect();
        let odd = base_layer(Program::Cursor, &[file("a", &json!({ "mcpServers": { "x": keys } }).to_string())], "/w", &[]);
        assert_eq!((odd.warnings.len(), odd.warnings.last().map(String::as_str)), (101, Some("base cursor: 50 more warnings")));
    }

    /// Anybody can commit such a file.
    #[test]
    fn an_entry_that_names_an_input_very_often_delays_nobody() {
        let value = "${input:a}${input:undeclared}".repeat(20_000);
        let declared: Vec<Json> = (0..50_000).map(|number| json!({ "id": format!("i{number}"), "type": "promptString" })).collect();
        let text = json!({ "servers": { "x": { "command": "x", "env": { "A": value } } }, "inputs": declared }).to_string();
        let layer = crate::files::testing::at_once(move || base_layer(Program::Vscode, &[file("a", &text)], "/w", &[]));
        assert_eq!((layer.servers.len(), layer.invalid.len(), layer.warnings.len()), (0, 1, 1), "{:?}", layer.warnings);
    }

    #[test]
    fn a_file_of_a_repository_does_not_change_the_inputs_of_the_users_own_file() {
        let with = |name: &str| {
            let servers = json!({ name: { "command": "x", "env": { "T": "${input:token}" } } });
            file(name, &json!({ "servers": servers, "inputs": [{ "id": "token", "type": "promptString" }] }).to_string())
        };
        let layer = base_layer(Program::Vscode, &[with("repository"), with("own")], "/w", &[]);
        let ids = layer.servers.iter().map(|server| (server.name.as_str(), crate::config::inputs_of(server).concat()));
        let expected = [("repository", "vscode/token-2".to_owned()), ("own", "vscode/token".to_owned())];
        assert_eq!(ids.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_base_without_any_file_is_one_warning() {
        let files = [BaseFile { path: "a".to_owned(), content: Ok(None) }];
        let layer = base_layer(Program::ClaudeCode, &files, "/w", &[]);
        assert!(layer.servers.is_empty());
        assert_eq!(layer.warnings, ["base claude-code: there is no config of Claude Code (a)"]);
    }

    #[test]
    fn an_input_never_has_the_id_of_another_layer_or_file() {
        let text = |command: &str| {
            format!(
                r#"{{ "inputs": [{{ "type": "promptString", "id": "token" }}],
                     "servers": {{ "{command}": {{ "command": "{command}", "env": {{ "T": "${{input:token}}" }} }} }} }}"#
            )
        };
        let taken = ["vscode/token".to_owned()];
        let layer = base_layer(Program::Vscode, &[file("a", &text("one")), file("b", &text("two"))], "/w", &taken);
        assert_eq!(layer.inputs.iter().map(|input| input.id.as_str()).collect::<Vec<_>>(), ["vscode/token-3", "vscode/token-2"]);
        let used: Vec<_> = layer.servers.iter().flat_map(crate::config::inputs_of).collect();
        assert_eq!(used, ["vscode/token-3", "vscode/token-2"]);
        // An entry in a base cannot use an input of the operator's config.
        let foreign = r#"{ "servers": { "a": { "command": "x", "env": { "T": "${input:secret}" } } } }"#;
        let layer = base_layer(Program::Vscode, &[file("a", foreign)], "/w", &["secret".to_owned()]);
        assert!(layer.servers.is_empty() && layer.invalid.len() == 1);
    }
}
