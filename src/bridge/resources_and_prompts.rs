//! Gives a guest access to resources and prompts: `resources`, `read`, `prompts` and `prompt` of `host:mcp`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::arguments::check_sendable;
use super::parallel::turn_of_read;
use super::server_calls::ServerCalls;
use super::shape::Shaper;
use crate::catalog::{HostFields, Manifest, PromptArgument, unshown_prompt, unshown_uri};
use crate::client::ResourceOrPromptRequest;
use crate::error::{Error, Result};
use crate::sandbox::{Arguments, HostAnswer, HostReply, RunControl, Value};
use crate::trust::{shown_prompt, shown_resource, shown_template};

/// A request about a resource or a prompt that will be sent.
#[derive(Debug)]
pub struct ResourceOrPromptCall {
    pub server: String,
    pub request: ResourceOrPromptRequest,
    /// Control of the run to which the request belongs. The run's clock stops while a person is asked.
    pub control: Option<RunControl>,
}

/// Sender of requests about resources and prompts. An implementation handles approval, connections and time-outs.
pub trait ResourceOrPromptCaller: Send + Sync {
    /// Returns the server's result as JSON, without conversion. Dropping the future cancels the request.
    fn request_resource_or_prompt(&self, call: ResourceOrPromptCall) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>>;
}

/// A resource or a resource template, as an entry of a list that agent code or agents get. The URI is exactly the URI of the server.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceEntry {
    pub server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// The template of the URI. A resource template has this field instead of `uri`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri_template: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Fields for an MCP host. Agent code does not get these fields.
    #[serde(skip)]
    pub host: HostFields,
}

/// A prompt, as an entry of a list that agent code or agents get. The name is exactly the name that the server uses.
#[derive(Debug, Clone, Serialize)]
pub struct PromptEntry {
    pub server: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub arguments: Vec<PromptArgument>,
    /// Fields for an MCP host. Agent code does not get these fields.
    #[serde(skip)]
    pub host: HostFields,
}

/// Returns the resources of a server, followed by its resource templates. If an approval request would not show a URI completely, the
/// entry is left out.
#[must_use]
pub fn resource_entries(server: &str, manifest: &Manifest, max_chars: usize) -> Vec<ResourceEntry> {
    let resources = manifest.resources.iter().filter(|resource| unshown_uri(&resource.uri).is_none()).map(|resource| {
        let shown = shown_resource(resource, max_chars);
        ResourceEntry {
            server: server.to_owned(),
            uri: Some(resource.uri.clone()),
            uri_template: None,
            name: shown.name,
            title: shown.title,
            description: shown.description,
            mime_type: shown.mime_type,
            host: shown.host,
        }
    });
    let templates = manifest.resource_templates.iter().filter(|template| unshown_uri(&template.uri_template).is_none()).map(|template| {
        let shown = shown_template(template, max_chars);
        ResourceEntry {
            server: server.to_owned(),
            uri: None,
            uri_template: Some(template.uri_template.clone()),
            name: shown.name,
            title: shown.title,
            description: shown.description,
            mime_type: shown.mime_type,
            host: shown.host,
        }
    });
    resources.chain(templates).collect()
}

/// Returns a server's prompts. If an approval request would not show the prompt's name or the names of its arguments completely, the
/// prompt is left out.
#[must_use]
pub fn prompt_entries(server: &str, manifest: &Manifest, max_chars: usize) -> Vec<PromptEntry> {
    let entry = |prompt| {
        let shown = shown_prompt(prompt, max_chars);
        PromptEntry {
            server: server.to_owned(),
            name: prompt.name.clone(),
            title: shown.title,
            description: shown.description,
            // These names are not changed, because a caller uses them to pass arguments. A prompt with a name that sanitising would change
            // is left out.
            arguments: prompt
                .arguments
                .iter()
                .zip(shown.arguments)
                .map(|(raw, shown)| PromptArgument { name: raw.name.clone(), ..shown })
                .collect(),
            host: shown.host,
        }
    };
    manifest.prompts.iter().filter(|prompt| unshown_prompt(prompt).is_none()).map(entry).collect()
}

