//! Replaces the URIs of links to resources, and of resources within results and prompts, by the URIs under which the resources are listed.
//! So a host reads from the server that has given the link.

use serde_json::Value as Json;

use super::direct::Direct;
use super::items::ItemLists;
use super::resources_and_prompts::ResourcesAndPrompts;
use crate::error::Result;
use crate::gateway::Agent;

/// Access to the lists of one caller, for the results of its calls.
pub(super) struct Links {
    pub(super) lists: ItemLists,
    pub(super) caller: String,
    pub(super) direct: Direct,
}

impl Links {
    /// Replaces the URIs of a server in its result or prompt.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub(super) async fn served(&self, agent: &Agent, server: &str, mut answer: Json) -> Result<Json> {
        let mut has_links = false;
        for_each_uri(&mut answer, &mut |_| has_links = true);
        if !has_links {
            return Ok(answer);
        }
        let server = server.to_owned();
        let work = move |_: &Agent, items: &ResourcesAndPrompts| {
            for_each_uri(&mut answer, &mut |uri| *uri = items.served_uri(&server, uri));
            Ok(answer)
        };
        self.lists.with(&self.caller, agent.clone(), self.direct.clone(), work).await
    }
}

/// Calls a function for the URI of each link and of each embedded resource. Structured content is not changed, because it is data.
fn for_each_uri(part: &mut Json, work: &mut impl FnMut(&mut String)) {
    match part {
        Json::Array(items) => items.iter_mut().for_each(|item| for_each_uri(item, work)),
        Json::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "resource_link")
                && let Some(Json::String(uri)) = fields.get_mut("uri")
            {
                work(uri);
            }
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("resource", Json::Object(resource)) => {
                        if let Some(Json::String(uri)) = resource.get_mut("uri") {
                            work(uri);
                        }
                    }
                    ("content" | "messages", value) => for_each_uri(value, work),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_and_embedded_resources_are_found_and_nothing_else() {
        let link = json!({ "type": "resource_link", "uri": "note://1", "name": "n" });
        let embedded = json!({ "type": "resource", "resource": { "uri": "note://2", "text": "t" } });
        let text = json!({ "type": "text", "text": "note://3", "uri": "note://3" });
        let renamed = |mut part: Json| {
            for_each_uri(&mut part, &mut |uri| uri.insert_str(0, "served-"));
            part
        };
        let result = json!({ "content": [link, embedded, text], "structuredContent": { "content": [link] } });
        let renamed_result = renamed(result.clone());
        assert_eq!(renamed_result["content"][0]["uri"], "served-note://1");
        assert_eq!(renamed_result["content"][1]["resource"]["uri"], "served-note://2");
        assert_eq!(renamed_result["content"][2], text);
        assert_eq!(renamed_result["structuredContent"], result["structuredContent"]);
        let prompt = json!({ "messages": [{ "role": "user", "content": link }, { "role": "assistant", "content": [embedded] }] });
        let renamed_prompt = renamed(prompt);
        assert_eq!(renamed_prompt["messages"][0]["content"]["uri"], "served-note://1");
        assert_eq!(renamed_prompt["messages"][1]["content"][0]["resource"]["uri"], "served-note://2");
    }
}
