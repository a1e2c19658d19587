//! Resources and prompts: their lists, and the requests that read a resource, get a prompt, or complete an argument.

use std::future::Future;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, CustomRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, PaginatedRequestParams,
    ServerCapabilities,
};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};

use super::discovery::unlisted;
use super::request_scope::RequestScope;
use super::rounds::{GivenInput, Round, RoundsResult};
use super::tools::TASK_UNASKED;
use super::{Connection, host_fields, paging};
use crate::catalog::{HostFields, Prompt, Resource, ResourceTemplate};
use crate::client::clock::CallLimits;
use crate::client::http::raw_result;
use crate::client::inbound::caller::Caller;
use crate::client::wire::answer::CallFailure;
use crate::error::Result;

/// Longest URI or name of a resource, a template or a prompt.
const MAX_NAME_BYTES: usize = 8 * 1024;

/// The server's lists of resources, resource templates and prompts.
#[derive(Debug, Default)]
pub(in crate::client) struct ResourcesAndPrompts {
    pub(in crate::client) resources: Vec<Resource>,
    pub(in crate::client) resource_templates: Vec<ResourceTemplate>,
    pub(in crate::client) prompts: Vec<Prompt>,
}

/// A request about a resource or a prompt. Its URIs and names are those that the server listed.
#[derive(Debug, Clone, PartialEq)]
pub enum ResourceOrPromptRequest {
    Read {
        uri: String,
    },
    Prompt {
        name: String,
        /// Arguments of the prompt, as strings.
        arguments: Map<String, Json>,
    },
    /// Requests possible values for an argument of a prompt or for a variable of a template.
    Complete {
        of: Completed,
        argument: String,
        value: String,
        /// Values that were chosen earlier for other arguments, as strings. The keys are the names of the arguments.
        context: Map<String, Json>,
    },
}

/// The prompt or template whose argument is completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completed {
    /// A prompt, by its name.
    Prompt(String),
    /// A resource template, by its `uriTemplate`.
    Template(String),
}

/// The methods of requests other than tool calls. Questions, permissions, denials and the audit name such a request by its method, in the
/// place of a tool's name. So no tool may have one of these names.
pub(crate) const REQUEST_METHODS: [&str; 5] =
    ["resources/read", "prompts/get", "completion/complete", "resources/subscribe", "resources/unsubscribe"];

impl ResourceOrPromptRequest {
    /// Returns the MCP method of the request.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Read { .. } => "resources/read",
            Self::Prompt { .. } => "prompts/get",
            Self::Complete { .. } => "completion/complete",
        }
    }

    fn params(&self) -> Json {
        match self {
            Self::Read { uri } => json!({ "uri": uri }),
            Self::Prompt { name, arguments } if arguments.is_empty() => json!({ "name": name }),
            Self::Prompt { name, arguments } => json!({ "name": name, "arguments": arguments }),
            Self::Complete { of, argument, value, context } => {
                let reference = match of {
                    Completed::Prompt(name) => json!({ "type": "ref/prompt", "name": name }),
                    Completed::Template(text) => json!({ "type": "ref/resource", "uri": text }),
                };
                let mut params = json!({ "ref": reference, "argument": { "name": argument, "value": value } });
                if !context.is_empty() {
                    params["context"] = json!({ "arguments": context });
                }
                params
            }
        }
    }

    /// Makes rmcp's typed request if the parameters fit its type, because rmcp derives HTTP headers and `_meta` from the type. Otherwise makes an
    /// untyped request.
    fn request(&self, input: &GivenInput) -> ClientRequest {
        let mut params = self.params();
        if let Some(responses) = &input.responses {
            params["inputResponses"] = json!(responses);
        }
        if let Some(state) = &input.state {
            params["requestState"] = json!(state);
        }
        let typed = json!({ "method": self.method(), "params": params });
        let custom = |_| ClientRequest::CustomRequest(CustomRequest::new(self.method(), Some(params)));
        serde_json::from_value(typed).unwrap_or_else(custom)
    }
}

