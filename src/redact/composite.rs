//! Finds the secrets within a text that has other parts too: the password of a connection string, a parameter of an address, a field of JSON. Programs
//! print these parts on their own.

use std::collections::BTreeSet;

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD_NO_PAD;
use percent_encoding::percent_decode_str;
use serde_json::Value as Json;

use super::secret_rules::{after_scheme, is_key_name, is_redactable, is_secret, is_secret_name, is_secret_segment};

/// Maximum depth of texts within texts: a URL in JSON in a variable.
const MAX_LEVELS: usize = 4;
/// Maximum number of secrets of one text. Each has many forms, for which every text is searched.
const MAX_SECRETS: usize = 128;
/// Maximum number of values of one text that are looked at, and maximum length of an assigned value. Bounds the time for a text that is made of `=`.
const MAX_VALUES: usize = 2_000;
const MAX_VALUE_BYTES: usize = 4_096;
/// Maximum length of a user's name before a colon and a password.
const MAX_USER_BYTES: usize = 64;

/// Returns the parts of a text that are secrets themselves: credentials after `Bearer` or `Basic`, the login in a URL and its password, secret segments
/// of its path, values under a secret's name in assignments, headers and JSON, and values that look like secrets.
///
/// ```
/// use hyperlight_mcp::redact::secrets_within;
/// assert!(secrets_within("Server=db;User=x;Password=correct-horse;").contains("correct-horse"));
/// assert_eq!(secrets_within("https://example.com/mcp?page=2").len(), 0);
/// ```
#[must_use]
pub fn secrets_within(text: &str) -> BTreeSet<String> {
    let mut found = Found::default();
    found.search(text, MAX_LEVELS);
    found.secrets
}

#[derive(Default)]
struct Found {
    secrets: BTreeSet<String>,
    /// The number of values that were looked at.
    values: usize,
}

impl Found {
    /// Searches a text in each form that it may have.
    fn search(&mut self, text: &str, levels: usize) {
        if levels == 0 {
            return;
        }
        let text = text.trim();
        if let Ok(json @ (Json::Object(_) | Json::Array(_))) = serde_json::from_str(text) {
            return self.json("", &json, levels);
        }
        self.credentials(text, levels);
        for word in text.split_whitespace() {
            self.url(word);
        }
        self.header(text, levels);
        self.assignments(text, levels);
        self.pair(text);
    }

    /// Adds a secret, and searches within it.
    fn add(&mut self, secret: &str, levels: usize) {
        let secret = secret.trim();
        if !secret.is_empty() && self.secrets.len() < MAX_SECRETS && self.secrets.insert(secret.to_owned()) {
            for line in secret.lines().map(str::trim).filter(|line| *line != secret) {
                self.add(line, 0);
            }
            self.search(secret, levels.saturating_sub(1));
        }
    }

    /// Adds a value if it is a secret under its name or by its look. Searches within any other value.
    fn value(&mut self, name: &str, value: &str, levels: usize) {
        self.values += 1;
        if value.is_empty() || self.values > MAX_VALUES {
            return;
        }
        let is_named = is_secret_name(name) || is_key_name(name);
        if (is_named && is_redactable(name, value)) || (!value.contains("://") && is_secret("", value)) {
            self.add(value, levels);
        } else {
            self.search(value, levels.saturating_sub(1));
        }
    }

    fn json(&mut self, name: &str, json: &Json, levels: usize) {
        match json {
            Json::String(text) => self.value(name, text, levels),
            Json::Number(number) => self.value(name, &number.to_string(), levels),
            // The parser limits the depth.
            Json::Array(items) => items.iter().for_each(|item| self.json(name, item, levels)),
            Json::Object(fields) => fields.iter().for_each(|(name, value)| self.json(name, value, levels)),
            Json::Null | Json::Bool(_) => {}
        }
    }

