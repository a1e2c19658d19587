//! Replaces the URIs of links to resources by the URIs under which the resources are listed. Also replaces the URIs of resources that are
//! contained in results, prompts and contents. A host then reads a linked resource from the server that gave the link, and does not treat
//! its content as that of another server. This module also removes the icons of links, because nobody has approved them.

use serde_json::Value as Json;

use super::direct::Direct;
use super::items::ItemLists;
use super::resources_and_prompts::{ResourcesAndPrompts, is_ours};
use crate::catalog::enclosed_icons;
use crate::error::Result;
use crate::gateway::Agent;

/// Access to the lists of one caller. It is used for the results of this caller's calls.
pub(super) struct Links {
    pub(super) lists: ItemLists,
    pub(super) caller: String,
    pub(super) direct: Direct,
}

impl Links {
    /// Replaces the URIs in a server's result or prompt, and removes icons that nobody has approved.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub(super) async fn served(&self, agent: &Agent, server: &str, mut answer: Json) -> Result<Json> {
        drop_icons(server, &mut answer);
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

    /// Replaces the URIs in the contents of a resource. The URI that was read is replaced by `served`, under which the host knows the
    /// resource. Each other URI is replaced by the URI under which this server's resource is listed.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub(super) async fn contents(&self, agent: &Agent, server: &str, mut contents: Json, read: (&str, &str)) -> Result<Json> {
        rename_own(&mut contents, read);
        let has_others = contents_uris(&mut contents).any(|uri| uri != read.1);
        if !has_others {
            return Ok(contents);
        }
        let (server, served) = (server.to_owned(), read.1.to_owned());
        let work = move |_: &Agent, items: &ResourcesAndPrompts| {
            for uri in contents_uris(&mut contents).filter(|uri| **uri != served) {
                *uri = items.served_uri(&server, uri);
            }
            Ok(contents)
        };
        self.lists.with(&self.caller, agent.clone(), self.direct.clone(), work).await
    }
}

/// Replaces the URI that was read by the URI under which the resource is served. Also replaces each URI that only this program may use.
fn rename_own(contents: &mut Json, (own, served): (&str, &str)) {
    for uri in contents_uris(contents).filter(|uri| *uri == own || is_ours(uri)) {
        served.clone_into(uri);
    }
}

/// Returns the URIs in the contents of a resource.
fn contents_uris(contents: &mut Json) -> impl Iterator<Item = &mut String> {
    let parts = contents.get_mut("contents").and_then(Json::as_array_mut).into_iter().flatten();
    parts.filter_map(|part| if let Some(Json::String(uri)) = part.get_mut("uri") { Some(uri) } else { None })
}

/// Removes the icons of links, unless they are images within the answer. A person approves the icons of listed items, but not those of answers.
fn drop_icons(server: &str, part: &mut Json) {
    match part {
        Json::Array(items) => items.iter_mut().for_each(|item| drop_icons(server, item)),
        Json::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "resource_link")
                && let Some(given) = fields.remove("icons")
                && let Some(kept) = enclosed_icons(server, Some(&given))
            {
                fields.insert("icons".to_owned(), kept);
            }
            fields
                .iter_mut()
                .filter(|(key, _)| matches!(key.as_str(), "content" | "messages"))
                .for_each(|(_, value)| drop_icons(server, value));
        }
        _ => {}
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
    fn the_icons_of_links_are_images_within_them() {
        let image = json!({ "src": "data:image/png;base64,iVBORw0KGgo=" });
        let foreign = ["https://evil.example/?x=secret", "javascript:alert(1)", "file:///etc/passwd"].map(|src| json!({ "src": src }));
        let link = |icons: Json| json!({ "type": "resource_link", "uri": "note://1", "name": "n", "icons": icons });
        let without = json!({ "type": "resource_link", "uri": "note://1", "name": "n" });
        let mixed = json!([foreign[0], foreign[1], image, foreign[2]]);
        let data = json!({ "content": [link(json!(foreign))], "icons": foreign });
        let mut result = json!({ "content": [link(mixed), link(json!(foreign)), link(json!("x"))], "structuredContent": data });
        drop_icons("s", &mut result);
        assert_eq!(result, json!({ "content": [link(json!([image])), without, without], "structuredContent": data }));
        let mut prompt = json!({ "messages": [{ "role": "user", "content": link(json!(foreign)) }, { "role": "user", "content": [link(json!(foreign))] }] });
        drop_icons("s", &mut prompt);
        assert_eq!(prompt["messages"], json!([{ "role": "user", "content": without }, { "role": "user", "content": [without] }]));
    }

    #[test]
    fn contents_name_no_uri_that_only_this_program_makes() {
        let uris = ["x://own", "mcp-types://good.d.ts", " MCP-types://good.d.ts", "ui://mcp%2Dresource/good/x", "x://other"];
        let mut parts: Vec<_> = uris.iter().map(|uri| json!({ "uri": uri, "text": "t" })).collect();
        parts.extend([json!(5), json!({ "uri": 5 })]);
        let mut contents = json!({ "contents": parts });
        rename_own(&mut contents, ("x://own", "mcp-resource://s/own"));
        let named: Vec<_> = contents["contents"].as_array().unwrap().iter().map(|part| part["uri"].clone()).collect();
        assert_eq!(named[..4], ["mcp-resource://s/own"; 4].map(Json::from));
        assert_eq!(named[4..], [json!("x://other"), Json::Null, json!(5)]);
        let mut same = json!({ "contents": [{ "uri": "mcp-types://good.d.ts" }] });
        rename_own(&mut same, ("x://own", "x://own"));
        assert_eq!(same["contents"][0]["uri"], "x://own");
    }

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