/// Returns the arguments of a prompt. MCP only allows texts as arguments, so numbers and booleans are converted to text.
///
/// # Errors
/// `ERR_INVALID_ARGUMENTS`, `ERR_ARGUMENTS_TOO_LARGE`.
pub fn prompt_arguments(what: &str, given: Map<String, Json>, limit: usize) -> Result<Map<String, Json>> {
    let mut texts = Map::new();
    for (name, value) in given {
        let text = match value {
            Json::String(text) => text,
            Json::Number(number) => number.to_string(),
            Json::Bool(flag) => flag.to_string(),
            Json::Null => continue,
            Json::Array(_) | Json::Object(_) => {
                return Err(Error::InvalidArguments {
                    what: what.into(),
                    problem: format!("expected texts, but \"{name}\" is not a text").into(),
                });
            }
        };
        texts.insert(name, Json::String(text));
    }
    check_sendable(what, &texts, limit)?;
    Ok(texts)
}

/// Converts the content of a resource for the guest: to one embedded resource, to a list if there are several, or to `null` if there is
/// none. Also returns a warning if text was cut.
fn shape_contents(what: &str, result: &Json, limit: usize) -> Result<(Value, Option<String>)> {
    let mut shaper = Shaper::new(what, limit);
    let contents = result.get("contents").and_then(Json::as_array).ok_or_else(|| malformed(what, "contents"))?;
    let value = match contents.as_slice() {
        [] => Value::Null,
        [one] => shaper.resource(one)?,
        several => Value::List(several.iter().map(|content| shaper.resource(content)).collect::<Result<_>>()?),
    };
    Ok((value, shaper.warning()))
}

/// Converts a prompt that the server has filled in to `{ description?, messages: [{ role, content }] }`. Also returns a warning if text
/// was cut.
fn shape_prompt(what: &str, result: &Json, limit: usize) -> Result<(Value, Option<String>)> {
    let mut shaper = Shaper::new(what, limit);
    let mut fields = Vec::new();
    if let Some(description) = result.get("description").and_then(Json::as_str) {
        fields.push(("description".to_owned(), Value::Text(shaper.take_text(description))));
    }
    let messages = result.get("messages").and_then(Json::as_array).ok_or_else(|| malformed(what, "messages"))?;
    let mut message = |message: &Json| {
        let content = match message.get("content") {
            Some(Json::Array(blocks)) => shaper.blocks(blocks)?,
            Some(block) => shaper.block(block)?,
            None => Value::Null,
        };
        let role = message.get("role").and_then(Json::as_str).unwrap_or_default();
        Ok(Value::record([("role", Value::from(role)), ("content", content)]))
    };
    let messages = messages.iter().map(&mut message).collect::<Result<_>>()?;
    fields.push(("messages".to_owned(), Value::List(messages)));
    Ok((Value::Record(fields), shaper.warning()))
}

/// A validated request, with the function that converts the result of the request.
struct PreparedRequest {
    /// Name of the request in errors.
    what: String,
    server: String,
    request: ResourceOrPromptRequest,
    shape: Shape,
}

/// Converts a result to a value for the guest, within a limit of bytes. Also returns a warning if text was cut.
type Shape = fn(&str, &Json, usize) -> Result<(Value, Option<String>)>;

fn malformed(what: &str, missing: &str) -> Error {
    let (server, tool) = what.split_once('.').unwrap_or((what, ""));
    Error::UnusableAnswer { server: server.to_owned(), tool: tool.into(), problem: format!("it has no {missing}").into() }
}

impl ServerCalls {
    /// Implements `resources(server?)` and `prompts(server?)`. Each of the two returns a list, or throws an error with a code.
    pub(super) fn list_resources_or_prompts(&self, function: &str, arguments: Arguments) -> HostReply {
        let max_chars = self.limits.max_description_chars;
        let outcome = match function {
            "resources" => self.listed("resources", arguments, |server, manifest| resource_entries(server, manifest, max_chars)),
            _ => self.listed("prompts", arguments, |server, manifest| prompt_entries(server, manifest, max_chars)),
        };
        outcome.map_or_else(|error| self.throw(error), HostReply::Value)
    }

    /// Implements `read(server, uri)` and `prompt(server, name, arguments?)`. Each of the two returns a value, or throws an error with a
    /// code.
    pub(super) fn start_resource_or_prompt_request(
        self: &Arc<Self>,
        function: &str,
        arguments: Arguments,
        control: &RunControl,
    ) -> HostAnswer {
        let wanted = if function == "read" { self.read(arguments) } else { self.prompt(arguments) };
        let PreparedRequest { what, server, request, shape } = match wanted {
            Ok(wanted) => wanted,
            Err(error) => return HostAnswer::Ready(self.throw(error)),
        };
        let turn = self.lanes.enter(&server, turn_of_read(self.concurrency(&server)));
        let sent =
            self.resources_and_prompts.request_resource_or_prompt(ResourceOrPromptCall { server, request, control: Some(control.clone()) });
        let waiting = control.wait_for_turn();
        let this = Arc::clone(self);
        HostAnswer::Later(Box::pin(async move {
            let held = turn.await;
            drop(waiting);
            let result = sent.await;
            drop(held);
            match result.and_then(|result| shape(&what, &result, this.limits.max_response_bytes)) {
                Ok((value, warning)) => {
                    this.warn(warning);
                    HostReply::Value(value)
                }
                Err(error) => this.throw(error),
            }
        }))
    }

