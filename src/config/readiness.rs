//! Finds the variables that a server needs but that are not set, before anything is started.

use std::collections::BTreeMap;

use secrecy::ExposeSecret as _;

use super::definition::{ServerDefinition, Transport};
use super::template::{Part, Placeholder, Template};

/// Returns the names of variables that the server needs and that the environment does not contain: variables of placeholders without a
/// default, and variables that the server's definition requires. Each name appears once, required variables first. A server that lacks such
/// a variable cannot be started.
///
/// ```
/// use hyperlight_mcp::config::{missing_variables, parse_text};
/// let text = r#"{ "mcpServers": { "a": { "command": "x", "env": { "KEY": "${API_KEY}", "LEVEL": "${LEVEL:-info}" } } } }"#;
/// let server = &parse_text(text, "c", 9).unwrap().servers[0];
/// assert_eq!(missing_variables(server, &Default::default()), ["API_KEY"]);
/// ```
#[must_use]
pub fn missing_variables(server: &ServerDefinition, environment: &BTreeMap<String, String>) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    let mut note = |name: &str| {
        if !missing.iter().any(|known| known == name) {
            missing.push(name.to_owned());
        }
    };
    // A required variable with an empty value is treated as missing, because the server could not use it.
    let is_empty = |name: &String| environment.get(name).is_none_or(String::is_empty);
    server.required_environment.iter().filter(|name| is_empty(name)).for_each(|name| note(name));
    for text in texts_of(server).into_iter().filter(|text| text.contains("${")) {
        let Ok(template) = Template::parse(text) else { continue };
        for part in template.parts() {
            if let Part::Placeholder { meaning: Placeholder::Variable { name, default: None }, .. } = part
                && !environment.contains_key(*name)
            {
                note(name);
            }
        }
    }
    missing
}

/// Returns the texts of an entry that may contain placeholders of variables.
fn texts_of(server: &ServerDefinition) -> Vec<&str> {
    match &server.transport {
        Transport::Stdio { environment, .. } => environment.iter().map(|(_, value)| value.expose_secret()).collect(),
        Transport::Http { url, headers, oauth } => {
            let headers = headers.iter().map(|(_, value)| value.expose_secret());
            [url.as_str()].into_iter().chain(headers).chain(oauth.iter().flat_map(|oauth| oauth.texts())).collect()
        }
        Transport::Generated(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    fn missing(entry: &str, set: &[(&str, &str)], required: &[&str]) -> Vec<String> {
        let text = format!(r#"{{ "mcpServers": {{ "a": {entry} }} }}"#);
        let mut server = parse_text(&text, "c", 9).unwrap().servers.remove(0);
        server.required_environment = required.iter().map(|name| (*name).to_owned()).collect();
        missing_variables(&server, &set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn what_is_not_set_and_has_no_default_is_missing_once() {
        let env =
            r#"{ "command": "x", "env": { "A": "${ONE}", "B": "x-${ONE}-${env:TWO}", "C": "${THREE:-3}", "D": "plain", "E": null } }"#;
        assert_eq!(missing(env, &[], &[]), ["ONE", "TWO"]);
        assert_eq!(missing(env, &[("ONE", "1")], &["TWO", "FOUR"]), ["TWO", "FOUR"]);
        assert_eq!(missing(env, &[("ONE", ""), ("TWO", ""), ("FOUR", "")], &["FOUR"]), ["FOUR"]);
        let http = r#"{ "url": "https://${TENANT}.example/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } }"#;
        assert_eq!(missing(http, &[("TENANT", "t")], &[]), ["TOKEN"]);
    }
}