impl Round for ResourceOrPromptRequest {
    async fn send(&self, connection: &Connection, scope: &RequestScope<'_>, input: &GivenInput) -> std::result::Result<Json, CallFailure> {
        connection.exchange(scope, self.request(input)).await
    }
}

/// Reads the lists of resources, resource templates and prompts that the server's capabilities announce.
pub(in crate::client) async fn discover(
    server: &str,
    peer: &Peer<RoleClient>,
    capabilities: &ServerCapabilities,
) -> Result<ResourcesAndPrompts> {
    let mut resources_and_prompts = ResourcesAndPrompts::default();
    if capabilities.resources.is_some() {
        let resources = |params| ClientRequest::ListResourcesRequest(ListResourcesRequest { params, ..Default::default() });
        let listed = list(server, "resources", |cursor| page(peer, resources(cursor))).await?;
        resources_and_prompts.resources = items(server, "resource", &listed, |resource: &Resource| &resource.uri);
        for resource in &mut resources_and_prompts.resources {
            resource.host = host_fields::kept(server, std::mem::take(&mut resource.host));
        }
        let templates = |params| ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest { params, ..Default::default() });
        let listed = list(server, "resourceTemplates", |cursor| page(peer, templates(cursor))).await?;
        resources_and_prompts.resource_templates = items(server, "template", &listed, |template: &ResourceTemplate| &template.uri_template);
        for template in &mut resources_and_prompts.resource_templates {
            // A template stands for many resources, so it has no size.
            template.host = HostFields { size: None, ..host_fields::kept(server, std::mem::take(&mut template.host)) };
        }
    }
    if capabilities.prompts.is_some() {
        let prompts = |params| ClientRequest::ListPromptsRequest(ListPromptsRequest { params, ..Default::default() });
        let listed = list(server, "prompts", |cursor| page(peer, prompts(cursor))).await?;
        resources_and_prompts.prompts = items(server, "prompt", &listed, |prompt: &Prompt| &prompt.name);
        for prompt in &mut resources_and_prompts.prompts {
            let HostFields { icons, meta, .. } = host_fields::kept(server, std::mem::take(&mut prompt.host));
            prompt.host = HostFields { icons, meta, ..HostFields::default() };
        }
    }
    Ok(resources_and_prompts)
}

/// Reads all pages of a list. An error from the server is treated as an empty list, because many servers announce resources but do not
/// know resource templates.
async fn list<P>(server: &str, kind: &str, request: impl Fn(Option<PaginatedRequestParams>) -> P) -> Result<Vec<Json>>
where
    P: Future<Output = std::result::Result<Json, ServiceError>>,
{
    let refused = |error: ServiceError| match error {
        ServiceError::McpError(error) => {
            tracing::debug!(server, kind, %error, "the server answered with an error, so its list counts as empty");
            Ok(json!({}))
        }
        error => Err(unlisted(server, kind, &error)),
    };
    let read = |cursor: Option<String>| {
        let answer = request(cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor))));
        async { answer.await.or_else(refused) }
    };
    paging::collect(server, kind, read).await
}

async fn page(peer: &Peer<RoleClient>, request: ClientRequest) -> std::result::Result<Json, ServiceError> {
    let handle = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
    handle.await_response().await.map(raw_result)
}

/// Parses a list's entries, and leaves out those that are malformed.
fn items<T: DeserializeOwned>(server: &str, kind: &str, listed: &[Json], name: impl Fn(&T) -> &String) -> Vec<T> {
    let parse = |entry: &Json| {
        let parsed = serde_json::from_value::<T>(entry.clone()).ok();
        let parsed = parsed.filter(|item| (1..=MAX_NAME_BYTES).contains(&name(item).len()));
        if parsed.is_none() {
            tracing::warn!(server, "a malformed {kind} was left out");
        }
        parsed
    };
    listed.iter().filter_map(parse).collect()
}