    fn read(&self, arguments: Arguments) -> Result<PreparedRequest> {
        let mut given = given("read", arguments, self.limits.max_argument_bytes)?.into_iter();
        let (Some(Value::Text(server)), Some(Value::Text(uri)), None) = (given.next(), given.next(), given.next()) else {
            return Err(invalid("read", "expected read(server, uri)"));
        };
        self.manifest(&server)?;
        let what = format!("{server}.{uri}");
        Ok(PreparedRequest { what, server, request: ResourceOrPromptRequest::Read { uri }, shape: shape_contents })
    }

    fn prompt(&self, arguments: Arguments) -> Result<PreparedRequest> {
        let limit = self.limits.max_argument_bytes;
        let mut given = given("prompt", arguments, limit)?.into_iter();
        let (Some(Value::Text(server)), Some(Value::Text(name)), fields, None) = (given.next(), given.next(), given.next(), given.next())
        else {
            return Err(invalid("prompt", "expected prompt(server, name, { … })"));
        };
        self.manifest(&server)?;
        let what = format!("{server}.{name}");
        let fields = match fields.map(Value::into_json) {
            None => Map::new(),
            Some(Json::Object(fields)) => fields,
            Some(_) => return Err(invalid(&what, "expected one object, or no argument")),
        };
        let arguments = prompt_arguments(&what, fields, limit)?;
        Ok(PreparedRequest { what, server, request: ResourceOrPromptRequest::Prompt { name, arguments }, shape: shape_prompt })
    }

    /// Returns the entries of one server, or of all servers if the guest does not name a server.
    pub(super) fn listed<T: Serialize>(
        &self,
        what: &str,
        arguments: Arguments,
        entries: impl Fn(&str, &Manifest) -> Vec<T>,
    ) -> Result<Value> {
        let wanted = match given(what, arguments, self.limits.max_argument_bytes)?.as_slice() {
            [] => None,
            [Value::Text(server)] => Some(server.clone()),
            _ => return Err(invalid(what, "expected a server's name, or no argument")),
        };
        if let Some(server) = &wanted {
            self.manifest(server)?;
        }
        let shown = self.manifests.iter().filter(|(server, _)| wanted.as_ref().is_none_or(|wanted| wanted == *server));
        let all: Vec<T> = shown.flat_map(|(server, manifest)| entries(server, manifest)).collect();
        let list = serde_json::to_value(all).map_err(|error| Error::Internal(error.to_string().into()))?;
        Ok(Value::from(self.capped(format!("the list of {what}"), list)?))
    }
}

pub(super) fn given(what: &str, arguments: Arguments, limit: usize) -> Result<Vec<Value>> {
    match arguments {
        Arguments::Given(given) => Ok(given),
        Arguments::Oversize(size) => Err(Error::ArgumentsTooLarge { what: what.into(), size, limit }),
        Arguments::Invalid(problem) => Err(invalid(what, &format!("expected values that JSON can represent: {problem}"))),
    }
}

