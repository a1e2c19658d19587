//! The digest of what a person approves: everything that determines what the tools do and which hosts they use.

use sha2::{Digest as _, Sha256};

use super::handlers::Handler;
use super::plan::{Endpoint, Plan, PlannedTool};
use super::secrets::SecretName;
use crate::fetch::AllowedHosts;
use crate::store::Canonical;

/// Returns the SHA-256 of plan, code, whitelist and names of secrets, in hexadecimal. Changing a single character of one of them gives
/// another digest. The order of the tools in the plan affects the digest. The order of handlers and secrets does not.
#[must_use]
pub fn digest_of(plan: &Plan, handlers: &[Handler], hosts: &AllowedHosts, secrets: &[SecretName]) -> String {
    let mut form = Canonical::new("generated-server");
    form = form.list(plan.tools.iter().map(|tool| tool.name.as_str()));
    for tool in &plan.tools {
        form = add_tool(form, tool);
    }
    let mut handlers: Vec<_> = handlers.iter().collect();
    handlers.sort_by_key(|handler| handler.tool.as_str());
    form = form.list(handlers.iter().map(|handler| handler.tool.as_str()));
    for Handler { tool, body } in handlers {
        form = form.text(tool).text(body);
    }
    let hosts = hosts.texts();
    form = form.list(hosts.iter().map(String::as_str));
    let mut secrets: Vec<_> = secrets.iter().collect();
    secrets.sort_unstable();
    form = form.list(secrets.iter().map(|secret| secret.name.as_str()));
    for SecretName { name, host, in_body } in secrets {
        form = form.text(name).text(host).flag(*in_body);
    }
    hex::encode(Sha256::digest(form.into_bytes()))
}

fn add_tool(form: Canonical, tool: &PlannedTool) -> Canonical {
    // No `..` is used here, so that a new field must be added to the digest.
    let PlannedTool { name, description, input_schema, endpoints, implementation_notes, needs_network, read_only_hint } = tool;
    let form = form.text(name).text(description).json(input_schema).text(implementation_notes).flag(*needs_network).flag(*read_only_hint);
    let form = form.list(endpoints.iter().map(|endpoint| endpoint.url.as_str()));
    endpoints.iter().fold(form, |form, Endpoint { method, url }| form.text(method).text(url))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    type Parts = (Plan, Vec<Handler>, AllowedHosts, Vec<SecretName>);

    fn parts() -> Parts {
        let tool = |name: &str| PlannedTool {
            name: name.to_owned(),
            description: "D.".to_owned(),
            input_schema: json!({ "type": "object" }),
            endpoints: vec![Endpoint { method: "GET".to_owned(), url: "https://a.example/x".to_owned() }],
            implementation_notes: "n".to_owned(),
            needs_network: true,
            read_only_hint: false,
        };
        let handler = |tool: &str| Handler { tool: tool.to_owned(), body: "const a = 1;\nreturn a;".to_owned() };
        let secrets = vec![SecretName { name: "KEY".to_owned(), host: "a.example".to_owned(), in_body: false }];
        (
            Plan { tools: vec![tool("a"), tool("b")] },
            vec![handler("a"), handler("b")],
            AllowedHosts::parse(["*.a.example"]).unwrap(),
            secrets,
        )
    }

    fn digest((plan, handlers, hosts, secrets): &Parts) -> String {
        digest_of(plan, handlers, hosts, secrets)
    }

    #[test]
    fn each_part_changes_the_digest() {
        let changes: [fn(&mut Parts); 13] = [
            |_| {},
            |parts| parts.0.tools[0].name = "c".to_owned(),
            |parts| parts.0.tools[0].description.push('!'),
            |parts| parts.0.tools[0].input_schema = json!({ "type": "object", "title": "t" }),
            |parts| parts.0.tools[0].endpoints[0].method = "POST".to_owned(),
            |parts| parts.0.tools[0].endpoints[0].url.push('y'),
            |parts| parts.0.tools[0].implementation_notes.push('!'),
            |parts| parts.0.tools[0].needs_network = false,
            |parts| parts.0.tools[0].read_only_hint = true,
            |parts| parts.1[1].body = "const a = 2;\nreturn a;".to_owned(),
            |parts| parts.2.extend(["b.example".parse().unwrap()]),
            |parts| parts.3[0].name = "OTHER".to_owned(),
            |parts| parts.3[0].host = "b.example".to_owned(),
        ];
        let digests = changes.into_iter().map(|change| {
            let mut parts = parts();
            change(&mut parts);
            digest(&parts)
        });
        assert_eq!(digests.collect::<BTreeSet<_>>().len(), 13);
    }

    #[test]
    fn the_order_in_which_handlers_were_written_does_not_matter() {
        let (first, mut second) = (parts(), parts());
        second.1.reverse();
        assert_eq!(digest(&first), digest(&second));
    }
}
