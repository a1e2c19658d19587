//! Descriptions of the servers for a model.

use serde_json::{Map, Value as Json, json};

use super::advice::obstacle;
use crate::gateway::ServerInfo;
use crate::registry::ServerStatus;

/// Describes a server with a few fields.
pub(super) fn line(info: &ServerInfo) -> Map<String, Json> {
    let mut fields = state(&info.status.for_model());
    if let Some(offer) = &info.offer {
        fields.insert("module".to_owned(), offer.specifier.clone().into());
        fields.insert("purpose".to_owned(), offer.purpose.clone().into());
        fields.insert("tools".to_owned(), offer.functions.len().into());
    }
    fields
}

/// Describes a server with its tools.
pub(super) fn whole(info: &ServerInfo) -> Map<String, Json> {
    let mut fields = line(info);
    let Some(offer) = &info.offer else { return fields };
    if !info.status.quarantined.is_empty() {
        fields.insert("changedSinceApproval".to_owned(), json!(info.status.quarantined));
    }
    for (name, count) in [("resources", offer.resources + offer.resource_templates), ("prompts", offer.prompts)] {
        if count > 0 {
            fields.insert(name.to_owned(), count.into());
        }
    }
    if let Some(instructions) = &offer.instructions {
        fields.insert("instructions".to_owned(), instructions.clone().into());
    }
    let functions: Vec<_> = offer.functions.iter().map(|function| format!("{}: {}", function.name, function.purpose)).collect();
    fields.insert("functions".to_owned(), functions.into());
    fields
}

fn state(status: &ServerStatus) -> Map<String, Json> {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), status.name.clone().into());
    let obstacle = obstacle(status);
    fields.insert("usable".to_owned(), obstacle.is_none().into());
    fields.insert("state".to_owned(), json!(status.state));
    if !status.source.is_operators_config() {
        fields.insert("source".to_owned(), status.source.to_string().into());
    }
    if !status.hides.is_empty() {
        let hidden: Vec<_> = status.hides.iter().map(ToString::to_string).collect();
        fields.insert("hidesServerOf".to_owned(), hidden.into());
    }
    if !status.missing.is_empty() {
        fields.insert("missingVariables".to_owned(), json!(status.missing));
    }
    if let Some((why, what_helps)) = obstacle {
        fields.insert("why".to_owned(), why.into());
        fields.insert("whatHelps".to_owned(), what_helps.into());
    }
    fields
}
