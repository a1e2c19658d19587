//! Requests for resources and prompts that do not come from a guest.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::availability::Viewer;
use super::request::Request;
use super::{Agent, ApprovalRead, CallOptions};
use crate::bridge::{PromptEntry, ResourceEntry, prompt_arguments, prompt_entries, resource_entries};
use crate::catalog::{Manifest, drop_reserved_keys, drop_reserved_keys_within};
use crate::client::{Completed, ResourceOrPromptRequest};
use crate::error::{Error, Result};
use crate::sandbox::Stop;

/// The maximum number of completion values that the protocol allows in one answer.
const MAX_COMPLETIONS: usize = 100;

impl Agent {
    /// Lists the approved resources and resource templates of a server. Starts no server.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_NOT_APPROVED`, `ERR_NOT_ENABLED`.
    pub fn resources(&self, name: &str) -> Result<Vec<ResourceEntry>> {
        Ok(resource_entries(name, &*self.usable(name)?, self.core.limits.max_description_chars))
    }

    /// Lists the approved prompts of a server. Starts no server.
    ///
    /// # Errors
    /// The errors of [`Agent::resources`].
    pub fn prompts(&self, name: &str) -> Result<Vec<PromptEntry>> {
        Ok(prompt_entries(name, &*self.usable(name)?, self.core.limits.max_description_chars))
    }

    /// Returns the part of a server's approved manifest that this agent sees. As long as the approved manifest and the agent's grants do
    /// not change, returns the same object (the same `Arc`). Starts no server.
    ///
    /// # Errors
    /// The errors of [`Agent::resources`].
    pub(crate) fn visible_manifest(&self, name: &str) -> Result<Arc<Manifest>> {
        self.usable(name)
    }

    /// Lists the resources, resource templates and prompts of a manifest that [`Agent::visible_manifest`] returned.
    pub(crate) fn entries(&self, name: &str, manifest: &Manifest) -> (Vec<ResourceEntry>, Vec<PromptEntry>) {
        let max_chars = self.core.limits.max_description_chars;
        (resource_entries(name, manifest, max_chars), prompt_entries(name, manifest, max_chars))
    }

    /// Reads a resource. Returns `{ contents, meta? }`.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_RESOURCE`, `ERR_RESOURCE_CHANGED`, and the errors of a call.
    pub async fn read_resource(&self, name: &str, uri: &str, options: CallOptions, stop: &Stop) -> Result<Json> {
        let request = Request::ResourceOrPrompt(ResourceOrPromptRequest::Read { uri: uri.to_owned() });
        let result = self.request_without_run(name, &request, options, stop).await?;
        shown(name, &request, &result, &["contents"], &[]).map_err(|error| self.core.redacted(error))
    }

    /// Gets a prompt with its arguments inserted. Returns `{ description?, messages, meta? }`.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_PROMPT`, `ERR_PROMPT_CHANGED`, `ERR_INVALID_ARGUMENTS`, and the errors of a call.
    pub async fn get_prompt(
        &self,
        name: &str,
        prompt: &str,
        arguments: Map<String, Json>,
        options: CallOptions,
        stop: &Stop,
    ) -> Result<Json> {
        let arguments = prompt_arguments(&format!("{name}.{prompt}"), arguments, self.core.limits.max_argument_bytes);
        let arguments = arguments.map_err(|error| self.core.redacted(error))?;
        let request = Request::ResourceOrPrompt(ResourceOrPromptRequest::Prompt { name: prompt.to_owned(), arguments });
        let result = self.request_without_run(name, &request, options, stop).await?;
        shown(name, &request, &result, &["messages"], &["description"]).map_err(|error| self.core.redacted(error))
    }

    /// Completes an argument of a prompt, or a variable of a resource template. Returns `{ values, total?, hasMore? }`.
    ///
    /// # Errors
    /// The errors of [`Agent::get_prompt`] and [`Agent::read_resource`].
    pub async fn complete(
        &self,
        name: &str,
        of: Completed,
        argument: (String, String),
        context: Map<String, Json>,
        options: CallOptions,
        stop: &Stop,
    ) -> Result<Json> {
        let limit = self.core.limits.max_argument_bytes;
        let context = prompt_arguments(&format!("{name}.completion/complete"), context, limit);
        let context = context.map_err(|error| self.core.redacted(error))?;
        let (argument, value) = argument;
        let request = Request::ResourceOrPrompt(ResourceOrPromptRequest::Complete { of, argument, value, context });
        let result = self.request_without_run(name, &request, options, stop).await?;
        let completion = result.get("completion").cloned().unwrap_or_default();
        let completion = shown(name, &request, &completion, &["values"], &["total", "hasMore"]);
        let mut completion = completion.map_err(|error| self.core.redacted(error))?;
        if let Some(values) = completion.get_mut("values").and_then(Json::as_array_mut) {
            values.truncate(MAX_COMPLETIONS);
        }
        Ok(completion)
    }

    pub(super) fn usable(&self, name: &str) -> Result<Arc<Manifest>> {
        self.identity.check_open()?;
        let granted = self.granted(ApprovalRead::Fresh)?;
        let viewer = Viewer { id: self.identity.id, granted: &granted };
        let usable = self.core.known_server(name, &granted).and_then(|server| self.core.usable(&server, &viewer));
        usable.map_err(|error| self.core.redacted(error))
    }
}

/// Returns the known fields of a result, with its `_meta` as `meta`. Removes the keys of this package and of the protocol from the `_meta`.
/// Each field in `lists` must be present and must be a list.
fn shown(server: &str, request: &Request, result: &Json, lists: &[&str], others: &[&str]) -> Result<Json> {
    let mut fields = Map::new();
    for name in others {
        if let Some(value) = result.get(*name).filter(|value| !value.is_null()) {
            fields.insert((*name).to_owned(), value.clone());
        }
    }
    for name in lists {
        let list = result.get(*name).filter(|list| list.is_array()).ok_or_else(|| Error::UnusableAnswer {
            server: server.to_owned(),
            tool: request.method().into(),
            problem: format!("it has no list of {name}").into(),
        })?;
        fields.insert((*name).to_owned(), list.clone());
    }
    if let Some(mut meta) = result.get("_meta").cloned() {
        meta.as_object_mut().into_iter().for_each(drop_reserved_keys);
        fields.insert("meta".to_owned(), meta);
    }
    let mut shown = Json::Object(fields);
    drop_reserved_keys_within(&mut shown);
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_without_what_it_promises_is_a_protocol_error() {
        let request = Request::ResourceOrPrompt(ResourceOrPromptRequest::Read { uri: "a:b".into() });
        let ours = json!({ "x": 1, "io.hyperlight-mcp/session": "s", "io.modelcontextprotocol/related-task": { "taskId": "t" }, "progressToken": 1 });
        let result = json!({ "contents": [{ "uri": "a:b", "text": "t", "_meta": ours }], "_meta": ours, "vendor": 2 });
        let expected = json!({ "contents": [{ "uri": "a:b", "text": "t", "_meta": { "x": 1 } }], "meta": { "x": 1 } });
        assert_eq!(shown("s", &request, &result, &["contents"], &[]).unwrap(), expected);
        assert_eq!(shown("s", &request, &json!({ "contents": {} }), &["contents"], &[]).unwrap_err().code(), "ERR_PROTOCOL");
    }
}