    /// Finds the token in `Bearer token`, and the password in `Basic base64`.
    fn credentials(&mut self, text: &str, levels: usize) {
        let Some((credentials, is_basic)) = after_scheme(text) else { return };
        let decoded = STANDARD_NO_PAD.decode(credentials.trim_end_matches('=')).ok().and_then(|decoded| String::from_utf8(decoded).ok());
        self.add(credentials, 0);
        if let Some(login) = decoded.filter(|_| is_basic) {
            let password = login.split_once(':').map(|(_, password)| password.to_owned());
            self.add(&login, 0);
            self.add(&password.unwrap_or_default(), levels);
        }
    }

    /// Finds the login in a URL, which is sent as `Basic` credentials, and secret parts of its path, query and fragment.
    fn url(&mut self, text: &str) {
        let Some((_, rest)) = text.split_once("://") else { return };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if let Some((login, _)) = authority.rsplit_once('@') {
            // A name alone is a secret only by its look: `ssh://git@host`.
            let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
            if password.is_some() || is_secret("", user) || is_secret_segment(user) {
                for text in [login, password.unwrap_or(user)] {
                    self.add_decoded(text);
                }
            }
        }
        for part in rest.split(['/', '?', '&', '#', ';']) {
            let (name, value) = part.split_once('=').unwrap_or(("", part));
            let decoded = percent_decode_str(value).decode_utf8_lossy();
            let is_named = (is_secret_name(name) || is_key_name(name)) && is_redactable(name, &decoded);
            if is_named || is_secret_segment(&decoded) {
                self.add_decoded(value);
            }
        }
    }

    fn add_decoded(&mut self, text: &str) {
        self.add(text, 0);
        self.add(&percent_decode_str(text).decode_utf8_lossy(), 0);
    }

    /// Finds the value of a header: `Authorization: Bearer token`, `X-Api-Key: key`.
    fn header(&mut self, text: &str, levels: usize) {
        for line in text.lines() {
            if let Some((name, value)) = line.split_once(": ").filter(|(name, _)| is_name(name)) {
                self.value(name, value, levels);
            }
        }
    }

    /// Finds values in `Server=x;Password=y`, `host=x password=y`, `a=b&token=c`, `--token=x` and `sid=x; Path=/`.
    fn assignments(&mut self, text: &str, levels: usize) {
        for (at, _) in text.match_indices('=') {
            let before = &text[..at];
            let start = before
                .rfind(|next: char| !(next.is_alphanumeric() || "-_.".contains(next)))
                .map_or(0, |last| last + before[last..].chars().next().map_or(0, char::len_utf8));
            let (name, rest) = (&before[start..], &text[at + 1..]);
            if self.values > MAX_VALUES {
                return;
            }
            if !is_name(name) {
                continue;
            }
            let rest = &rest[..rest.floor_char_boundary(MAX_VALUE_BYTES)];
            let quote = rest.chars().next().and_then(|first| "\"'{".find(first).map(|kind| ['"', '\'', '}'][kind]));
            if let Some((value, _)) = quote.and_then(|quote| rest[1..].split_once(quote)) {
                self.value(name, value, levels);
            }
            // Each of these characters ends a value in one kind of text, and may be part of one in another kind.
            let ends: [&[char]; 4] =
                [&[';', '&', '#', ',', ' ', '\t', '\n', '\r'], &[';', '\n', '\r'], &[' ', '\t', '\n', '\r'], &['&', '#']];
            for ends in ends {
                let value = rest.split(ends).next().unwrap_or_default();
                self.value(name, value, 1);
            }
        }
    }

    /// Finds the password in `user:password`. Nothing names it, so a word, a number or a path is not taken for one.
    fn pair(&mut self, text: &str) {
        let Some((user, password)) = text.split_once(':') else { return };
        let is_user =
            !user.is_empty() && user.len() <= MAX_USER_BYTES && user.chars().all(|next| next.is_alphanumeric() || "._-@+".contains(next));
        if is_user && !password.starts_with("//") && !password.contains(char::is_whitespace) && is_redactable("", password) {
            self.add(password, 0);
        }
    }
}

