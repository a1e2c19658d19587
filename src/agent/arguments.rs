//! Parses and checks the arguments that a model passes to a tool. An error lists all problems together. For an unknown name, it suggests
//! the most similar known name.

use serde_json::{Map, Value as Json};

use crate::bridge::inexact;
use crate::error::{Error, ErrorText, Result};
use crate::limits::MAX_DESCRIBED_NAME_BYTES;
use crate::text::json::inexact_integer;
use crate::text::{nearest, sanitise_line};

/// The maximum length of an unknown argument name in a message.
const MAX_NAME_CHARS: usize = 60;
/// The maximum length of a value in a message.
const MAX_VALUE_CHARS: usize = 40;
/// The maximum number of problems in one answer.
const MAX_PROBLEMS: usize = 8;
/// The maximum number of strings in a list argument.
pub(super) const MAX_TEXTS: usize = 20;

/// The declaration of an argument of a tool.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// False if the argument may be missing or `null`.
    pub(super) required: bool,
    pub(super) description: &'static str,
}

/// The type of an argument.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// A value as JSON text. Values that are not strings are accepted too.
    JsonText,
    /// A whole number of 1 or more.
    Whole,
    /// A list of up to [`MAX_TEXTS`] strings. A single string is accepted too.
    Texts,
    /// A list of up to [`MAX_TEXTS`] names, each of at most [`MAX_DESCRIBED_NAME_BYTES`] bytes. A single name is accepted too.
    Names,
    Choice(&'static [&'static str]),
}

/// The arguments of a tool call. They have passed the check.
#[derive(Debug, Default)]
pub(super) struct ToolArguments(Map<String, Json>);

impl ToolArguments {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Json::as_str)
    }

    pub(super) fn whole(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Json::as_u64)
    }

    pub(super) fn texts(&self, name: &str) -> Option<Vec<String>> {
        let texts = self.0.get(name)?.as_array()?;
        Some(texts.iter().filter_map(Json::as_str).map(ToOwned::to_owned).collect())
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Json> {
        self.0.shift_remove(name)
    }
}

/// Parses and checks the arguments of a tool call. If the arguments are a string, it is parsed as JSON, because some providers pass the
/// arguments as JSON text.
///
/// # Errors
/// `ERR_INVALID_ARGUMENTS`. Its message lists all problems.
pub(super) fn read(tool: &str, fields: &[Field], given: &Json) -> Result<ToolArguments> {
    let invalid = |problem: String| Error::InvalidArguments { what: ErrorText::own(tool), problem: ErrorText::own(problem) };
    let parsed = match given {
        Json::Null => Json::Object(Map::new()),
        Json::String(text) if text.trim().is_empty() => Json::Object(Map::new()),
        Json::String(text) => serde_json::from_str(text).map_err(|error| invalid(format!("they are not JSON: {error}")))?,
        other => other.clone(),
    };
    let Json::Object(given) = parsed else {
        return Err(invalid(format!("expected one object {}, got {}", shape(fields), shown(&parsed))));
    };
    let mut problems: Vec<String> = Vec::new();
    let mut fitting = Map::new();
    for (name, value) in given {
        match fields.iter().find(|field| field.name == name) {
            None => problems.push(unknown(fields, &name)),
            Some(field) if value.is_null() && !field.required => {}
            Some(field) => match fit(field.kind, value) {
                Ok(value) => drop(fitting.insert(name, value)),
                Err(problem) => problems.push(format!("{name}: {problem}")),
            },
        }
        if problems.len() > MAX_PROBLEMS {
            break;
        }
    }
    let missing = fields.iter().filter(|field| field.required && !fitting.contains_key(field.name));
    let missing = missing.filter(|field| !problems.iter().any(|problem| problem.starts_with(&format!("{}: ", field.name))));
    let missing: Vec<_> = missing.map(|field| format!("{}: is missing; expected {}", field.name, expected(field.kind))).collect();
    problems.extend(missing);
    problems.truncate(MAX_PROBLEMS);
    if problems.is_empty() {
        Ok(ToolArguments(fitting))
    } else {
        Err(invalid(format!("{}. It takes {}", problems.join("; "), shape(fields))))
    }
}

fn unknown(fields: &[Field], name: &str) -> String {
    let shown = sanitise_line(name, MAX_NAME_CHARS);
    match nearest(name, fields.iter().map(|field| field.name)) {
        Some(meant) => format!("there is no argument \"{shown}\": did you mean \"{meant}\"?"),
        None => format!("there is no argument \"{shown}\""),
    }
}

