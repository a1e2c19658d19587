//! Builds the approval requests. They contain everything that a person must see before an approval.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value as Json;

use super::approval_status::NotApprovedReason;
use super::digest::{manifest_digest, tool_digest};
use super::drift::{Difference, Drift, differences};
use super::executable::Executable;
use super::reads::{is_read_by_config, sounding_like_reads};
use super::resources_and_prompts::{
    PromptSummary, ResourceSummary, ResourceTemplateSummary, filter_warnings, prompt_summaries, resource_summaries, template_summaries,
    unoffered_warnings,
};
use super::shown::{METADATA_FIELD, URL_FIELD, addresses_of, header_lines, input_lines, oauth_lines};
use super::shown_environment::{ShownEnvironment, shown_variable_of};
use super::subject::Subject;
use super::text_audit::{Finding, audit_manifest_among};
use crate::boxes::{HOME, sentences};
use crate::catalog::{MAX_SHOWN_META_CHARS, MAX_SHOWN_NAME_CHARS as MAX_NAME_CHARS, Manifest, Tool, shown_literal_chars};
use crate::config::{
    Address, BoxBase, BoxDefinition, Confirm, GeneratedSecret, GeneratedTool, GeneratedTools, NEUTRAL_FOLDER, ServerDefinition, Transport,
};
use crate::fetch::{normal_host_entry, unicode_entries};
use crate::limits::MAX_WHOLE_DESCRIPTION_CHARS;
use crate::text::{escaped, has_invisible, sanitise_json, sanitise_line, sanitise_text};

const BOX_WARNING: &str =
    "the server's process runs in a box: it can read, change and send what is listed under box, and nothing else of yours";
const NO_BOX_WARNING: &str =
    "box is off: the server's process runs with your full permissions, outside of the sandbox: it can read, change and send what you can";
const REMOTE_WARNING: &str = "what is sent to this address leaves your machine; its operator sees every argument and decides every answer";

const GENERATED_WARNING: &str =
    "a model wrote this code: it runs in a micro-VM, and can send all data that it gets to the hosts that are listed here";

/// Everything that a person must see at one of the two stages.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "stage", rename_all = "lowercase")]
pub enum ApprovalRequest {
    /// Stage 1. Nothing has been started.
    Command(Box<CommandRequest>),
    /// Stage 2. The server was started, and its tools were read.
    Manifest(Box<ManifestRequest>),
}

impl ApprovalRequest {
    /// Returns whether the whole request is already approved.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        match self {
            Self::Command(request) => request.approved,
            Self::Manifest(request) => request.approved,
        }
    }

    /// Returns the digest to pass to `approve`.
    #[must_use]
    pub fn digest(&self) -> &str {
        match self {
            Self::Command(request) => &request.digest,
            Self::Manifest(request) => &request.digest,
        }
    }
}