impl Connection {
    /// Sends a request with all its rounds of input, and returns the server's result unparsed. Dropping the future cancels the request.
    ///
    /// # Errors
    /// Same errors as [`Connection::call`].
    pub async fn request_resource_or_prompt(
        &self,
        request: &ResourceOrPromptRequest,
        limits: CallLimits,
        caller: &Arc<dyn Caller>,
    ) -> std::result::Result<Json, CallFailure> {
        let scope = self.enter(request.method(), limits, caller).await?;
        match self.in_rounds(&scope, request).await? {
            RoundsResult::Complete(result) => Ok(result),
            RoundsResult::Task(_) => Err(self.unusable(&scope, TASK_UNASKED)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_request_is_the_protocols_own() {
        let text = |name: &str, value: &str| Map::from_iter([(name.to_owned(), json!(value))]);
        let complete = ResourceOrPromptRequest::Complete {
            of: Completed::Template("a:{x}".into()),
            argument: "x".into(),
            value: "1".into(),
            context: text("y", "2"),
        };
        for (request, expected) in [
            (ResourceOrPromptRequest::Read { uri: "a:b".into() }, json!({ "method": "resources/read", "params": { "uri": "a:b" } })),
            (
                ResourceOrPromptRequest::Prompt { name: "p".into(), arguments: text("x", "1") },
                json!({ "method": "prompts/get", "params": { "name": "p", "arguments": { "x": "1" } } }),
            ),
            (
                ResourceOrPromptRequest::Prompt { name: "p".into(), arguments: Map::new() },
                json!({ "method": "prompts/get", "params": { "name": "p" } }),
            ),
            (
                complete,
                json!({ "method": "completion/complete", "params": {
                    "ref": { "type": "ref/resource", "uri": "a:{x}" },
                    "argument": { "name": "x", "value": "1" },
                    "context": { "arguments": { "y": "2" } },
                } }),
            ),
        ] {
            let sent = request.request(&GivenInput::default());
            assert!(!matches!(sent, ClientRequest::CustomRequest(_)), "{expected}");
            assert_eq!(serde_json::to_value(&sent).unwrap(), expected);
        }
    }

    #[test]
    fn what_a_server_asked_for_goes_back_with_its_state() {
        let read = ResourceOrPromptRequest::Read { uri: "a:b".into() };
        let answers = BTreeMap::from([("q".to_owned(), json!({ "action": "decline" }))]);
        let sent = serde_json::to_value(read.request(&GivenInput { responses: Some(answers), state: Some("sealed".into()) })).unwrap();
        assert_eq!(sent["params"], json!({ "uri": "a:b", "inputResponses": { "q": { "action": "decline" } }, "requestState": "sealed" }));
    }

    #[test]
    fn a_malformed_entry_is_left_out_and_the_others_stay() {
        let listed = [
            json!({ "uri": 1, "name": "x" }),
            json!({ "uri": "a:b", "name": "ok", "vendor": 1 }),
            json!({ "uri": "", "name": "x" }),
            json!(null),
        ];
        let kept = items("s", "resource", &listed, |resource: &Resource| &resource.uri);
        assert_eq!(kept.iter().map(|resource| resource.uri.as_str()).collect::<Vec<_>>(), ["a:b"]);
        let prompts = [json!({ "name": "p", "arguments": [{ "name": "a", "required": true }] }), json!({ "name": "q", "arguments": 5 })];
        let kept = items("s", "prompt", &prompts, |prompt: &Prompt| &prompt.name);
        assert!(kept.len() == 1 && kept[0].arguments[0].required);
    }

    #[tokio::test]
    async fn a_list_that_is_refused_is_an_empty_one() {
        let refuse =
            |_| async { Err(ServiceError::McpError(rmcp::model::ErrorData::new(rmcp::model::ErrorCode::METHOD_NOT_FOUND, "no", None))) };
        assert!(list("s", "resources", refuse).await.unwrap().is_empty());
        let lost = |_| async { Err(ServiceError::TransportClosed) };
        assert!(list("s", "resources", lost).await.unwrap_err().in_full().contains("its resources cannot be listed"));
    }
}
