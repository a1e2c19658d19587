//! Toolboxes and grants as rows of the store. The row of a toolbox is a JSON list of patterns. The row of an agent is a JSON list of
//! toolbox names.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{Pattern, parse_patterns};
use crate::error::{Error, Result};
use crate::store::Rows;

/// Reads the toolboxes. If this version cannot read a row, returns an error for all toolboxes, because that row may contain a denial.
pub(super) fn toolboxes(rows: &Rows) -> Result<BTreeMap<String, Vec<Pattern>>> {
    let toolbox = |(name, body): (&String, &Arc<[u8]>)| {
        let patterns = parse_patterns(&texts(name, body)?).map_err(|(_, problem)| unreadable(name, &problem))?;
        Ok((name.clone(), patterns))
    };
    rows.iter().map(toolbox).collect()
}

/// Reads the names of the toolboxes of each agent.
pub(super) fn agents(rows: &Rows) -> Result<BTreeMap<String, Vec<String>>> {
    rows.iter().map(|(name, body)| Ok((name.clone(), texts(name, body)?))).collect()
}

/// Parses a JSON list of strings.
pub(super) fn texts(name: &str, body: &[u8]) -> Result<Vec<String>> {
    serde_json::from_slice(body).map_err(|error| unreadable(name, &error.to_string()))
}

/// Writes a JSON list of strings.
pub(super) fn body(texts: &[String]) -> Arc<[u8]> {
    serde_json::Value::from(texts).to_string().into_bytes().into()
}

fn unreadable(name: &str, problem: &str) -> Error {
    let problem = format!(
        "the row \"{name}\" cannot be read ({problem}): a later version of hyperlight-mcp may have written it. Update hyperlight-mcp"
    );
    Error::Store { path: "store.sqlite3".into(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_what_cannot_be_read_is_an_error() {
        let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let rows = Rows::from([("a".to_owned(), body(&texts(&["x/*", "!x/y"])))]);
        assert_eq!(toolboxes(&rows).unwrap()["a"].len(), 2);
        assert_eq!(agents(&rows).unwrap()["a"], texts(&["x/*", "!x/y"]));
        for bad in [&b"{}"[..], b"[1]", b"[\"x\"", br#"["x"]"#] {
            let rows = Rows::from([("a".to_owned(), Arc::from(bad))]);
            assert_eq!(toolboxes(&rows).unwrap_err().code(), "ERR_STORE");
        }
    }
}
