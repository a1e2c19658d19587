//! What a person must see before yes.

use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::Value as Json;

use super::approvals::Lack;
use super::audit::{Finding, audit_manifest};
use super::digest::{manifest_digest, tool_digest};
use super::drift::{Difference, Drift, differences};
use super::executable::Executable;
use super::offers::{
    MAX_NAME_CHARS, PromptSummary, ResourceSummary, ResourceTemplateSummary, filter_warnings, prompt_summaries, resource_summaries,
    template_summaries,
};
use super::sanitise::{sanitise_json, sanitise_line, sanitise_text};
use super::subject::Subject;
use crate::catalog::{Manifest, Tool};
use crate::config::{Confirm, OAuthDefinition, Part, Placeholder, ServerDefinition, Template, Transport};

const FULL_RIGHTS_WARNING: &str =
    "the server's process runs with your full permissions, outside of the sandbox: it can read, change and send what you can";
const REMOTE_WARNING: &str = "what is sent to this address leaves your machine; its operator sees every argument and decides every answer";
/// What stands before a credential, and is none.
const SCHEMES: [&str; 4] = ["Bearer ", "Basic ", "Token ", "ApiKey "];
/// Where a server starts for which the config says nothing.
const WORKSPACE: &str = "${workspaceFolder}";

/// Everything that a person must see, at one of the two stages.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "stage", rename_all = "lowercase")]
pub enum ApprovalRequest {
    /// Nothing has been started.
    Command(Box<CommandRequest>),
    /// The server was started, and its tools were read.
    Manifest(Box<ManifestRequest>),
}

/// Stage 1: what would run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "they are the config's own, and no states of one thing")]
pub struct CommandRequest {
    pub server: String,
    pub approved: bool,
    /// What `approve(server, digest)` says yes to.
    pub digest: String,
    /// Why what was approved before no longer holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lapsed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// As the config writes it; the workspace folder where it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The folder in which alone a yes holds: a path in the entry leads elsewhere in another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_folder: Option<String>,
    /// The program that the command names now, and its content's SHA-256; missing where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<Executable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Names with masked values, as the config writes them: `${TOKEN}` stays.
    pub environment: Vec<String>,
    /// As `environment`.
    pub headers: Vec<String>,
    /// How tokens are got for the server: names and values, the secret ones masked. Missing where the config says nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth: Option<Vec<String>>,
    pub confirm: Confirm,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_tools: Option<Vec<String>>,
    pub deny_tools: Vec<String>,
    /// URIs, exact or with `*` at their end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_resources: Option<Vec<String>>,
    pub deny_resources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_prompts: Option<Vec<String>>,
    pub deny_prompts: Vec<String>,
    /// `http://` to more than this machine.
    pub allow_insecure_http: bool,
    /// Folders that the server is told of.
    pub roots: Vec<String>,
    pub pin_executable: bool,
    pub pin_values: bool,
    pub warning: &'static str,
}

/// Stage 2: what a model would read and call. All of it is sanitised; the digest is of what the server said.
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
    /// What looks like an attempt to talk to the model rather than to describe a tool.
    pub findings: Vec<Finding>,
    /// Names in `allowTools` and `denyTools` that the server does not have, for example.
    pub warnings: Vec<String>,
    /// What is different from the manifest that was approved before, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<ManifestChanges>,
}

/// A tool, as a person is shown it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSummary {
    /// The raw name, with what cannot be seen in it taken away.
    pub name: String,
    /// What agent code writes.
    pub identifier: String,
    /// Of this tool alone: it tells whether the tool has changed.
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
}

/// Raw names, and what is different in what changed.
#[derive(Debug, Clone, Serialize)]
pub struct ManifestChanges {
    #[serde(flatten)]
    pub drift: Drift,
    pub differences: Vec<Difference>,
}

