//! Finds tools. This module implements `search` and `describe` of `host:mcp`, and the same functions for an agent.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value as Json;

use super::server_calls::ServerCalls;
use crate::catalog::{Catalog, Manifest, Meaning, SearchIndex, SearchOptions, ToolText, has_words};
use crate::embedding::{Embedder, Vector};
use crate::error::{Error, ErrorText, Result};
use crate::sandbox::{Arguments, HostReply, Value};

const DEFAULT_LIMIT: usize = 10;
const MAX_LIMIT: usize = 100;
/// Maximum number of bytes of a query that are used. The rest of the query is ignored.
const MAX_QUERY_BYTES: usize = 10_000;
/// The factor with which scores are rounded to two decimal places. Further digits have no meaning.
const SCORE_DIGITS: f64 = 100.0;
/// Maximum time that a search waits for the vector of its question. Computing this vector takes 20 to 40 ms if the model is loaded. Without
/// the vector, the search ranks by words alone.
const QUESTION_PATIENCE: Duration = Duration::from_millis(100);

/// The search index of a gateway's tools. The index is updated when the gateway's servers have changed.
#[derive(Default)]
pub struct ToolSearch {
    index: Mutex<SearchIndex>,
}

/// The catalog and the search index that a run uses to find tools.
pub struct ToolFinder {
    pub catalog: Catalog,
    pub search: Arc<ToolSearch>,
    /// Computes the vectors for a search by meaning. `None`: tools are ranked only by words.
    pub embedder: Option<Arc<Embedder>>,
}

/// A search for tools.
#[derive(Debug, Clone, Default)]
pub struct ToolQuery {
    pub query: String,
    /// Maximum number of results. The default is 10, and the largest permitted value is 100.
    pub limit: Option<usize>,
    /// Names of the servers to search. The default is all servers.
    pub servers: Option<Vec<String>>,
}

/// A tool that a search found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolMatch {
    pub server: String,
    /// Raw name of the tool, for `call`.
    pub tool: String,
    /// Module from which agent code imports the tool, for example `host:mcp-weather`.
    pub module: String,
    /// Name under which agent code imports the tool.
    pub identifier: String,
    pub signature: String,
    pub purpose: String,
    /// Relevance of the match. Scores of different searches cannot be compared.
    pub score: f64,
}

impl ToolSearch {
    /// Returns the tools that match best, with the best first. With an embedder, also ranks the tools by meaning, as far as their vectors
    /// are computed already.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for a query without a word, or for an invalid limit. `ERR_UNKNOWN_SERVER`.
    pub fn search(
        &self,
        servers: &BTreeMap<String, Arc<Manifest>>,
        catalog: &Catalog,
        query: &ToolQuery,
        embedder: Option<&Embedder>,
    ) -> Result<Vec<ToolMatch>> {
        let text = &query.query[..query.query.floor_char_boundary(MAX_QUERY_BYTES)];
        let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
        if !has_words(text) {
            return Err(invalid("search", "query: must contain a word to search for, for example \"weather forecast\""));
        }
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(invalid("search", &format!("limit: must be between 1 and {MAX_LIMIT}, not {limit}")));
        }
        if let Some(unknown) = query.servers.iter().flatten().find(|server| !servers.contains_key(*server)) {
            return Err(Error::UnknownServer {
                server: unknown.clone(),
                place: "among the servers that can be searched",
                known: servers.keys().map(ErrorText::from).collect(),
            });
        }
        // The index is not locked while the search waits.
        let question = embedder.map(|embedder| (embedder, embedder.question(text, QUESTION_PATIENCE)));
        let hits = {
            let mut index = self.index.lock();
            index.update(servers);
            let meaning = question.and_then(|(embedder, question)| {
                let tools = vectors_of_tools(&index, embedder);
                Some(Meaning { question: question?, tools })
            });
            index.search_with(text, &SearchOptions { limit, servers: query.servers.as_deref() }, meaning.as_ref())
        };
        hits.into_iter()
            .map(|hit| {
                let (module, function) = catalog.tool_line(&hit.server, &hit.tool)?;
                let score = (hit.score * SCORE_DIGITS).round() / SCORE_DIGITS;
                let (identifier, signature, purpose) = (function.name, function.signature, function.purpose);
                Ok(ToolMatch { server: hit.server, tool: hit.tool, module, identifier, signature, purpose, score })
            })
            .collect()
    }
}