pub(super) fn invalid(what: &str, problem: &str) -> Error {
    Error::InvalidArguments { what: what.into(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(fields: &[(&str, &str)]) -> Value {
        Value::Record(fields.iter().map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect())
    }

    #[test]
    fn one_content_is_an_embedded_resource_and_several_are_a_list() {
        let text = json!({ "uri": "a:b", "mimeType": "text/plain", "text": "x" });
        let blob = json!({ "uri": "a:c", "blob": "AAEC" });
        let shaped = |contents: Json| shape_contents("s.a:b", &json!({ "contents": contents }), 99).unwrap();
        let one = record(&[("uri", "a:b"), ("mimeType", "text/plain"), ("text", "x")]);
        assert_eq!(shaped(json!([text])), (one.clone(), None));
        let bytes = Value::record([("uri", Value::from("a:c")), ("data", Value::Bytes(vec![0, 1, 2]))]);
        assert_eq!(shaped(json!([text, blob])), (Value::List(vec![one, bytes]), None));
        assert_eq!(shaped(json!([])), (Value::Null, None));
    }

    #[test]
    fn text_over_the_limit_is_cut_and_bytes_are_refused() {
        let result = json!({ "contents": [{ "uri": "a:b", "text": "x".repeat(300) }] });
        let (value, warning) = shape_contents("s.a:b", &result, 200).unwrap();
        let Value::Record(fields) = value else { panic!("no record") };
        assert!(matches!(&fields[1].1, Value::Text(text) if text.len() <= 200 && text.ends_with("limits.maxResponseBytes]")));
        assert!(warning.unwrap().contains("s.a:b"));
        let blob = json!({ "contents": [{ "uri": "a:b", "blob": "A".repeat(400) }] });
        assert_eq!(shape_contents("s.a:b", &blob, 200).unwrap_err().code(), "ERR_RESPONSE_TOO_LARGE");
    }

    #[test]
    fn a_prompts_messages_hold_content_as_results_do() {
        let result = json!({ "description": "d", "messages": [
            { "role": "user", "content": { "type": "text", "text": "hi" } },
            { "role": "assistant", "content": { "type": "resource", "resource": { "uri": "a:b", "text": "x" } } },
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "image", "mimeType": "i/p", "data": "AA==" }] },
        ] });
        let (value, warning) = shape_prompt("s.p", &result, 99).unwrap();
        let message = |role: &str, content: Value| Value::record([("role", Value::from(role)), ("content", content)]);
        let image = Value::record([("mimeType", Value::from("i/p")), ("data", Value::Bytes(vec![0]))]);
        let messages = vec![
            message("user", Value::from("hi")),
            message("assistant", record(&[("uri", "a:b"), ("text", "x")])),
            message("user", Value::List(vec![Value::from("a"), image])),
        ];
        assert_eq!(value, Value::record([("description", Value::from("d")), ("messages", Value::List(messages))]));
        assert_eq!(warning, None);
    }

    #[test]
    fn an_answer_that_is_none_names_the_server_and_what_is_missing() {
        let error = shape_contents("s.a:b", &json!({}), 9).unwrap_err();
        assert_eq!((error.code(), error.in_full().contains("s.a:b")), ("ERR_PROTOCOL", true), "{error}");
        assert!(shape_prompt("s.p", &json!({ "messages": 1 }), 9).unwrap_err().in_full().contains("messages"));
    }

    #[test]
    fn a_prompt_is_filled_in_with_texts() {
        let fields = |given: Json| prompt_arguments("s.p", given.as_object().unwrap().clone(), 40);
        assert_eq!(
            json!(fields(json!({ "a": "x", "n": 3, "b": true, "none": null })).unwrap()),
            json!({ "a": "x", "n": "3", "b": "true" })
        );
        assert_eq!(fields(json!({ "a": ["x"] })).unwrap_err().code(), "ERR_INVALID_ARGUMENTS");
        assert_eq!(fields(json!({ "a": "x".repeat(40) })).unwrap_err().code(), "ERR_ARGUMENTS_TOO_LARGE");
    }

    #[test]
    fn entries_keep_what_calls_are_made_with_if_it_was_shown_and_sanitise_the_rest() {
        let manifest: Manifest = serde_json::from_value(json!({
            "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [],
            "resources": [{ "uri": "a:`*/b", "name": "n\u{200b}", "description": "\u{202e}d" }, { "uri": "a:\u{200b}b", "name": "n" }],
            "resourceTemplates": [{ "uriTemplate": "a:{x}", "name": "t" }, { "uriTemplate": format!("a:{}{{x}}", "b".repeat(999)), "name": "t" }],
            "prompts": [
                { "name": "`p*/", "arguments": [{ "name": "`x*/", "description": "\u{202e}d", "required": true }] },
                { "name": "p\u{200b}" }, { "name": "p".repeat(201) }, { "name": "p", "arguments": [{ "name": "x".repeat(201) }] },
            ],
        }))
        .unwrap();
        assert_eq!(
            json!(resource_entries("s", &manifest, 99)),
            json!([{ "server": "s", "uri": "a:`*/b", "name": "n", "description": "d" }, { "server": "s", "uriTemplate": "a:{x}", "name": "t" }])
        );
        let arguments = json!([{ "name": "`x*/", "description": "d", "required": true }]);
        assert_eq!(json!(prompt_entries("s", &manifest, 99)), json!([{ "server": "s", "name": "`p*/", "arguments": arguments }]));
    }
}