fn fit(kind: Kind, value: Json) -> std::result::Result<Json, String> {
    let wrong = |value: &Json| Err(format!("expected {}, got {}", expected(kind), shown(value)));
    match (kind, value) {
        (Kind::Text, text @ Json::String(_)) => Ok(text),
        (Kind::JsonText, Json::String(text)) => {
            let example = "; write a plain string with quotes: \"\\\"hello\\\"\"";
            let value = serde_json::from_str(&text).map_err(|error| format!("expected {}: {error}{example}", expected(kind)))?;
            exact(value)
        }
        (Kind::JsonText, value) => exact(value),
        (Kind::Whole, Json::Number(number)) => {
            // Some models write 5.0 instead of 5.
            let whole = number.as_u64().or_else(|| {
                let float = number.as_f64().filter(|float| float.fract() == 0.0 && (1.0..=1e15).contains(float))?;
                format!("{float:.0}").parse().ok()
            });
            match whole.filter(|whole| *whole > 0) {
                Some(whole) => Ok(whole.into()),
                None => wrong(&Json::Number(number)),
            }
        }
        (Kind::Texts, Json::String(text)) => Ok(Json::Array(vec![text.into()])),
        (Kind::Texts, Json::Array(texts)) if texts.len() <= MAX_TEXTS && !texts.is_empty() && texts.iter().all(Json::is_string) => {
            Ok(Json::Array(texts))
        }
        (Kind::Names, Json::String(name)) if is_name(&name) => Ok(Json::Array(vec![name.into()])),
        (Kind::Names, Json::Array(names))
            if names.len() <= MAX_TEXTS && !names.is_empty() && names.iter().all(|name| name.as_str().is_some_and(is_name)) =>
        {
            Ok(Json::Array(names))
        }
        (Kind::Choice(words), Json::String(word)) if words.contains(&word.as_str()) => Ok(word.into()),
        (Kind::Choice(words), Json::String(word)) => {
            let meant = nearest(&word, words.iter().copied()).map(|meant| format!(": did you mean \"{meant}\"?")).unwrap_or_default();
            Err(format!("\"{}\" is not one of {}{meant}", sanitise_line(&word, MAX_VALUE_CHARS), words.join(", ")))
        }
        (_, value) => wrong(&value),
    }
}

fn is_name(text: &str) -> bool {
    text.trim().len() <= MAX_DESCRIBED_NAME_BYTES
}

/// Returns an error for integers that JavaScript cannot represent exactly, because rounding could change an identifier.
fn exact(value: Json) -> std::result::Result<Json, String> {
    match inexact_integer(&value) {
        Some(number) => Err(inexact(number)),
        None => Ok(value),
    }
}

fn expected(kind: Kind) -> String {
    match kind {
        Kind::Text => "a string".to_owned(),
        Kind::JsonText => "a value as JSON text, like \"{\\\"n\\\": 1}\"".to_owned(),
        Kind::Whole => "a whole number of 1 or more".to_owned(),
        Kind::Texts => format!("a list of 1 to {MAX_TEXTS} strings"),
        Kind::Names => format!("a list of 1 to {MAX_TEXTS} names, each of at most {MAX_DESCRIBED_NAME_BYTES} bytes"),
        Kind::Choice(words) => format!("one of {}", words.join(", ")),
    }
}

/// Formats the names of the arguments in one line: `{ query, limit?, servers? }`.
fn shape(fields: &[Field]) -> String {
    let names: Vec<_> = fields.iter().map(|field| format!("{}{}", field.name, if field.required { "" } else { "?" })).collect();
    if names.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", names.join(", ")) }
}