/// Returns the vectors of all tools of an index. A vector that is not computed yet is `None`, and is computed in the background.
fn vectors_of_tools(index: &SearchIndex, embedder: &Embedder) -> Vec<Option<Arc<Vector>>> {
    let texts: Vec<ToolText<'_>> = index.texts().collect();
    let digests: Vec<_> = texts.iter().map(|text| text.digest).collect();
    let vectors = embedder.known(&digests);
    let unknown = texts.iter().zip(&vectors).filter(|(_, vector)| vector.is_none()).map(|(text, _)| (text.digest, text));
    embedder.compute(unknown, |text| text.text());
    vectors
}

impl ServerCalls {
    /// Implements `search(query, { limit?, servers? })`.
    pub(super) fn search(&self, arguments: Arguments) -> HostReply {
        let found = query_of(arguments, self.limits.max_argument_bytes);
        let ToolFinder { catalog, search, embedder } = &self.tool_finder;
        let found = found.and_then(|query| search.search(&self.manifests, catalog, &query, embedder.as_deref()));
        let found = found.and_then(|found| serde_json::to_value(found).map_err(|error| Error::Internal(error.to_string().into())));
        match found.and_then(|found| self.capped("the result of search".to_owned(), found)) {
            Ok(found) => HostReply::Value(Value::from(found)),
            Err(error) => self.throw(error),
        }
    }

    /// Implements `describe("weather.get_forecast")`. The result is a text for a reader, such as a model.
    pub(super) fn describe(&self, arguments: Arguments) -> HostReply {
        let what = match arguments {
            Arguments::Given(given) => match <[Value; 1]>::try_from(given) {
                Ok([Value::Text(what)]) => Ok(what),
                _ => Err(invalid("describe", "takes one name, for example describe(\"weather\") or describe(\"weather.get_forecast\")")),
            },
            Arguments::Oversize(size) => Err(oversize("describe", size, self.limits.max_argument_bytes)),
            Arguments::Invalid(problem) => Err(invalid("describe", &format!("takes values that JSON can represent: {problem}"))),
        };
        let described = what.and_then(|what| self.tool_finder.catalog.describe(&what)).and_then(|text| {
            let (size, limit) = (text.len(), self.limits.max_response_bytes);
            if size > limit {
                let what = "the text of these declarations (describe one tool instead)".to_owned();
                return Err(Error::ResponseTooLarge {
                    what: what.into(),
                    size: size.to_string().into(),
                    limit,
                    limit_name: "limits.maxResponseBytes",
                });
            }
            Ok(text)
        });
        match described {
            Ok(text) => HostReply::Value(Value::Text(text)),
            Err(error) => self.throw(error),
        }
    }
}

fn query_of(arguments: Arguments, limit: usize) -> Result<ToolQuery> {
    let given = match arguments {
        Arguments::Given(given) => given,
        Arguments::Oversize(size) => return Err(oversize("search", size, limit)),
        Arguments::Invalid(problem) => return Err(invalid("search", &format!("takes values that JSON can represent: {problem}"))),
    };
    let mut given = given.into_iter();
    let (Some(Value::Text(query)), options, None) = (given.next(), given.next(), given.next()) else {
        return Err(invalid("search", "takes a query and options, for example search(\"weather forecast\", { limit: 5 })"));
    };
    let mut wanted = ToolQuery { query, ..ToolQuery::default() };
    let fields = match options {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Record(fields)) => fields,
        Some(_) => return Err(invalid("search", "options: must be an object { limit?, servers? }")),
    };
    for (name, value) in fields {
        match (name.as_str(), value.into_json()) {
            ("limit", Json::Number(limit)) if limit.as_u64().is_some() => {
                wanted.limit = limit.as_u64().and_then(|limit| usize::try_from(limit).ok());
            }
            ("servers", Json::Array(names)) if names.iter().all(Json::is_string) => {
                wanted.servers = Some(names.iter().filter_map(Json::as_str).map(ToOwned::to_owned).collect());
            }
            ("servers", Json::String(name)) => wanted.servers = Some(vec![name]),
            ("limit" | "servers", _) => return Err(invalid("search", "limit must be a whole number, and servers must be a list of names")),
            _ => return Err(invalid("search", &format!("{name}: unknown option; the options are limit and servers"))),
        }
    }
    Ok(wanted)
}

fn invalid(method: &'static str, problem: &str) -> Error {
    Error::InvalidOption { method, problem: problem.into() }
}

fn oversize(what: &str, size: usize, limit: usize) -> Error {
    Error::ArgumentsTooLarge { what: what.into(), size, limit }
}
