//! Formats entries and inputs without values that may be secret, because terminals and logs keep printed text. Each value is masked
//! according to its appearance and its name. A value with an unknown key or of an unexpected type is masked as a whole.

use serde_json::{Map, Value as Json, json};

use super::found::{Secret, secret_field};
use super::words::{shown_arguments, shown_text};
use crate::config::{Part, Template, shown_placeholder};
use crate::redact::is_secret;
use crate::trust::{address_of, shown_header, shown_variable_of};

pub(super) const MASKED: &str = "***";
/// Keys of `oauth` whose values are names, numbers and options, and not secrets.
const PLAIN_OF_OAUTH: [&str; 5] = ["clientId", "scopes", "callbackPort", "grant", "signingAlgorithm"];

/// Returns an entry for printing. If there is a suggestion for a value, the suggestion replaces the value.
pub(super) fn shown_entry(entry: &Json, secrets: &[Secret]) -> Json {
    let Some(fields) = entry.as_object() else { return json!(MASKED) };
    let (program, words) = words_of(entry);
    Json::Object(fields.iter().map(|(key, value)| (key.clone(), field((&program, &words), key, value, secrets))).collect())
}

fn field((program, words): (&str, &[String]), key: &str, value: &Json, secrets: &[Secret]) -> Json {
    match (key, value) {
        ("env", Json::Object(variables)) => table(key, variables, &|name, value| shown_variable_of(program, words, name, value), secrets),
        ("headers", Json::Object(headers)) => table(key, headers, &shown_header, secrets),
        ("args", Json::Array(given)) => arguments(program, given),
        ("oauth", Json::Object(settings)) => Json::Object(settings.iter().map(|(key, value)| (key.clone(), setting(key, value))).collect()),
        ("url", Json::String(url)) => json!(shown_url(url)),
        ("command" | "cwd" | "envFile" | "type", Json::String(text)) => json!(shown_text("", text)),
        ("allowTools" | "denyTools" | "reads", Json::Array(names)) => names.iter().map(name).collect(),
        (_, Json::Bool(_) | Json::Number(_) | Json::Null) => value.clone(),
        _ => json!(MASKED),
    }
}

/// Returns the command of an entry and its arguments.
pub(super) fn words_of(entry: &Json) -> (String, Vec<String>) {
    let words = entry["args"].as_array().into_iter().flatten().map(|word| word.as_str().unwrap_or_default().to_owned());
    (entry["command"].as_str().unwrap_or_default().to_owned(), words.collect())
}

fn table(key: &str, values: &Map<String, Json>, show: &dyn Fn(&str, &str) -> String, secrets: &[Secret]) -> Json {
    let shown = |name: &String, value: &Json| {
        let text = match value {
            Json::String(text) => text.clone(),
            Json::Bool(_) | Json::Number(_) => value.to_string(),
            Json::Null => return Json::Null,
            Json::Array(_) | Json::Object(_) => return json!(MASKED),
        };
        let masked = show(name, &text).split_off(name.len() + 1);
        match secrets.iter().find(|secret| secret.field == secret_field(key, name)) {
            Some(secret) => json!(secret.suggestion),
            None if masked == text => value.clone(),
            None => json!(masked),
        }
    };
    Json::Object(values.iter().map(|(name, value)| (name.clone(), shown(name, value))).collect())
}

fn arguments(program: &str, words: &[Json]) -> Json {
    // A word that is not a string is treated as an empty text here, so that each word after it keeps its position.
    let texts: Vec<&str> = words.iter().map(|word| word.as_str().unwrap_or_default()).collect();
    let shown = words.iter().zip(shown_arguments(program, &texts));
    shown.map(|(word, shown)| if word.is_string() { json!(shown) } else { json!(MASKED) }).collect()
}

fn setting(key: &str, value: &Json) -> Json {
    match (key, value) {
        ("issuer" | "clientMetadataUrl", Json::String(url)) => json!(shown_url(url)),
        ("clientSecret" | "privateKey", Json::String(text)) => json!(only_placeholders(text)),
        ("scopes", Json::Array(scopes)) => scopes.iter().map(name).collect(),
        (key, Json::String(text)) if PLAIN_OF_OAUTH.contains(&key) => json!(text),
        (key, Json::Bool(_) | Json::Number(_) | Json::Null) if PLAIN_OF_OAUTH.contains(&key) => value.clone(),
        _ => json!(MASKED),
    }
}

fn name(value: &Json) -> Json {
    json!(value.as_str().map_or_else(|| MASKED.to_owned(), |text| shown_text("", text)))
}

/// Returns the placeholders in a secret. Masks its literal text and all defaults.
fn only_placeholders(text: &str) -> String {
    let Ok(template) = Template::parse(text) else { return MASKED.to_owned() };
    let part = |part: &Part| match part {
        Part::Literal(_) => MASKED.to_owned(),
        Part::Placeholder { source, meaning } => shown_placeholder(source, *meaning, &|_, _| MASKED.to_owned()),
    };
    template.parts().iter().map(part).collect()
}

/// Returns an address without its user, the values in its query, its fragment, and the parts of its path that may be secret.
pub(super) fn shown_url(url: &str) -> String {
    let shown = address_of(url, None).shown;
    let start = shown.find("://").map_or(0, |end| end + 3);
    let path = shown[start..].find('/').map_or(shown.len(), |end| start + end);
    let end = shown[path..].find(['?', '#']).map_or(shown.len(), |end| path + end);
    let segment = |segment: &str| {
        let bare = segment.trim_end_matches(['/', ';']);
        let border = &segment[bare.len()..];
        match bare.split_once('=') {
            _ if bare.contains("${") => segment.to_owned(),
            Some((name, value)) if is_secret(name, value) => format!("{name}={MASKED}{border}"),
            _ if is_secret("", bare) => format!("{MASKED}{border}"),
            _ => segment.to_owned(),
        }
    };
    let segments: String = shown[path..end].split_inclusive(['/', ';']).map(segment).collect();
    format!("{}{segments}{}", &shown[..path], &shown[end..])
}

/// Returns whether a part of an address's path may be secret.
pub(super) fn hides_path(url: &str) -> bool {
    shown_url(url) != address_of(url, None).shown
}

/// Returns the declaration of an input for printing. `may_show` decides whether a default is shown. It depends on the values in which the
/// input is used.
pub(super) fn shown_input(input: &Json, may_show: &dyn Fn(&str, &str) -> bool) -> Json {
    let Some(fields) = input.as_object() else { return json!(MASKED) };
    let id = input["id"].as_str().unwrap_or_default();
    let is_open = matches!(&input["password"], Json::Null | Json::Bool(false));
    let shown = |key: &str, value: &Json| match (key, value) {
        ("id" | "type" | "description", Json::String(_)) | ("default", Json::Null) => value.clone(),
        ("default", Json::String(text)) if is_open && may_show(id, text) => value.clone(),
        ("default", _) => json!(MASKED),
        ("options", Json::Array(options)) if is_open => {
            options.iter().map(|option| json!(option.as_str().map(|text| shown_text(id, text)))).collect()
        }
        (_, Json::Bool(_) | Json::Null) => value.clone(),
        _ => json!(MASKED),
    };
    Json::Object(fields.iter().map(|(key, value)| (key.clone(), shown(key, value))).collect())
}