impl CommandRequest {
    /// Stage 1 for a server.
    #[must_use]
    pub fn new(server: &ServerDefinition, subject: &Subject, lack: Option<Lack>) -> Self {
        let (mut command, mut args, mut cwd, mut url, mut env_file) = (None, None, None, None, None);
        let (mut environment, mut headers, mut oauth) = (Vec::new(), Vec::new(), None);
        let warning = match &server.transport {
            Transport::Stdio {
                command: program,
                arguments,
                environment: values,
                removed_environment,
                working_directory,
                environment_file,
            } => {
                (command, args) = (Some(program.clone()), Some(arguments.clone()));
                let here = subject.folder.as_ref().map_or_else(|| WORKSPACE.to_owned(), |folder| folder.display().to_string());
                cwd = Some(working_directory.clone().unwrap_or(here));
                env_file.clone_from(environment_file);
                environment = masked(values);
                environment.extend(removed_environment.iter().map(|name| format!("{name} (not passed on)")));
                FULL_RIGHTS_WARNING
            }
            Transport::Http { url: address, headers: values, oauth: settings } => {
                url = Some(mask_address(address));
                oauth = settings.as_deref().map(oauth_lines);
                headers = masked(values);
                REMOTE_WARNING
            }
        };
        Self {
            server: server.name.clone(),
            approved: lack.is_none(),
            digest: subject.shown_digest.clone(),
            lapsed: lack.filter(|lack| *lack != Lack::Never).map(|lack| lack.to_string()),
            command,
            args,
            cwd,
            workspace_folder: subject.folder.as_ref().map(|folder| folder.display().to_string()),
            executable: subject.executable.clone(),
            env_file,
            url,
            environment,
            headers,
            oauth,
            confirm: server.confirm,
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
            warning,
        }
    }
}

impl ManifestRequest {
    /// Stage 2 for a server whose tools were just read. `live` is all that it has, `manifest` what the config's filters let through.
    #[must_use]
    pub fn new(server: &ServerDefinition, manifest: &Manifest, live: &Manifest, before: Option<&Manifest>, max_chars: usize) -> Self {
        let text = |text: &String| sanitise_text(text, max_chars);
        let digest = manifest_digest(manifest);
        Self {
            server: server.name.clone(),
            approved: before.is_some_and(|before| manifest_digest(before) == digest),
            digest,
            server_name: sanitise_line(&manifest.server_name, MAX_NAME_CHARS),
            server_version: sanitise_line(&manifest.server_version, MAX_NAME_CHARS),
            protocol_version: sanitise_line(&manifest.protocol_version, MAX_NAME_CHARS),
            instructions: manifest.instructions.as_ref().map(text),
            tools: summaries(manifest, max_chars),
            resources: resource_summaries(manifest, max_chars),
            resource_templates: template_summaries(manifest, max_chars),
            prompts: prompt_summaries(manifest, max_chars),
            findings: audit_manifest(manifest),
            warnings: filter_warnings(server, live),
            changes: before.map(|before| changes(before, manifest, max_chars)),
        }
    }
}

fn summaries(manifest: &Manifest, max_chars: usize) -> Vec<ToolSummary> {
    let identifiers = manifest.identifiers();
    let summary = |tool: &Tool| ToolSummary {
        name: sanitise_line(&tool.name, MAX_NAME_CHARS),
        identifier: identifiers.get(&tool.name).cloned().unwrap_or_default(),
        digest: tool_digest(tool),
        title: tool.title.as_ref().map(|title| sanitise_line(title, MAX_NAME_CHARS)),
        description: tool.description.as_ref().map(|text| sanitise_text(text, max_chars)),
        input_schema: sanitise_json(&tool.input_schema, max_chars),
        output_schema: tool.output_schema.as_ref().map(|schema| sanitise_json(schema, max_chars)),
        annotations: tool.annotations.as_ref().map(|hints| sanitise_json(hints, max_chars)),
    };
    manifest.tools.iter().map(summary).collect()
}

fn changes(before: &Manifest, now: &Manifest, max_chars: usize) -> ManifestChanges {
    let json = |json: Option<Json>| json.map(|json| sanitise_json(&json, max_chars));
    let line = |text: &String| sanitise_line(text, MAX_NAME_CHARS);
    let shown = |difference: Difference| Difference {
        item: difference.item.map_name(line),
        before: json(difference.before),
        after: json(difference.after),
        field: difference.field,
    };
    ManifestChanges {
        drift: Drift::between(before, now).map_names(line),
        differences: differences(before, now).into_iter().map(shown).collect(),
    }
}

fn masked(values: &[(String, SecretString)]) -> Vec<String> {
    values.iter().map(|(name, value)| format!("{name}={}", mask(value.expose_secret()))).collect()
}

fn oauth_lines(oauth: &OAuthDefinition) -> Vec<String> {
    let secret = |value: &Option<SecretString>| value.as_ref().map(|value| mask(value.expose_secret()));
    let lines = [
        ("grant", Some(oauth.grant.name().to_owned())),
        ("clientId", oauth.client_id.clone()),
        ("clientSecret", secret(&oauth.client_secret)),
        // Its first characters would only say that it is a key.
        (
            "privateKey",
            oauth
                .private_key
                .as_ref()
                .map(|key| if key.expose_secret().contains("-----") { "***".to_owned() } else { mask(key.expose_secret()) }),
        ),
        ("signingAlgorithm", oauth.signing_algorithm.map(|algorithm| algorithm.name().to_owned())),
        ("scopes", (!oauth.scopes.is_empty()).then(|| oauth.scopes.join(" "))),
        ("clientMetadataUrl", oauth.client_metadata_url.as_deref().map(mask_address)),
        ("callbackPort", oauth.callback_port.map(|port| port.to_string())),
    ];
    lines.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect()
}

