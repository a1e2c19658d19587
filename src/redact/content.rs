//! Replaces values that look like secrets in the arguments of a call, for the audit. The redactor knows the secrets of the config only. A model may
//! also pass a secret that is in no config, such as a password that a person has typed.

use serde_json::{Map, Value as Json};

use super::arguments::secrets_of_arguments;
use super::composite::secrets_within;
use super::passwords::{WordRange, passwords_in, passwords_of_words, values_of_named_options};
use super::secret_rules::{is_key_name, is_named_for_a_secret, is_secret};
use super::{JSON_DEPTH, MARK, Redactor, distinct};

/// Keys of the field that names the value in a pair such as `{ "name": "Authorization", "value": … }`.
const NAMES: [&str; 3] = ["name", "key", "header"];
const VALUE: &str = "value";
/// Keys whose value is a program. A list in the same object may be its arguments: `{ "command": "mysql", "args": […] }`.
const PROGRAMS: [&str; 4] = ["command", "cmd", "program", "executable"];

impl Redactor {
    /// Returns a JSON value in which known secrets and values that look like secrets are replaced. A value looks like a secret if its key
    /// is the name of a secret, or if it has the form of a token. Parts of texts that look like secrets are replaced too. The rules are the
    /// same as for values of the config. Used for contents that are stored.
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
        Json::Array(items) => list(name, None, items, depth),
        Json::Object(fields) => object(name, fields, depth),
    }
}

/// Replaces secrets in a list, which may be the words of a command. `program` is the program that gets these words, if it is not among them.
fn list(name: &str, program: Option<&str>, items: &[Json], depth: usize) -> Json {
    let mut words: Vec<String> = items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect();
    if words.len() < items.len() {
        return items.iter().map(|item| without_secret_looks(name, item, depth - 1)).collect();
    }
    // In the words of a command, a word may name the secret after it: `["--token", "x"]`.
    let secrets = secrets_of_arguments(&words);
    let whole: Vec<&str> = program.into_iter().chain(words.iter().map(String::as_str)).collect();
    let before = whole.len() - words.len();
    for (index, place) in passwords_of_command(&whole) {
        if let Some(word) = index.checked_sub(before).and_then(|index| words.get_mut(index)) {
            word.replace_range(place, MARK);
        }
    }
    let item = |(word, item): (String, &Json)| match item.as_str() {
        Some(given) if secrets.contains(given) => MARK.into(),
        _ => without_secret_looks(name, &Json::from(word), depth - 1),
    };
    words.into_iter().zip(items).map(item).collect()
}

/// Returns the places of passwords in the words of a command, at most one in each word.
fn passwords_of_command(words: &[&str]) -> Vec<WordRange> {
    let mut places = [passwords_of_words(words), values_of_named_options(words)].concat();
    places.sort_by_key(|(index, place)| (*index, place.start));
    places.dedup_by_key(|(index, _)| *index);
    places
}

fn object(name: &str, fields: &Map<String, Json>, depth: usize) -> Json {
    let mut all = Map::new();
    let program = PROGRAMS.iter().find_map(|key| fields.get(*key).and_then(Json::as_str));
    let of_pair = NAMES.iter().find_map(|key| fields.get(*key).and_then(Json::as_str));
    for (key, value) in fields {
        let inner = match of_pair {
            _ if is_named_for_a_secret(name) => name,
            Some(named) if key == VALUE => named,
            _ => key,
        };
        let kept = match value {
            Json::Array(items) if program.is_some() && depth > 1 => list(inner, program, items, depth - 1),
            _ => without_secret_looks(inner, value, depth - 1),
        };
        let key = distinct(text_without_secrets("", key), all.len(), |key| all.contains_key(key));
        all.insert(key, kept);
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
    let mut text = text.to_owned();
    for place in passwords_in(&text, passwords_of_command).into_iter().rev() {
        text.replace_range(place, MARK);
    }
    let text = text.as_str();
    let mut parts: Vec<String> = secrets_within(text).into_iter().filter(|part| !part.is_empty()).collect();
    // A secret may be part of a longer one.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    let mut kept = text.to_owned();
    for part in parts.iter().filter(|part| !MARK.contains(part.as_str())) {
        kept = kept.replace(part.as_str(), MARK);
    }
    // Parts that are replaced already do not make the rest a secret.
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
            (json!({ "command": "mysql -u root -phunter2 shop" }), json!({ "command": format!("mysql -u root -p{MARK} shop") })),
            (json!({ "command": "mysql -u root -p 'hunter2'" }), json!({ "command": format!("mysql -u root -p '{MARK}'") })),
            (json!({ "command": "tool --password x9 --user ada" }), json!({ "command": format!("tool --password {MARK} --user ada") })),
            (json!({ "args": ["mysql", "-phunter2"] }), json!({ "args": ["mysql", format!("-p{MARK}")] })),
            (
                json!({ "command": "mysql", "args": ["-u", "root", "-phunter2"] }),
                json!({ "command": "mysql", "args": ["-u", "root", format!("-p{MARK}")] }),
            ),
            (
                json!({ "sql": "create user ada identified with caching_sha2_password by \"x\"\"y\"" }),
                json!({ "sql": format!("create user ada identified with caching_sha2_password by \"{MARK}\"") }),
            ),
            (json!({ "sql": "SET PASSWORD FOR ada = 'x''y'" }), json!({ "sql": format!("SET PASSWORD FOR ada = '{MARK}'") })),
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
            "command": "mkdir -p production && ssh -p 2222 host", "sql": "select password from users where name = 'ada'", "args": ["mysql", "-u", "root"],
        });
        assert_eq!(kept(&plain), plain);
    }

    #[test]
    fn a_value_that_is_blanked_once_stays_so() {
        let once = kept(&json!({ "url": "https://x.example/?api_key=0123456789abcdef", "password": "x", TOKEN: TOKEN }));
        assert_eq!(kept(&once), once);
    }
}
