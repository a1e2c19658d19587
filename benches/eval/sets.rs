//! Reads the public sets, and turns them into manifests and questions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use hyperlight_mcp::catalog::Manifest;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

pub type Problem = Box<dyn std::error::Error>;

const LIVE_TOOLS: &str = "livemcpbench/baseline/mcp_copilot/config/mcp_arg_Qwen3-Embedding-0.6B_qwen25_72b_int4_instruct.json";
const LIVE_QUESTIONS: &str = "livemcpbench/baseline/annotation/claude-sonnet-4-20250514_Qwen3-Embedding-0.6B.json";
const BFCL: &str = "bfcl/bfcl_eval/data";
/// The files of BFCL that give functions, a question, and the calls that answer it, by group.
const BFCL_GROUPS: [(&str, &[&str]); 2] = [
    ("BFCL", &["simple_python", "multiple", "parallel", "parallel_multiple"]),
    ("BFCL live", &["live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"]),
];

/// The half of the questions that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Half {
    Development,
    Unseen,
}

impl Half {
    /// Returns the half of a question: the development half if the first byte of its SHA-256 is even. All questions with the same text are
    /// in the same half.
    pub fn of(text: &str) -> Self {
        if Sha256::digest(text.as_bytes())[0].is_multiple_of(2) { Self::Development } else { Self::Unseen }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::Unseen => "unseen",
        }
    }
}

pub struct Question {
    group: &'static str,
    pub text: String,
    /// Names of the expected tools.
    pub answers: Vec<String>,
}

/// Tools that are searched together, and the questions about them.
pub struct Set {
    pub servers: BTreeMap<String, Arc<Manifest>>,
    questions: Vec<Question>,
}

impl Set {
    /// Returns the questions of one half by group.
    pub fn groups(&self, half: Half) -> BTreeMap<String, Vec<&Question>> {
        let mut groups: BTreeMap<String, Vec<&Question>> = BTreeMap::new();
        for question in self.questions.iter().filter(|question| Half::of(&question.text) == half) {
            groups.entry(question.group.to_owned()).or_default().push(question);
        }
        groups
    }

    /// Leaves out expected tools that the set does not have, and questions with no other.
    fn new(servers: BTreeMap<String, Arc<Manifest>>, mut questions: Vec<Question>) -> Self {
        let names: BTreeSet<&str> = servers.values().flat_map(|manifest| &manifest.tools).map(|tool| tool.name.as_str()).collect();
        for question in &mut questions {
            question.answers.retain(|answer| names.contains(answer.as_str()));
        }
        questions.retain(|question| !question.answers.is_empty());
        Self { servers, questions }
    }
}

pub fn read(folder: &Path) -> Result<Vec<Set>, Problem> {
    Ok(vec![live(folder)?, bfcl(folder)?])
}

fn file(folder: &Path, path: &str) -> Result<String, Problem> {
    fs::read_to_string(folder.join(path)).map_err(|error| format!("{path}: {error}").into())
}

fn manifest(server: &str, tools: &[Json]) -> Result<Arc<Manifest>, Problem> {
    let manifest = json!({ "protocolVersion": "", "serverName": server, "serverVersion": "", "tools": tools });
    Ok(Arc::new(serde_json::from_value(manifest)?))
}

fn text<'a>(value: &'a Json, pointer: &str) -> Result<&'a str, Problem> {
    value.pointer(pointer).and_then(Json::as_str).ok_or_else(|| format!("{pointer} is no text").into())
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// `LiveMCPBench`: tools of real servers, and tasks whose steps people annotated with tools.
fn live(folder: &Path) -> Result<Set, Problem> {
    let mut servers = BTreeMap::new();
    for server in list(&serde_json::from_str(&file(folder, LIVE_TOOLS)?)?) {
        let name = text(server, "/server_name")?;
        let tools: Vec<Json> = list(&server["tools"]).iter().map(live_tool).collect();
        servers.insert(name.to_owned(), manifest(name, &tools)?);
    }
    let mut questions = Vec::new();
    for task in list(&serde_json::from_str(&file(folder, LIVE_QUESTIONS)?)?) {
        // The tools are a numbered list: `1. get_forecast`.
        let answers: BTreeSet<&str> = text(task, "/Annotator Metadata/Tools")?
            .lines()
            .map(|line| line.trim_start().trim_start_matches(|first: char| first.is_ascii_digit()).trim_start_matches('.').trim())
            .collect();
        let answers = answers.into_iter().map(str::to_owned).collect();
        questions.push(Question { group: "LiveMCPBench", text: text(task, "/Question")?.to_owned(), answers });
    }
    Ok(Set::new(servers, questions))
}

