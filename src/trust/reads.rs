//! Decides which tools are reads for the write gate: tools whose own annotations say so, and tools that `reads` of the server's entry names
//! and that say nothing themselves.

use serde_json::Value as Json;

use crate::catalog::{Manifest, Tool};
use crate::config::{Confirm, ServerDefinition, matches_name};

/// First words of names that promise a read. `query` and `fetch` are not among them: tools with such names often send or change something.
const READING: [&str; 11] = ["browse", "count", "describe", "find", "get", "list", "lookup", "read", "search", "show", "view"];
/// Last words of names that promise a read: `task_list`, `memory_bank_read`.
const READING_AT_END: [&str; 8] = ["describe", "find", "get", "list", "lookup", "read", "search", "view"];
/// Words that promise a change, wherever they are in a name: `get_or_create_user`, `find_and_replace`.
const CHANGING: [&str; 80] = [
    "accept",
    "add",
    "append",
    "approve",
    "archive",
    "assign",
    "ban",
    "block",
    "book",
    "buy",
    "call",
    "cancel",
    "change",
    "clear",
    "close",
    "commit",
    "create",
    "delete",
    "deploy",
    "destroy",
    "disable",
    "drop",
    "edit",
    "enable",
    "erase",
    "exec",
    "execute",
    "flag",
    "grant",
    "import",
    "insert",
    "install",
    "invite",
    "invoke",
    "kill",
    "lock",
    "make",
    "mark",
    "merge",
    "modify",
    "move",
    "open",
    "patch",
    "pay",
    "pop",
    "post",
    "publish",
    "purge",
    "push",
    "put",
    "reject",
    "remove",
    "rename",
    "replace",
    "reset",
    "restart",
    "restore",
    "revoke",
    "run",
    "save",
    "send",
    "set",
    "start",
    "stop",
    "submit",
    "subscribe",
    "sync",
    "toggle",
    "transfer",
    "trigger",
    "truncate",
    "uninstall",
    "unlock",
    "unsubscribe",
    "update",
    "upload",
    "upsert",
    "wipe",
    "withdraw",
    "write",
];

/// The claim of a tool's own annotations about writing (MCP 2025-11-25, `ToolAnnotations`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Reads,
    Writes,
    Nothing,
}

/// Reads the annotations. `destructiveHint` and `idempotentHint` have a meaning only for tools that write, so a tool that has one of them
/// and no `readOnlyHint` claims to write, whatever the hint says. A hint that is not a boolean counts as a claim to write as well.
fn claim(annotations: Option<&Json>) -> Claim {
    let hints = match annotations {
        None | Some(Json::Null) => return Claim::Nothing,
        Some(Json::Object(hints)) => hints,
        Some(_) => return Claim::Writes,
    };
    let hint = |name: &str| hints.get(name).filter(|hint| !hint.is_null());
    match (hint("readOnlyHint"), hint("destructiveHint").or(hint("idempotentHint"))) {
        (Some(Json::Bool(true)), _) => Claim::Reads,
        (None, None) => Claim::Nothing,
        (Some(_), _) | (None, Some(_)) => Claim::Writes,
    }
}

/// Returns whether a tool only reads: its annotations say so, or they say nothing and the entry's `reads` names the tool. A tool that says
/// that it writes or destroys stays a write, whatever `reads` says.
///
/// ```
/// use hyperlight_mcp::trust::is_read;
/// let tool = |text: &str| serde_json::from_str(text).unwrap();
/// let reads = ["get_*".to_owned()];
/// assert!(is_read(&tool(r#"{ "name": "get_user", "inputSchema": {} }"#), &reads));
/// assert!(!is_read(&tool(r#"{ "name": "get_user", "inputSchema": {}, "annotations": { "destructiveHint": true } }"#), &reads));
/// ```
#[must_use]
pub fn is_read(tool: &Tool, reads: &[String]) -> bool {
    match claim(tool.annotations.as_ref()) {
        Claim::Reads => true,
        Claim::Writes => false,
        Claim::Nothing => is_named(&tool.name, reads),
    }
}

/// Returns whether only the entry makes this tool a read.
pub(super) fn is_read_by_config(tool: &Tool, reads: &[String]) -> bool {
    claim(tool.annotations.as_ref()) == Claim::Nothing && is_named(&tool.name, reads)
}

fn is_named(tool: &str, reads: &[String]) -> bool {
    reads.iter().any(|pattern| matches_name(pattern, tool))
}

/// Returns the names of the tools that sound like reads, say nothing about it themselves, and are not in the entry's `reads`. A person may
/// add these names to `reads`. Empty if the entry's `confirm` asks a person before every call, or before none.
pub(super) fn sounding_like_reads(server: &ServerDefinition, manifest: &Manifest) -> Vec<String> {
    if server.confirm != Confirm::Writes {
        return Vec::new();
    }
    let is_silent = |tool: &&Tool| claim(tool.annotations.as_ref()) == Claim::Nothing && !is_named(&tool.name, &server.reads);
    let names = manifest.distinct_tools().filter(is_silent).map(|tool| tool.name.clone());
    names.filter(|name| sounds_like_read(name)).collect()
}

