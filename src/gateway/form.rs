//! Prepares a server's form for a person. The person sees exactly the form that is answered: names, choices and defaults are shown
//! unchanged. If one of them cannot be shown unchanged, the form is not shown.

use serde_json::{Map, Value as Json};

use crate::redact::Redactor;
use crate::text::json::inexact_integer;
use crate::text::{has_invisible, is_unseen};

/// Maximum length of a name in a message.
const MAX_NAME_CHARS: usize = 80;
/// Schema keywords whose values are sent to the server, or decide whether an answer is valid.
const EXACT: [&str; 6] = ["enum", "const", "default", "required", "type", "format"];

/// Returns the form's schema for a person. Titles and descriptions are made readable, and have at most `max_chars` characters.
///
/// # Errors
/// The reason why a name, a choice or a default cannot be shown unchanged: it contains a secret of a config, or invisible characters.
/// Otherwise a person would agree to a value that differs from the value that is sent. An integer that JavaScript cannot represent exactly
/// is an error too, even in a bound such as `maximum`.
pub(super) fn shown_form(redactor: &Redactor, schema: &Json, max_chars: usize) -> Result<Json, String> {
    if inexact_integer(schema).is_some() {
        return Err("the form has an integer that JavaScript shows with other digits".to_owned());
    }
    let shown = Shown { redactor, max_chars };
    let Json::Object(fields) = schema else { return shown.exact(schema, "the form").map(|()| schema.clone()) };
    fields
        .iter()
        .map(|(key, value)| {
            let value = match (key.as_str(), value) {
                ("properties", Json::Object(properties)) => Json::Object(shown.properties(properties)?),
                _ => shown.keyword(key, value, "the form")?,
            };
            shown.named(key, value)
        })
        .collect::<Result<_, _>>()
        .map(Json::Object)
}

struct Shown<'r> {
    redactor: &'r Redactor,
    max_chars: usize,
}

impl Shown<'_> {
    fn properties(&self, properties: &Map<String, Json>) -> Result<Map<String, Json>, String> {
        properties
            .iter()
            .map(|(name, property)| {
                let field = format!("the field \"{}\"", self.redactor.readable_line(name, MAX_NAME_CHARS));
                self.named(name, self.schema(property, &field)?)
            })
            .collect()
    }

    /// Returns the shown schema of a field, of the items of a list, or of a choice.
    fn schema(&self, schema: &Json, field: &str) -> Result<Json, String> {
        match schema {
            Json::Object(keywords) => {
                let keyword = |(key, value): (&String, &Json)| self.named(key, self.keyword(key, value, field)?);
                keywords.iter().map(keyword).collect::<Result<_, _>>().map(Json::Object)
            }
            Json::Array(items) => items.iter().map(|item| self.schema(item, field)).collect(),
            other => Ok(self.readable(other)),
        }
    }

    fn keyword(&self, key: &str, value: &Json, field: &str) -> Result<Json, String> {
        match (key, value) {
            _ if EXACT.contains(&key) => self.exact(value, field).map(|()| value.clone()),
            (_, Json::Object(_) | Json::Array(_)) => self.schema(value, field),
            _ => Ok(self.readable(value)),
        }
    }

    fn named(&self, name: &str, value: Json) -> Result<(String, Json), String> {
        self.exact_text(name, "the form").map(|()| (name.to_owned(), value))
    }

    /// Checks that a value can be shown unchanged.
    fn exact(&self, json: &Json, field: &str) -> Result<(), String> {
        match json {
            Json::String(text) => self.exact_text(text, field),
            Json::Number(number) => self.exact_text(&number.to_string(), field),
            Json::Array(items) => items.iter().try_for_each(|item| self.exact(item, field)),
            Json::Object(fields) => {
                fields.iter().try_for_each(|(key, value)| self.exact_text(key, field).and_then(|()| self.exact(value, field)))
            }
            Json::Null | Json::Bool(_) => Ok(()),
        }
    }

    fn exact_text(&self, text: &str, field: &str) -> Result<(), String> {
        if has_unseen(text) {
            return Err(format!("{field} has a name, a choice or a default with invisible characters"));
        }
        if self.redactor.without_secrets(text) != text {
            return Err(format!("{field} has a name, a choice or a default with a secret of the config"));
        }
        Ok(())
    }

    fn readable(&self, json: &Json) -> Json {
        match json {
            Json::String(text) => Json::String(self.redactor.readable_question(text, self.max_chars)),
            // A number that is a secret is redacted like a text.
            Json::Number(number) if self.redactor.without_secrets(&number.to_string()) != number.to_string() => {
                Json::String(self.redactor.readable_question(&number.to_string(), self.max_chars))
            }
            other => other.clone(),
        }
    }
}