/// Stage 1: the command that would run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate setting of the config")]
pub struct CommandRequest {
    pub server: String,
    pub approved: bool,
    /// The digest to pass to `approve(server, digest)`.
    pub digest: String,
    /// The agent that has added the server, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added: Option<Added>,
    /// The reason why an earlier approval is no longer valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lapsed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// The config's `cwd`. Without one, the workspace folder if an approval is valid only there. Otherwise the box's home if there is a
    /// box, and `/` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The only folder in which an approval is valid. In another folder, a path in the entry would refer to another file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_folder: Option<String>,
    /// The program that the command names now, and the SHA-256 of its content. `None` if there is no such program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<Executable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The host of `url` in Unicode, if it is not ASCII.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unicode_host: Option<String>,
    /// Placeholders that determine the host, the port or the scheme of `url`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_from: Vec<String>,
    /// Names and values as the config has them. Values of `loaders` are shown in full. Values of `redirectors` and URLs are shown without
    /// users and passwords. Other values that may be secret are masked. Placeholders such as `${TOKEN}` are shown.
    pub environment: Vec<String>,
    /// Names in `environment` that can make a program load or run code, or whose values are part of the code that `args` runs.
    pub loaders: Vec<String>,
    /// Names in `environment` whose values are part of the code that `args` runs, but may be secrets, so they are not shown in full.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hidden_in_code: Vec<String>,
    /// Names in `environment` that can redirect traffic or remove its protection.
    pub redirectors: Vec<String>,
    /// Defaults of the server's `${input:…}` placeholders, by the input's id. A default applies if nobody answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_defaults: Vec<String>,
    /// Questions of the server's `${input:…}` placeholders, by the input's id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_descriptions: Vec<String>,
    /// Names and masked values. URLs are not masked.
    pub headers: Vec<String>,
    /// The settings for access tokens as names and values, with secrets masked. `None` if the config has no such settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth: Option<Vec<String>>,
    /// The tools of a generated server, with their code and everything that it may reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated: Option<GeneratedTools>,
    /// For each host in `generated` that has letters outside of ASCII, its Unicode form. Such a form can look like another host.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unicode_hosts: BTreeMap<String, String>,
    /// Texts and code of `generated` that look like an attempt to influence a model or a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// True if a text of `generated` has invisible characters, which are written as escapes there.
    #[serde(skip)]
    pub has_invisible_code: bool,
    pub confirm: Confirm,
    /// Patterns of names. A tool whose annotations do not say what it does is a read if one of these patterns matches the tool's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_tools: Option<Vec<String>>,
    pub deny_tools: Vec<String>,
    /// URIs, either exact or with `*` at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_resources: Option<Vec<String>>,
    pub deny_resources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_prompts: Option<Vec<String>>,
    pub deny_prompts: Vec<String>,
    /// True if `http://` to machines other than this one is permitted.
    pub allow_insecure_http: bool,
    /// Folders that the server receives when it asks for roots.
    pub roots: Vec<String>,
    pub pin_executable: bool,
    pub pin_values: bool,
    /// Sentences about the files and hosts that the server's process may use. `None` if the process has the user's full rights.
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    pub in_box: Option<BoxRequest>,
    /// Sentences about files that this server runs, and that the boxes of other servers can change. Only the names of these servers are
    /// part of the digest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changeable_by: Vec<String>,
    /// True if the entry says that there is no box. Then the warning comes first.
    #[serde(skip)]
    pub is_without_box: bool,
    pub warning: &'static str,
}

/// How an agent has added a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Added {
    /// The agent, in words.
    pub by: String,
    /// The agent's own name for the server, which a model can choose. Invisible characters are written as escapes.
    pub display_name: String,
}

/// The box of a server, as it is shown.
#[derive(Debug, Clone, Serialize)]
pub struct BoxRequest {
    pub base: BoxBase,
    /// The files, hosts and resources that the process may use.
    pub allows: Vec<String>,
}

/// Stage 2: the texts that a model would read, and the tools that it would call. The texts are sanitised here, but the digest covers the
/// original texts.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestRequest {
    pub server: String,
    pub approved: bool,
    pub digest: String,
    pub server_name: String,
    pub server_version: String,
    pub protocol_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    pub tools: Vec<ToolSummary>,
    pub resources: Vec<ResourceSummary>,
    pub resource_templates: Vec<ResourceTemplateSummary>,
    pub prompts: Vec<PromptSummary>,
    /// Texts that look like an attempt to influence the model rather than to describe a tool.
    pub findings: Vec<Finding>,
    /// Warnings, for example about names in `allowTools` and `denyTools` that the server does not have.
    pub warnings: Vec<String>,
    /// Raw names of tools that sound like reads and have no annotations that say what they do. With `confirm: "writes"`, a person is asked
    /// before each of their calls, unless `reads` of the server's entry names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sounding_like_reads: Vec<String>,
    /// The differences from the last approved manifest, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<ManifestChanges>,
}

