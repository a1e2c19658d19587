//! Fills a store with approved servers that the operator's own agent has added, for `probes/registry.mjs`: `stored_servers STATE_FOLDER NUMBER`. The store
//! must have the approval of a server named `fixture`: the servers get a tool of it, each under another name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hyperlight_mcp::catalog::Manifest;
use hyperlight_mcp::registry::{AddedServer, Decider, ServerChange};
use hyperlight_mcp::store::{Kind, Rows, Store};
use hyperlight_mcp::trust::{Approval, Circumstances, Subject, manifest_digest};
use serde_json::json;

const TEMPLATE: &str = "fixture";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [folder, number] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "usage: stored_servers STATE_FOLDER NUMBER")?;
    let store = Store::open(Path::new(&folder), Arc::new(|problem| eprintln!("{problem}")))?;
    let template: Approval = serde_json::from_slice(&store.rows(Kind::Approval)?[TEMPLATE])?;
    let (mut servers, mut approvals) = (Rows::new(), Rows::new());
    for index in 0..number.parse()? {
        let (server, key, approval) = added(index, &template, &store)?;
        servers.insert(server.definition.name.clone(), server.to_row().into());
        approvals.insert(key, serde_json::to_vec(&approval)?.into());
    }
    store.change_all([Kind::Server, Kind::Approval], |[stored, approved]| {
        stored.append(&mut servers);
        approved.append(&mut approvals);
        Ok(())
    })?;
    Ok(())
}

/// Returns a server, the key of its approval, and the approval.
fn added(index: usize, template: &Approval, store: &Store) -> Result<(AddedServer, String, Approval), Box<dyn std::error::Error>> {
    let name = format!("server-{index}");
    let env = json!({ "API_KEY": format!("${{API_KEY_{}:-none}}", index % 100), "LEVEL": "info" });
    let change: ServerChange =
        serde_json::from_value(json!({ "name": name, "command": "example-server", "args": ["--number", index.to_string()], "env": env }))?;
    let server = AddedServer::new(&name, None, &change, Decider::Person)?;
    let mut manifest = Manifest::clone(template.manifest.as_ref().ok_or("the template has no approved tools")?);
    manifest.tools.retain(|tool| tool.name == "echo_text");
    for tool in &mut manifest.tools {
        tool.name = format!("echo_text_{index}");
    }
    let (command_digest, manifest_digest) =
        (Subject::new(&server.definition, store.key(), Circumstances::default()).digest, Some(manifest_digest(&manifest)));
    let approval = Approval {
        command_digest,
        executable: None,
        manifest: Some(Arc::new(manifest)),
        manifest_digest,
        direct_names: BTreeMap::new(),
        ..template.clone()
    };
    let key = server.definition.key();
    Ok((server, key, approval))
}