/// At most four characters, and never more than a quarter of the value. What is only a placeholder is no secret.
fn mask(value: &str) -> String {
    if let Some(shown) = Template::parse(value).ok().as_ref().and_then(mask_around) {
        return shown;
    }
    let shown = (value.chars().count() / 4).min(4);
    format!("{}***", value.chars().take(shown).collect::<String>())
}

/// A value with placeholders: they are shown by their names, and so is the scheme before them; what stands between them is masked.
fn mask_around(template: &Template) -> Option<String> {
    let is_placeholder = |part: &Part| matches!(part, Part::Placeholder { .. });
    template.parts().iter().any(is_placeholder).then(|| template.parts().iter().map(mask_part).collect())
}

fn mask_part(part: &Part) -> String {
    match part {
        Part::Literal(text) if SCHEMES.iter().any(|scheme| text.eq_ignore_ascii_case(scheme)) => (*text).to_owned(),
        Part::Literal(_) => "***".to_owned(),
        Part::Placeholder { source, meaning: Placeholder::Variable { default: Some(_), .. } } => {
            let name = source.split_once(":-").map_or(*source, |(name, _)| name);
            format!("{name}:-***}}")
        }
        Part::Placeholder { source, .. } => (*source).to_owned(),
    }
}

/// A user and a password in an address, and what follows its path, are not for a screen.
fn mask_address(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (rest, query) = rest.split_once(['?', '#']).map_or((rest, ""), |(rest, _)| (rest, "?***"));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or_else(|| host.to_owned(), |(_, host)| format!("***@{host}"));
    format!("{scheme}://{host}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_shows_at_most_a_quarter_and_four_characters() {
        assert_eq!(mask("sk-live-0123456789"), "sk-l***");
        assert_eq!(mask("12345678"), "12***");
        assert_eq!(mask("abc"), "***");
        assert_eq!(mask("éééééééé"), "éé***");
    }

    #[test]
    fn a_placeholder_is_shown_by_its_name_and_its_default_is_not() {
        assert_eq!(mask("${TOKEN}"), "${TOKEN}");
        assert_eq!(mask("\\${env:TOKEN}"), "\\${env:TOKEN}");
        assert_eq!(mask("${TOKEN:-hunter2hunter2}"), "${TOKEN:-***}");
        assert_eq!(mask("Bearer ${TOKEN}"), "Bearer ${TOKEN}");
        assert_eq!(mask("bearer \\${env:TOKEN:-hunter2hunter2}"), "bearer \\${env:TOKEN:-***}");
        assert_eq!(mask("hunter2hunter2${USER}:${input:password}"), "***${USER}***${input:password}");
    }

    #[test]
    fn what_oauth_is_given_is_shown_and_its_secrets_are_masked() {
        let text = r#"{ "servers": { "a": { "url": "https://example.com/mcp", "oauth": {
            "clientId": "me", "clientSecret": "hunter2hunter2", "scopes": ["a", "b"], "callbackPort": 7 } },
            "b": { "url": "https://example.com/mcp", "oauth": { "grant": "client_credentials", "clientId": "${ID}",
            "privateKey": "-----BEGIN PRIVATE KEY-----x", "signingAlgorithm": "ES256" } } } }"#;
        let shown = |index: usize| match &crate::config::parse_text(text, "c", 9).unwrap().servers[index].transport {
            Transport::Http { oauth, .. } => oauth_lines(oauth.as_ref().unwrap()),
            Transport::Stdio { .. } => panic!(),
        };
        let lines = ["grant=authorization_code", "clientId=me", "clientSecret=hun***", "scopes=a b", "callbackPort=7"];
        assert_eq!(shown(0), lines);
        assert_eq!(shown(1), ["grant=client_credentials", "clientId=${ID}", "privateKey=***", "signingAlgorithm=ES256"]);
    }

    #[test]
    fn an_address_is_shown_without_what_may_be_secret_in_it() {
        assert_eq!(mask_address("https://ada:pass@example.com/mcp?token=1"), "https://***@example.com/mcp?***");
        assert_eq!(mask_address("https://example.com/mcp"), "https://example.com/mcp");
        assert_eq!(mask_address("https://example.com?key=secret"), "https://example.com?***");
    }
}