/// A tool in the form that is shown to a person.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSummary {
    /// The raw name without invisible characters.
    pub name: String,
    /// The name of the function in agent code.
    pub identifier: String,
    /// The digest of this tool alone. It shows whether the tool has changed.
    pub digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub input_schema: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Json>,
    /// True if the tool is a read only because `reads` of the server's entry names it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reads_by_config: bool,
    /// The tool's `_meta`. A host may act on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Json>,
    /// The tool's icons. A host may fetch them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Json>,
}

/// Raw names and differences of the changed items. The values are complete, with invisible characters written as escapes.
#[derive(Debug, Clone, Serialize)]
pub struct ManifestChanges {
    #[serde(flatten)]
    pub drift: Drift,
    pub differences: Vec<Difference>,
}

impl CommandRequest {
    // long: one line for each field.
    /// Creates the request of stage 1 for a server.
    #[must_use]
    pub fn new(server: &ServerDefinition, subject: &Subject, lack: Option<NotApprovedReason>) -> Self {
        let (mut command, mut args, mut cwd, mut url, mut env_file) = (None, None, None, None, None);
        let ShownEnvironment { lines, loaders, redirectors, hidden_in_code } = ShownEnvironment::of(server);
        let (mut headers, mut oauth, mut generated, mut has_invisible_code, mut in_box) = (Vec::new(), None, None, false, None);
        let workspace_folder = subject.folder.as_ref().map(|folder| folder.display().to_string());
        let warning = match &server.transport {
            Transport::Stdio {
                command: program,
                arguments,
                environment: _,
                removed_environment: _,
                working_directory,
                environment_file,
            } => {
                (command, args) = (Some(program.clone()), Some(arguments.clone()));
                cwd = working_directory
                    .clone()
                    .or_else(|| workspace_folder.clone())
                    .or_else(|| Some(start_folder(server.in_box.as_ref()).to_owned()));
                env_file.clone_from(environment_file);
                match &server.in_box {
                    None | Some(BoxDefinition::Off) => NO_BOX_WARNING,
                    Some(BoxDefinition::On(settings)) => {
                        in_box = Some(BoxRequest {
                            base: settings.base,
                            allows: sentences(settings, arguments, &server.roots, &|name, value| {
                                shown_variable_of(program, arguments, name, value)
                            }),
                        });
                        BOX_WARNING
                    }
                }
            }
            Transport::Http { url: _, headers: values, oauth: settings } => {
                url = address(server, subject, URL_FIELD);
                oauth = settings.as_deref().map(|settings| oauth_lines(settings, address(server, subject, METADATA_FIELD).as_ref()));
                headers = header_lines(values);
                REMOTE_WARNING
            }
            Transport::Generated(tools) => {
                generated = Some(shown_tools(tools));
                has_invisible_code = tools.tools.iter().any(has_invisible_text);
                GENERATED_WARNING
            }
        };
        Self {
            server: server.name.clone(),
            approved: lack.is_none(),
            digest: subject.shown_digest.clone(),
            added: None,
            lapsed: lack.filter(|lack| *lack != NotApprovedReason::Never).map(|lack| lack.to_string()),
            command,
            args,
            cwd,
            workspace_folder,
            executable: subject.executable.clone(),
            env_file,
            url: url.as_ref().map(|address| address.shown.clone()),
            unicode_host: url.as_ref().and_then(|address| address.unicode_host.clone()),
            host_from: url.map(|address| address.host_from).unwrap_or_default(),
            environment: lines,
            loaders,
            hidden_in_code,
            redirectors,
            input_defaults: input_lines(server),
            input_descriptions: server.input_descriptions.iter().map(|(id, description)| format!("{id}={description}")).collect(),
            headers,
            oauth,
            unicode_hosts: generated.as_ref().map(unicode_hosts).unwrap_or_default(),
            generated,
            findings: Vec::new(),
            has_invisible_code,
            confirm: server.confirm,
            reads: server.reads.clone(),
            allow_tools: server.filter.allow.clone(),
            deny_tools: server.filter.deny.clone(),
            allow_resources: server.resource_filter.allow.clone(),
            deny_resources: server.resource_filter.deny.clone(),
            allow_prompts: server.prompt_filter.allow.clone(),
            deny_prompts: server.prompt_filter.deny.clone(),
            allow_insecure_http: server.allow_insecure_http,
            roots: server.roots.clone(),
            pin_executable: server.pin_executable,
            pin_values: server.pin_values,
            in_box,
            changeable_by: Vec::new(),
            is_without_box: server.in_box == Some(BoxDefinition::Off),
            warning,
        }
    }
}