/// Returns whether a name promises a read: its first or its last word does, and no word promises a change. A name with characters that could be read as
/// a pattern or that a person cannot see promises nothing.
fn sounds_like_read(name: &str) -> bool {
    let is_plain = name.chars().all(|next| next.is_ascii_alphanumeric() || matches!(next, '_' | '-' | '.' | '/'));
    let words = words(name);
    let is_first = words.first().is_some_and(|first| READING.contains(&first.as_str()));
    let is_last = words.len() > 1 && words.last().is_some_and(|last| READING_AT_END.contains(&last.as_str()));
    is_plain && (is_first || is_last) && !words.iter().any(|word| CHANGING.contains(&word.as_str()))
}

/// Returns the words of a name in lower case. `getUserById` and `get_user_by_id` have the same words.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let letters: Vec<char> = name.chars().collect();
    let is = |index: usize, what: fn(&char) -> bool| letters.get(index).is_some_and(what);
    for (index, next) in letters.iter().enumerate() {
        // A capital letter begins a word after another letter. After capital letters, it does so only if a lower-case letter follows:
        // `getDBDelete`.
        let was_upper = index > 0 && is(index - 1, char::is_ascii_uppercase);
        let is_hump = next.is_ascii_uppercase() && (!was_upper || is(index + 1, char::is_ascii_lowercase));
        if !next.is_ascii_alphanumeric() || is_hump {
            words.push(String::new());
        }
        if let (true, Some(word)) = (next.is_ascii_alphanumeric(), words.last_mut()) {
            word.push(next.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::parse_text;

    fn tool(name: &str, annotations: &Json) -> Tool {
        serde_json::from_value(json!({ "name": name, "inputSchema": {}, "annotations": annotations })).unwrap()
    }

    #[test]
    fn reads_names_tools_that_say_nothing_themselves() {
        let reads = ["get_*".to_owned(), "status".to_owned()];
        for (name, annotations, expected) in [
            ("get_a", json!(null), true),
            ("get_a", json!({}), true),
            ("get_a", json!({ "readOnlyHint": null, "destructiveHint": null, "openWorldHint": true }), true),
            ("get_a", json!({ "destructiveHint": false }), false),
            ("get_a", json!({ "idempotentHint": true }), false),
            ("status", json!(null), true),
            ("other", json!({ "readOnlyHint": true }), true),
            ("get_a", json!({ "readOnlyHint": false }), false),
            ("get_a", json!({ "readOnlyHint": "true" }), false),
            ("get_a", json!({ "destructiveHint": true }), false),
            ("get_a", json!({ "destructiveHint": 0 }), false),
            ("get_a", json!([true]), false),
            ("status2", json!(null), false),
            ("GET_a", json!(null), false),
            ("forget_a", json!(null), false),
        ] {
            assert_eq!(is_read(&tool(name, &annotations), &reads), expected, "{name} {annotations}");
        }
        assert!(!is_read(&tool("get_a", &json!(null)), &[]));
    }

    #[test]
    fn a_name_sounds_like_a_read_by_its_first_or_last_word_unless_another_changes() {
        for name in [
            "get_user",
            "listIssues",
            "getURL",
            "listDBs",
            "findHTTPServers",
            "search",
            "read-file",
            "describe.table",
            "find_user2",
            "task_list",
            "note_read",
            "memory_bank_read",
            "issueGet",
            "web-search",
            "files/list".replace("files/", "").as_str(),
        ] {
            assert!(sounds_like_read(name), "{name}");
        }
        for name in [
            "getaway",
            "get_or_create_user",
            "find_and_replace",
            "readAndDelete",
            "readXDelete",
            "getDBDelete",
            "findPRMerge",
            "find_or_make",
            "list_and_purge",
            "get2Delete",
            "forget",
            "",
            "get_*",
            "get_\u{202e}x",
            "query",
            "send_list",
            "message_mark_read",
            "flag_read",
            "list_subscribe",
            "item_find_or_create",
            "playlist",
            "thread",
            "item_count_up",
        ] {
            assert!(!sounds_like_read(name), "{name}");
        }
    }

    #[test]
    fn tools_are_offered_where_the_gate_would_ask_for_them() {
        let tools = json!([
            { "name": "get_a" }, { "name": "list_b" }, { "name": "get_c", "annotations": { "readOnlyHint": true } },
            { "name": "get_d", "annotations": { "destructiveHint": true } }, { "name": "write_e" },
        ]);
        let manifest = json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": tools });
        let manifest: Manifest = serde_json::from_value(manifest).unwrap();
        let offered = |fields: &str| {
            let text = format!(r#"{{ "servers": {{ "a": {{ "command": "x"{fields} }} }} }}"#);
            sounding_like_reads(&parse_text(&text, "c", 9).unwrap().servers[0], &manifest)
        };
        assert_eq!(offered(""), ["get_a", "list_b"]);
        assert_eq!(offered(r#", "reads": ["list_*"]"#), ["get_a"]);
        assert_eq!(offered(r#", "confirm": "always""#), [""; 0]);
        assert_eq!(offered(r#", "confirm": "never""#), [""; 0]);
    }
}