fn live_tool(tool: &Json) -> Json {
    let described = |(name, text): (&String, &Json)| (name.clone(), json!({ "description": text }));
    let properties: serde_json::Map<String, Json> = tool["parameter"].as_object().into_iter().flatten().map(described).collect();
    json!({ "name": tool["name"], "description": tool["description"], "inputSchema": { "type": "object", "properties": properties } })
}

/// The servers of `LiveMCPBench`, with the schemas that its parameters stand for. The set has a type in words before each description:
/// `(Optional, string) The city.`
pub fn live_servers(folder: &Path) -> Result<BTreeMap<String, Arc<Manifest>>, Problem> {
    let mut servers = BTreeMap::new();
    for server in list(&serde_json::from_str(&file(folder, LIVE_TOOLS)?)?) {
        let name = text(server, "/server_name")?;
        let tools: Vec<Json> = list(&server["tools"]).iter().map(typed_live_tool).collect();
        servers.insert(name.to_owned(), manifest(name, &tools)?);
    }
    Ok(servers)
}

fn typed_live_tool(tool: &Json) -> Json {
    let mut required = Vec::new();
    let mut properties = serde_json::Map::new();
    for (name, said) in tool["parameter"].as_object().into_iter().flatten() {
        let said = said.as_str().unwrap_or_default();
        let (kind, description) = said.strip_prefix('(').and_then(|rest| rest.split_once(") ")).unwrap_or(("", said));
        let optional = kind.strip_prefix("Optional, ");
        if optional.is_none() {
            required.push(name.clone());
        }
        let mut schema = serde_json::Map::new();
        let kind = optional.unwrap_or(kind);
        if ["string", "number", "integer", "boolean", "array", "object"].contains(&kind) {
            schema.insert("type".to_owned(), kind.into());
        }
        if !description.is_empty() {
            schema.insert("description".to_owned(), description.into());
        }
        properties.insert(name.clone(), Json::Object(schema));
    }
    json!({ "name": tool["name"], "description": tool["description"], "inputSchema": { "type": "object", "properties": properties, "required": required } })
}

/// BFCL: the functions of all its questions as the tools of one server, as the set has no servers. If functions share a name, only the
/// first one is kept.
fn bfcl(folder: &Path) -> Result<Set, Problem> {
    let (mut tools, mut names, mut questions) = (Vec::new(), BTreeSet::new(), Vec::new());
    for (group, files) in BFCL_GROUPS {
        for name in files {
            let name = format!("BFCL_v4_{name}.json");
            let asked = file(folder, &format!("{BFCL}/{name}"))?;
            let answered = file(folder, &format!("{BFCL}/possible_answer/{name}"))?;
            for (asked, answered) in asked.lines().zip(answered.lines()) {
                let (asked, answered): (Json, Json) = (serde_json::from_str(asked)?, serde_json::from_str(answered)?);
                if asked["id"] != answered["id"] {
                    return Err(format!("{name}: the answer to {} is not in its line", asked["id"]).into());
                }
                let new = list(&asked["function"]).iter().filter(|function| names.insert(function["name"].to_string()));
                tools.extend(new.map(|function| {
                    json!({ "name": function["name"], "description": function["description"], "inputSchema": function["parameters"] })
                }));
                questions.push(bfcl_question(group, &asked, &answered));
            }
        }
    }
    Ok(Set::new(BTreeMap::from([("functions".to_owned(), manifest("functions", &tools)?)]), questions))
}

fn bfcl_question(group: &'static str, asked: &Json, answered: &Json) -> Question {
    let said = list(&asked["question"][0]).iter().filter(|message| message["role"] == "user");
    let text = said.filter_map(|message| message["content"].as_str()).collect::<Vec<_>>().join("\n");
    let calls = list(&answered["ground_truth"]).iter().filter_map(Json::as_object).flat_map(serde_json::Map::keys);
    Question { group, text, answers: calls.cloned().collect::<BTreeSet<_>>().into_iter().collect() }
}