/// Returns the folder in which a command starts if its entry has no `cwd` and it does not depend on the workspace folder.
fn start_folder(in_box: Option<&BoxDefinition>) -> &'static str {
    match in_box {
        Some(BoxDefinition::On(_)) => HOME,
        Some(BoxDefinition::Off) | None => NEUTRAL_FOLDER,
    }
}

fn has_invisible_text(tool: &GeneratedTool) -> bool {
    let schema = tool.input_schema.to_string();
    [&tool.name, &tool.description, &schema, &tool.notes, &tool.code].into_iter().chain(&tool.endpoints).any(|text| has_invisible(text))
}

/// Returns generated tools as they are shown. Invisible characters are written as escapes, and all other characters stay.
fn shown_tools(tools: &GeneratedTools) -> GeneratedTools {
    let GeneratedTools { tools, hosts, private_hosts, secrets } = tools;
    let shown = |tool: &GeneratedTool| GeneratedTool {
        name: visible(&tool.name),
        description: visible(&tool.description),
        input_schema: told(&tool.input_schema),
        endpoints: tool.endpoints.iter().map(|endpoint| visible(endpoint)).collect(),
        notes: visible(&tool.notes),
        needs_network: tool.needs_network,
        read_only: tool.read_only,
        // A tab is an ordinary part of the code's layout, so it is not escaped.
        code: tool.code.split('\t').map(visible).collect::<Vec<_>>().join("\t"),
    };
    // Hosts are shown in ASCII, as requests contain them, because letters of other alphabets can look the same.
    let host = |text: &String| visible(&normal_host_entry(text));
    GeneratedTools {
        tools: tools.iter().map(shown).collect(),
        hosts: hosts.iter().map(host).collect(),
        private_hosts: private_hosts.iter().map(host).collect(),
        secrets: secrets
            .iter()
            .map(|secret| GeneratedSecret { name: visible(&secret.name), host: host(&secret.host), in_body: secret.in_body })
            .collect(),
    }
}

fn unicode_hosts(tools: &GeneratedTools) -> BTreeMap<String, String> {
    let GeneratedTools { tools: _, hosts, private_hosts, secrets } = tools;
    unicode_entries(hosts.iter().chain(private_hosts).chain(secrets.iter().map(|secret| &secret.host)))
}

/// Returns the address in this field. If the values of its variables are not known, the address is made only from the entry.
fn address(server: &ServerDefinition, subject: &Subject, field: &str) -> Option<Address> {
    let addresses = if subject.addresses.is_empty() { addresses_of(server, None) } else { subject.addresses.clone() };
    addresses.into_iter().find(|(known, _)| *known == field).map(|(_, address)| address)
}