fn shown(value: &Json) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(value) => format!("{value} (boolean)"),
        Json::Number(value) => format!("{value} (number)"),
        Json::String(text) => format!("\"{}\" (string)", sanitise_line(text, MAX_VALUE_CHARS)),
        Json::Array(items) => format!("a list of {}", items.len()),
        Json::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Tool;
    use serde_json::json;

    fn problem(tool: Tool, given: &Json) -> String {
        read(tool.name(), tool.fields(), given).unwrap_err().to_string()
    }

    #[test]
    fn null_is_as_good_as_missing_where_it_may_be() {
        let given = read("t", Tool::Search.fields(), &json!({ "query": "x", "limit": null })).unwrap();
        assert_eq!((given.text("query"), given.whole("limit"), given.texts("servers")), (Some("x"), None, None));
        assert!(problem(Tool::Search, &json!({ "query": null })).contains("query: expected a string, got null"));
        assert!(read("t", Tool::ListServers.fields(), &Json::Null).is_ok());
    }

    #[test]
    fn all_that_is_wrong_is_said_with_what_was_meant() {
        let text = problem(Tool::RunJavascript, &json!({ "cod": "x", "timeout_ms": 5, "timeoutMs": "5", "zzz": 1 }));
        for part in [
            "there is no argument \"cod\": did you mean \"code\"?",
            "did you mean \"timeoutMs\"?",
            "timeoutMs: expected a whole number of 1 or more, got \"5\" (string)",
            "there is no argument \"zzz\"",
            "code: is missing; expected a string",
            "It takes { code, input?, timeoutMs? }",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(problem(Tool::Manage, &json!({ "action": "enabel" })).contains("did you mean \"enable\"?"));
        assert!(problem(Tool::Manage, &json!({ "action": "approve" })).contains("\"approve\" is not one of list, info"));
    }

    #[test]
    fn values_are_understood_as_providers_and_models_write_them() {
        let run = |given: Json| read("t", Tool::RunJavascript.fields(), &given);
        assert_eq!(run(json!("{\"code\": \"x\"}")).unwrap().text("code"), Some("x"));
        assert_eq!(run(json!({ "code": "x", "input": "{\"n\": 1}" })).unwrap().take("input"), Some(json!({ "n": 1 })));
        assert_eq!(run(json!({ "code": "x", "input": { "n": 1 } })).unwrap().take("input"), Some(json!({ "n": 1 })));
        assert_eq!(run(json!({ "code": "x", "timeoutMs": 5.0 })).unwrap().whole("timeoutMs"), Some(5));
        let named = read("t", Tool::Describe.fields(), &json!({ "names": "weather" })).unwrap();
        assert_eq!(named.texts("names"), Some(vec!["weather".to_owned()]));
        for input in [json!("{\"id\": 9007199254740993}"), json!({ "id": 9_007_199_254_740_993_u64 })] {
            let text = run(json!({ "code": "x", "input": input })).unwrap_err().to_string();
            assert!(text.contains("input: 9007199254740993 is an integer that JavaScript cannot hold"), "{text}");
        }
        assert!(run(json!({ "code": "x", "input": "hello" })).unwrap_err().to_string().contains("with quotes"));
    }

    #[test]
    fn a_name_that_is_too_long_to_be_one_is_refused() {
        let (longest, long) = ("x".repeat(MAX_DESCRIBED_NAME_BYTES), ".".repeat(MAX_DESCRIBED_NAME_BYTES + 1));
        let described = |names: Json| (Tool::Describe, "names", json!({ "names": names }));
        let searched = |names: Json| (Tool::Search, "servers", json!({ "query": "x", "servers": names }));
        for (tool, _, given) in [described(json!([longest])), searched(json!([longest]))] {
            assert!(read("t", tool.fields(), &given).is_ok());
        }
        for names in [json!(long), json!(["weather", long])] {
            for (tool, field, given) in [described(names.clone()), searched(names.clone())] {
                let text = problem(tool, &given);
                assert!(text.contains(&format!("{field}: expected a list of 1 to 20 names, each of at most 512 bytes, got ")), "{text}");
            }
        }
    }

    #[test]
    fn hostile_arguments_give_short_answers() {
        let long = "x".repeat(1_000_000);
        let many: Map<String, Json> = (0..10_000).map(|number| (format!("key{number}\u{202e}"), json!(long.len()))).collect();
        let values = [
            json!(many),
            json!(long),
            json!("[".repeat(100_000)),
            json!([1]),
            json!(5),
            json!({ "code": 5, "input": "{", "timeoutMs": -1e300 }),
            json!({ "code": "x", "timeoutMs": 0 }),
            json!({ "query": long, "servers": vec!["x"; 21] }),
        ];
        for tool in Tool::ALL {
            for value in &values {
                if let Err(error) = read(tool.name(), tool.fields(), value) {
                    let text = error.to_string();
                    assert!(text.len() < 1_500 && !text.contains('\u{202e}'), "{text}");
                }
            }
        }
        assert!(problem(Tool::RunJavascript, &values[5]).contains("expected a whole number"));
    }
}
