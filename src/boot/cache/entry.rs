//! One entry of the cache, and its bytes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::key::{FORMAT, key_of, prompt_digest};
use crate::boot::handlers::{Handler, MAX_HANDLER_BYTES, generated_tool};
use crate::boot::pages::KnownPages;
use crate::boot::plan::{Plan, problems_of};
use crate::boot::secrets::SecretName;
use crate::fetch::AllowedHosts;

/// Tools that a model has made, and the data from which they were made. An entry contains neither the prompt nor an API key, because both may be
/// secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CacheEntry {
    pub prompt_digest: String,
    pub created_at_ms: u64,
    pub plan: Plan,
    pub handlers: Vec<Handler>,
    /// The whitelist, as texts.
    hosts: Vec<String>,
    pub pages: KnownPages,
    pub secrets: Vec<SecretName>,
}

/// The data from which an entry is made.
#[derive(Debug, Clone)]
pub struct EntryParts<'a> {
    pub prompt: &'a str,
    pub created_at_ms: u64,
    pub plan: Plan,
    pub handlers: Vec<Handler>,
    pub hosts: &'a AllowedHosts,
    pub pages: KnownPages,
    pub secrets: Vec<SecretName>,
}

impl CacheEntry {
    #[must_use]
    pub fn new(parts: EntryParts<'_>) -> Self {
        let EntryParts { prompt, created_at_ms, plan, handlers, hosts, pages, secrets } = parts;
        Self { prompt_digest: prompt_digest(prompt, &secrets), created_at_ms, plan, handlers, hosts: hosts.texts(), pages, secrets }
    }

    /// Returns the key of the entry.
    #[must_use]
    pub fn key(&self) -> String {
        key_of(&self.prompt_digest, &self.pages)
    }

    /// Returns the hosts that the tools may reach.
    #[must_use]
    pub fn hosts(&self) -> AllowedHosts {
        // The texts were checked when the entry was read, or were made from a whitelist.
        AllowedHosts::parse(self.hosts.iter().map(String::as_str)).unwrap_or_else(|_| AllowedHosts::none())
    }

    /// Returns the bytes of the file: a line with the format and the digest of the rest, and the rest as JSON.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let mut bytes = format!("{FORMAT} {}\n", hex::encode(Sha256::digest(&json))).into_bytes();
        bytes.extend(json);
        bytes
    }

    /// Reads the bytes of a file. Fails with a description of the problem.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it is not an entry of the cache")?;
        let (line, json) = (String::from_utf8_lossy(&bytes[..end]), &bytes[end + 1..]);
        let (format, digest) = line.split_once(' ').ok_or("it is not an entry of the cache")?;
        if format != FORMAT {
            return Err("it has another format".to_owned());
        }
        if digest != hex::encode(Sha256::digest(json)) {
            return Err("its digest is wrong, so it is damaged or was changed".to_owned());
        }
        let entry: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        entry.check()?;
        Ok(entry)
    }

    /// Repeats the checks of the pipeline that made the entry, because the file can have any content.
    fn check(&self) -> Result<(), String> {
        let hosts = AllowedHosts::parse(self.hosts.iter().map(String::as_str)).map_err(|error| error.to_string())?;
        if let Some(problem) = problems_of(&self.plan, &hosts).into_iter().next() {
            return Err(problem);
        }
        for Handler { tool, body } in &self.handlers {
            if body.len() > MAX_HANDLER_BYTES {
                return Err(format!("the code of {tool} has {} bytes; at most {MAX_HANDLER_BYTES} are allowed", body.len()));
            }
            let planned = self.plan.tools.iter().find(|planned| planned.name == *tool);
            if let Some(problem) = planned.and_then(|planned| generated_tool(planned, body).hidden_line_end()) {
                return Err(problem);
            }
        }
        let tools: BTreeSet<_> = self.plan.tools.iter().map(|tool| &tool.name).collect();
        let handlers: BTreeSet<_> = self.handlers.iter().map(|handler| &handler.tool).collect();
        if tools == handlers && self.handlers.len() == tools.len() {
            Ok(())
        } else {
            Err("its handlers are not those of its tools".to_owned())
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::boot::pages::PageFacts;
    use crate::boot::plan::PlannedTool;

    pub(in crate::boot::cache) fn entry(prompt: &str, page_digest: &str, created_at_ms: u64) -> CacheEntry {
        let tool = PlannedTool {
            name: "one".to_owned(),
            description: "Returns one.".to_owned(),
            input_schema: json!({ "type": "object" }),
            endpoints: Vec::new(),
            implementation_notes: String::new(),
            needs_network: false,
            read_only_hint: true,
        };
        let facts = PageFacts { read_url: "0".repeat(64), digest: page_digest.to_owned(), etag: None };
        CacheEntry::new(EntryParts {
            prompt,
            created_at_ms,
            plan: Plan { tools: vec![tool] },
            handlers: vec![Handler { tool: "one".to_owned(), body: "return 1".to_owned() }],
            hosts: &AllowedHosts::parse(["*.a.example"]).unwrap(),
            pages: KnownPages::from([("0".repeat(64), facts)]),
            secrets: Vec::new(),
        })
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = entry("prompt", "1", 5);
        assert_eq!(CacheEntry::from_bytes(&entry.to_bytes()).as_ref(), Ok(&entry));
        assert_eq!(entry.hosts().texts(), ["*.a.example"]);
        assert!(!String::from_utf8(entry.to_bytes()).unwrap().contains("prompt\""));
    }

    #[test]
    fn an_entry_that_no_pipeline_would_make_is_refused() {
        let changes: [fn(&mut CacheEntry); 9] = [
            |entry| entry.handlers[0].body = "return 1 // or\r2".to_owned(),
            |entry| entry.handlers[0].body = "return 1 // or\u{2028}2".to_owned(),
            |entry| entry.handlers[0].body = "return 1 // or\u{2029}2".to_owned(),
            |entry| entry.handlers[0].body = "x".repeat(MAX_HANDLER_BYTES + 1),
            |entry| entry.hosts.push("*".to_owned()),
            |entry| entry.plan.tools[0].name = "No Name".to_owned(),
            |entry| entry.plan.tools.clear(),
            |entry| entry.handlers.clear(),
            |entry| entry.handlers.push(entry.handlers[0].clone()),
        ];
        for change in changes {
            let mut entry = entry("prompt", "1", 5);
            change(&mut entry);
            assert!(CacheEntry::from_bytes(&entry.to_bytes()).is_err());
        }
    }
}