impl ManifestRequest {
    /// Creates the request of stage 2 for a server whose tools were just read. `live` contains all items of the server. `manifest` contains
    /// only the items that the config's filters admit. `others` are the approved manifests of other servers, by name: the audit compares
    /// their tools with this server's tools.
    #[must_use]
    pub fn new(
        server: &ServerDefinition,
        manifest: &Manifest,
        live: &Manifest,
        before: Option<&Manifest>,
        others: &[(&str, &Manifest)],
        max_chars: usize,
    ) -> Self {
        // A model can read each description whole, by `describe`. So it is shown whole here.
        let shown_chars = max_chars.max(MAX_WHOLE_DESCRIPTION_CHARS);
        let text = |text: &String| sanitise_text(text, shown_chars);
        let digest = manifest_digest(manifest);
        Self {
            server: server.name.clone(),
            approved: before.is_some_and(|before| manifest_digest(before) == digest),
            digest,
            server_name: sanitise_line(&manifest.server_name, MAX_NAME_CHARS),
            server_version: sanitise_line(&manifest.server_version, MAX_NAME_CHARS),
            protocol_version: sanitise_line(&manifest.protocol_version, MAX_NAME_CHARS),
            instructions: manifest.instructions.as_ref().map(text),
            tools: summaries(manifest, &server.reads, shown_chars),
            resources: resource_summaries(manifest, shown_chars),
            resource_templates: template_summaries(manifest, shown_chars),
            prompts: prompt_summaries(manifest, shown_chars),
            findings: audit_manifest_among(manifest, others),
            warnings: [filter_warnings(server, live), unoffered_warnings(manifest, max_chars)].concat(),
            sounding_like_reads: sounding_like_reads(server, manifest),
            changes: before.map(|before| changes(before, manifest)),
        }
    }
}

fn summaries(manifest: &Manifest, reads: &[String], max_chars: usize) -> Vec<ToolSummary> {
    // Declarations contain names and literals of schemas in full, so schemas are not cut to `max_chars`.
    let schema = |schema: &Json| sanitise_json(schema, shown_literal_chars(max_chars));
    let identifiers = manifest.identifiers();
    let summary = |tool: &Tool| ToolSummary {
        name: sanitise_line(&tool.name, MAX_NAME_CHARS),
        identifier: identifiers.get(&tool.name).cloned().unwrap_or_default(),
        digest: tool_digest(tool),
        title: tool.title.as_ref().map(|title| sanitise_line(title, MAX_NAME_CHARS)),
        description: tool.description.as_ref().map(|text| sanitise_text(text, max_chars)),
        input_schema: schema(&tool.input_schema),
        output_schema: tool.output_schema.as_ref().map(schema),
        annotations: tool.annotations.as_ref().map(|hints| sanitise_json(hints, max_chars)),
        reads_by_config: is_read_by_config(tool, reads),
        meta: tool.meta.as_ref().map(|meta| sanitise_json(meta, MAX_SHOWN_META_CHARS)),
        icons: tool.icons.as_ref().map(|icons| sanitise_json(icons, MAX_SHOWN_META_CHARS)),
    };
    manifest.tools.iter().map(summary).collect()
}

fn changes(before: &Manifest, now: &Manifest) -> ManifestChanges {
    let line = |text: &String| sanitise_line(text, MAX_NAME_CHARS);
    let shown = |difference: Difference| Difference {
        item: difference.item.map_name(line),
        before: difference.before.as_ref().map(told),
        after: difference.after.as_ref().map(told),
        field: difference.field,
    };
    ManifestChanges {
        drift: Drift::between(before, now).map_names(line),
        differences: differences(before, now).into_iter().map(shown).collect(),
    }
}

/// Returns the complete JSON with invisible characters written as escapes. If it were sanitised and cut, two different values could look
/// the same.
fn told(json: &Json) -> Json {
    match json {
        Json::String(value) => Json::String(visible(value)),
        Json::Array(items) => items.iter().map(told).collect(),
        Json::Object(object) => object.iter().map(|(key, value)| (visible(key), told(value))).collect(),
        other => other.clone(),
    }
}

/// Returns the complete text with invisible and control characters written as escapes. Line breaks stay.
fn visible(text: &str) -> String {
    escaped(&text.replace("\\u{", "\\\\u{"))
}
