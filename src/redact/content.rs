//! Replaces values that look like secrets in the arguments of a call, for the audit. The redactor knows the secrets of the config only. A model may
//! also pass a secret that is in no config, such as a password that a person has typed.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::arguments::secrets_of_arguments;
use super::composite::secrets_within;
use super::secret_rules::{is_key_name, is_named_for_a_secret, is_secret};
use super::{JSON_DEPTH, MARK, Redactor, insert_distinct};

/// Keys of the field that names the value in a pair such as `{ "name": "Authorization", "value": … }`.
const NAMES: [&str; 3] = ["name", "key", "header"];
const VALUE: &str = "value";

impl Redactor {
    /// Returns a JSON value without known secrets and without values that look like secrets: values under the names of secrets, values with the form of
    /// a token, and such parts of texts. The rules are those for values of the config. For contents that are stored.
    ///
    /// ```
    /// let redactor = hyperlight_mcp::redact::Redactor::new(None, None);
    /// let arguments = serde_json::json!({ "user": "ada", "password": "hunter2", "url": "https://x.example/?api_key=0123456789abcdef" });
    /// let kept = serde_json::json!({ "user": "ada", "password": "[redacted]", "url": "https://x.example/?api_key=[redacted]" });
    /// assert_eq!(redactor.content_json(&arguments), kept);
    /// ```
    #[must_use]
    pub fn content_json(&self, json: &Json) -> Json {
        without_secret_looks("", &self.redact_json(json), JSON_DEPTH)
    }
}

/// Replaces values that look like secrets. `name` is the key of the value, or an outer key that is the name of a secret.
fn without_secret_looks(name: &str, json: &Json, depth: usize) -> Json {
    match json {
        Json::Number(_) if is_named_for_a_secret(name) => MARK.into(),
        Json::Null | Json::Bool(_) | Json::Number(_) => json.clone(),
        Json::String(text) => text_without_secrets(name, text).into(),
        Json::Array(_) | Json::Object(_) if depth == 0 => MARK.into(),
        Json::Array(items) => list(name, items, depth),
        Json::Object(fields) => object(name, fields, depth),
    }
}

fn list(name: &str, items: &[Json], depth: usize) -> Json {
    let words: Vec<String> = items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect();
    // In the words of a command, a word may name the secret after it: `["--token", "x"]`.
    let secrets = if words.len() == items.len() { secrets_of_arguments(&words) } else { BTreeSet::new() };
    let item = |item: &Json| match item.as_str() {
        Some(word) if secrets.contains(word) => MARK.into(),
        _ => without_secret_looks(name, item, depth - 1),
    };
    items.iter().map(item).collect()
}

fn object(name: &str, fields: &Map<String, Json>, depth: usize) -> Json {
    let mut all = Map::new();
    let of_pair = NAMES.iter().find_map(|key| fields.get(*key).and_then(Json::as_str));
    for (key, value) in fields {
        let inner = match of_pair {
            _ if is_named_for_a_secret(name) => name,
            Some(named) if key == VALUE => named,
            _ => key,
        };
        let kept = without_secret_looks(inner, value, depth - 1);
        insert_distinct(&mut all, text_without_secrets("", key), kept);
    }
    Json::Object(all)
}

/// Replaces a text, or parts of it. A short value under a secret's name is replaced too, because only this value is replaced, and not equal texts in
/// other places.
fn text_without_secrets(name: &str, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    if is_named_for_a_secret(name) || (is_key_name(name) && is_secret(name, text)) {
        return MARK.to_owned();
    }
    let mut parts: Vec<String> = secrets_within(text).into_iter().filter(|part| !part.is_empty()).collect();
    // A secret may be part of a longer one.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    let mut kept = text.to_owned();
    for part in parts.iter().filter(|part| !MARK.contains(part.as_str())) {
        kept = kept.replace(part.as_str(), MARK);
    }
    // Parts that are replaced already do not decide about the rest.
    if kept == text && is_secret(name, &text.replace(MARK, "")) { MARK.to_owned() } else { kept }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOKEN: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

    fn kept(json: &Json) -> Json {
        Redactor::new(None, None).content_json(json)
    }

    #[test]
    fn a_secret_that_nobody_knows_is_found_by_its_name_or_its_shape() {
        for (given, expected) in [
            (json!({ "password": "x" }), json!({ "password": MARK })),
            (json!({ "pin": 1, "password": 123_456 }), json!({ "pin": 1, "password": MARK })),
            (json!({ "credentials": { "user": "ada", "word": "horse" } }), json!({ "credentials": { "user": MARK, "word": MARK } })),
            (json!({ "tokens": ["one", "two"] }), json!({ "tokens": [MARK, MARK] })),
            (json!({ "note": TOKEN }), json!({ "note": MARK })),
            (json!({ "note": format!("use {TOKEN} here") }), json!({ "note": format!("use {MARK} here") })),
            (json!({ TOKEN: 1 }), json!({ MARK: 1 })),
            (json!({ "dsn": "postgres://ada:swordfish@db/x" }), json!({ "dsn": MARK })),
            (json!({ "address": "postgres://ada:swordfish@db/x" }), json!({ "address": format!("postgres://{MARK}@db/x") })),
            (json!({ "args": ["--token", "swordfish", "-v"] }), json!({ "args": ["--token", MARK, "-v"] })),
            (
                json!({ "headers": [{ "name": "X-Api-Key", "value": "swordfish" }] }),
                json!({ "headers": [{ "name": "X-Api-Key", "value": MARK }] }),
            ),
        ] {
            assert_eq!(kept(&given), expected, "{given}");
        }
        let texts =
            kept(&json!([r#"{"client_secret":"correct-horse-battery"}"#, "curl -H 'Authorization: Bearer correct-horse'"])).to_string();
        assert!(!texts.contains("horse") && texts.contains("client_secret") && texts.contains("curl"), "{texts}");
    }

    #[test]
    fn what_is_no_secret_stays_as_it_is() {
        let plain = json!({
            "path": "src/main.rs", "query": "how to rotate a password", "limit": 10, "recursive": true, "none": null, "empty": "", "max_tokens": 400,
            "location": "Oslo", "ids": ["3f2b8c1e-8a54-4c6b-9d55-0f1e2d3c4b5a"], "url": "https://example.com/a?page=2", "public_key": "primary",
        });
        assert_eq!(kept(&plain), plain);
    }

    #[test]
    fn a_value_that_is_blanked_once_stays_so() {
        let once = kept(&json!({ "url": "https://x.example/?api_key=0123456789abcdef", "password": "x", TOKEN: TOKEN }));
        assert_eq!(kept(&once), once);
    }
}