/// Returns whether a text has control characters or invisible characters. Allows line breaks, tabs, and invisible characters that an emoji
/// or a script needs.
fn has_unseen(text: &str) -> bool {
    let is_blank = |character: char| matches!(character, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{2800}');
    let has_lone_return = text.replace("\r\n", "\n").contains('\r');
    let is_only_unseen = !text.is_empty() && text.chars().all(|character| is_unseen(character) || character.is_whitespace());
    has_invisible(text) || text.contains(is_blank) || has_lone_return || is_only_unseen
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(properties: &Json) -> Result<Json, String> {
        let redactor = Redactor::new(None, None);
        redactor.add([&"correct-horse".to_owned().into()]);
        let schema = json!({ "type": "object", "properties": properties, "required": [] });
        shown_form(&redactor, &schema, 100).map(|mut shown| shown["properties"].take())
    }

    #[test]
    fn a_form_that_a_person_sees_is_the_form_that_is_answered() {
        let fields = json!({
            "db": { "type": "string", "enum": ["/srv/data/prod/db", "/srv/backup/prod/db"] },
            "path": { "type": "string", "default": "/etc/cron.d/important/file" },
            "command": { "type": "string", "default": "run `id` */ now\r\nand\tthen" },
            "sure": { "type": "string", "oneOf": [{ "const": "/a/b/c/yes", "title": "❤\u{fe0f}" }], "default": "/a/b/c/yes" },
            "tags": { "type": "array", "items": { "type": "string", "enum": ["/a/b/c/d", "/x/y/c/d"] }, "default": ["/x/y/c/d"] },
            "default": { "type": "number", "default": 7, "minimum": 1 },
            "properties": { "type": "boolean", "default": true },
            "account": { "type": "integer", "default": 9_007_199_254_740_992_u64, "maximum": 9_007_199_254_740_994_u64 },
            "long": { "type": "string", "default": "x".repeat(1_000) },
        });
        let mut expected = fields.clone();
        expected["sure"]["oneOf"][0]["title"] = json!("❤");
        assert_eq!(shown(&fields).unwrap(), expected);
    }

    #[test]
    fn a_form_that_cannot_be_shown_as_it_is_is_not_shown() {
        for field in [
            json!({ "delete\u{200b}": { "type": "boolean", "default": true } }),
            json!({ "a\u{2800}": { "type": "boolean" } }),
            json!({ "": { "type": "string", "default": "\u{1b}[2J" } }),
            json!({ "to": { "type": "string", "default": "alice@corp.example\u{202e}" } }),
            json!({ "to": { "type": "string", "default": "a\rb" } }),
            json!({ "to": { "type": "string", "enum": ["a", "a\u{200b}"] } }),
            json!({ "to": { "type": "string", "oneOf": [{ "const": "a\u{3164}", "title": "a" }] } }),
            json!({ "to": { "type": "array", "items": { "anyOf": [{ "const": "correct-horse", "title": "a" }] } } }),
            json!({ "to": { "type": "array", "items": { "enum": ["a"] }, "default": ["a\u{ad}"] } }),
            json!({ "correct-horse": { "type": "string" } }),
            json!({ "to": { "type": "string", "default": "is correct-horse" } }),
            json!({ "to": { "type": "string", "enum": [" "] } }),
            json!({ "to": { "type": "integer", "default": 1_234_567_890_123_456_811_u64 } }),
            json!({ "to": { "type": "integer", "default": -9_007_199_254_740_993_i64 } }),
            json!({ "to": { "type": "integer", "minimum": 9_007_199_254_740_993_u64 } }),
            json!({ "to": { "type": "integer", "maximum": 9_007_199_254_740_993_u64 } }),
            json!({ "to": { "type": "array", "items": { "enum": [9_007_199_254_740_993_u64] } } }),
        ] {
            assert!(shown(&field).is_err(), "{field}");
        }
    }

    #[test]
    fn titles_and_descriptions_are_readable_and_their_paths_are_whole() {
        let field =
            json!({ "a": { "type": "string", "title": "\u{1b}[2Jis correct-\u{200b}horse", "description": "in /srv/data/prod/db" } });
        let shown = shown(&field).unwrap();
        assert_eq!((&shown["a"]["title"], &shown["a"]["description"]), (&json!("is [redacted]"), &json!("in /srv/data/prod/db")));
    }
}