/// Returns whether a text can be the name of a setting, a parameter or a header.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 128 && text.chars().all(|next| next.is_alphanumeric() || "-_.".contains(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "Zx9-Qw8-Er7-Ty6-Ui5";

    #[test]
    fn a_secret_is_found_in_every_usual_text_around_it() {
        for text in [
            "Server=db;User=x;Password=SECRET;",
            "Server=db;Pwd={SECRET};Port=1",
            "host=db user=x password=SECRET dbname=y",
            "host=db password='SECRET'",
            "https://api.example/v1?api_key=SECRET&x=1",
            "https://api.example/v1?key=SECRET",
            "https://api.example/v1?x=1#access_token=SECRET",
            "{\"type\":\"service\",\"private_key\":\"SECRET\"}",
            "{\"db\":{\"url\":\"postgres://u:SECRET@h/db\"}}",
            "[{\"tokens\":[\"SECRET\"]}]",
            "admin:SECRET",
            "Bearer SECRET",
            "postgres://u:SECRET@h/db",
            "postgres://SECRET@h/db",
            "https://hooks.example/services/T00/B00/SECRET",
            "https://hooks.example/SECRET/mcp",
            "user=x;token=SECRET",
            "sid=SECRET; Path=/; HttpOnly",
            "connect.sid=SECRET",
            "Authorization: Bearer SECRET",
            "X-Api-Key: SECRET",
            "--token=SECRET",
            "--verbose --db postgres://u:SECRET@h/db",
            "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=SECRET;EndpointSuffix=core.windows.net",
        ] {
            let found = secrets_within(&text.replace("SECRET", SECRET));
            assert!(found.contains(SECRET), "{text}: {found:?}");
        }
    }

    #[test]
    fn a_login_is_found_as_it_is_sent_and_as_it_is_written() {
        let found = secrets_within("https://bob:p%40ss%2Fword9@example.com/mcp");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["bob:p%40ss%2Fword9", "bob:p@ss/word9", "p%40ss%2Fword9", "p@ss/word9"]);
        // A short password is known by its login.
        assert!(secrets_within("https://bob:hunter2@example.com").contains("bob:hunter2"));
        assert!(secrets_within("https://example.com/3f2b8c1e-8a54-4c6b-9d55-0f1e2d3c4b5a/sse").len() == 1);
    }

    #[test]
    fn what_is_no_secret_is_not_found_in_any_text() {
        for text in [
            "https://example.com/v1/models?limit=100&page=next",
            "https://git@github.com/modelcontextprotocol/servers",
            "https://api.example.com/organizations/acme-widgets-2024/mcp-server-filesystem",
            "ssh://git@host/path",
            "file:///srv/data/prod/db",
            "host=db user=x dbname=y",
            "Accept: application/json, text/event-stream",
            "{\"type\":\"service\",\"timeout\":100000000}",
            "localhost:5432",
            "localhost:production",
            "-y @modelcontextprotocol/server-filesystem /srv/data",
            "--max-old-space-size=4096",
            "TOKEN_FILE=/run/secrets/token",
            "password=disabled",
            "Server=tcp:db.example,1433;Encrypt=True",
            "sort_key=created_at",
        ] {
            let found = secrets_within(text);
            assert!(found.is_empty(), "{text}: {found:?}");
        }
    }

    #[test]
    fn a_text_of_many_parts_costs_little_and_adds_few() {
        let many: Vec<String> = (0..5_000).map(|number| format!("token{number}=Zx9-Qw8-{number}")).collect();
        assert!(secrets_within(&many.join(";")).len() <= MAX_SECRETS);
        let deep = "a=".repeat(50_000);
        let _ = secrets_within(&deep);
    }
}
