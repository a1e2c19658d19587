//! Finds the secrets inside a text that also has other parts: the password in a connection string, a parameter in an address, a field in
//! JSON. It is needed because programs print such parts alone.

use std::collections::BTreeSet;

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD_NO_PAD;
use percent_encoding::percent_decode_str;
use serde_json::Value as Json;

use super::passwords::{passwords_in, passwords_of_words};
use super::secret_rules::{FEWEST_CHARACTERS, after_scheme, is_key_name, is_redactable, is_secret, is_secret_name, is_secret_segment};
use super::settings::{after_colon, elements, options, settings};

/// Maximum depth of texts inside other texts, for example of a URL in JSON in a variable.
const MAX_LEVELS: usize = 4;
/// Maximum number of secrets in one text. It is limited because each secret has many forms, and every text is searched for all of them.
const MAX_SECRETS: usize = 128;
/// Maximum number of values that are examined in one text. It limits the time for a text that consists of `=`.
const MAX_VALUES: usize = 2_000;
/// Maximum number of words that are examined in one text.
const MAX_WORDS: usize = 5_000;
/// Maximum number of bytes that are searched in the values and inner texts of one text.
const MAX_BYTES: usize = 512 * 1_024;
/// Maximum length in bytes of a user name before a colon and a password.
const MAX_USER_BYTES: usize = 64;

/// Returns the parts of a text that are secrets:
///
/// - credentials after `Bearer` or `Basic`
/// - the login in a URL and its password, and secret segments of the URL's path
/// - values after the name of a secret in assignments, headers and JSON
/// - passwords in the options of known programs (`mysql -pVALUE`), and passwords in SQL
/// - values that look like secrets
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
    /// Number of values that were examined.
    values: usize,
    /// Number of words that were examined.
    words: usize,
    /// Number of bytes that were examined in values and inner texts.
    bytes: usize,
}

impl Found {
    /// Searches a text for secrets. The text is interpreted in each form that it may have.
    fn search(&mut self, text: &str, levels: usize) {
        if levels < MAX_LEVELS {
            self.bytes += text.len();
        }
        if levels == 0 || self.is_spent() {
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
        self.settings(text, levels);
        for place in passwords_in(text, passwords_of_words) {
            self.value("password", &text[place], levels);
        }
        self.pair(text);
        self.words(text);
        self.encoded(text, levels);
    }

    fn is_spent(&self) -> bool {
        self.values > MAX_VALUES || self.bytes > MAX_BYTES
    }

    /// Adds a secret, and searches inside it for further secrets.
    fn add(&mut self, secret: &str, levels: usize) {
        let secret = secret.trim();
        if !secret.is_empty() && self.secrets.len() < MAX_SECRETS && self.secrets.insert(secret.to_owned()) {
            for line in secret.lines().map(str::trim).filter(|line| *line != secret) {
                self.add(line, 0);
            }
            self.search(secret, levels.saturating_sub(1));
        }
    }

    /// Adds a value if it is a secret because of its name or because of its look. Otherwise searches inside the value.
    fn value(&mut self, name: &str, value: &str, levels: usize) {
        self.values += 1;
        self.bytes += value.len();
        if value.is_empty() || self.is_spent() {
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
            // The depth of the recursion is limited, because the parser limits the depth of JSON.
            Json::Array(items) => items.iter().for_each(|item| self.json(name, item, levels)),
            Json::Object(fields) => fields.iter().for_each(|(name, value)| self.json(name, value, levels)),
            Json::Null | Json::Bool(_) => {}
        }
    }

    /// Finds the token in `Bearer token`, and the login and the password in `Basic base64`.
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

    /// Finds secrets in a URL: the login, which is sent as `Basic` credentials, and secret parts of the path, the query and the fragment.
    fn url(&mut self, text: &str) {
        let Some((_, rest)) = text.split_once("://") else { return };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if let Some((login, _)) = authority.rsplit_once('@') {
            // A user name without a password, as in `ssh://git@host`, is only a secret if it looks like one.
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

    /// Finds values of settings, for example in `Server=x;Password=y`, `host=x password=y`, `a=b&token=c`, `--token=x`, `sid=x; Path=/`
    /// and `Authorization: Bearer x`, and in common configuration formats.
    fn settings(&mut self, text: &str, levels: usize) {
        for setting in settings(text) {
            if self.is_spent() {
                return;
            }
            let name = setting.name;
            // Many texts contain colons. So a value after a colon is only examined if its name is the name of a secret or a key.
            if !setting.is_assigned && !is_secret_name(name) && !is_key_name(name) {
                continue;
            }
            if let Some(value) = setting.quoted {
                self.value(name, value, levels);
            }
            if !setting.is_assigned {
                if setting.quoted.is_none() {
                    for value in after_colon(setting.rest) {
                        self.value(name, value, levels);
                    }
                }
                continue;
            }
            // Each of these characters ends a value in some kind of text, and may be part of a value in another kind. So all variants are
            // examined.
            let ends: [&[char]; 4] =
                [&[';', '&', '#', ',', ' ', '\t', '\n', '\r'], &[';', '\n', '\r'], &[' ', '\t', '\n', '\r'], &['&', '#', '\n', '\r']];
            for ends in ends {
                let value = setting.rest.split(ends).next().unwrap_or_default();
                self.value(name, value, 1);
            }
        }
        for (name, value) in elements(text).chain(options(text)) {
            if is_secret_name(name) || is_key_name(name) {
                self.value(name, value, levels);
            } else if matches!(name, "u" | "user") {
                self.pair(value);
            }
        }
    }

    /// Finds words that look like secrets, at any position.
    fn words(&mut self, text: &str) {
        let is_end = |next: char| next.is_whitespace() || ",;|\"'`<>(){}[]".contains(next);
        // The digest of an image or a file is public, so words with `sha` are skipped.
        let words = text.split(is_end).filter(|word| word.len() >= FEWEST_CHARACTERS && !word.contains("://") && !word.contains("sha"));
        for word in words {
            let parts = word.split([':', '=']).filter(|part| part.len() >= FEWEST_CHARACTERS && part.len() < word.len());
            for part in [word].into_iter().filter(|word| word.len() < text.len()).chain(parts) {
                self.words += 1;
                if self.words > MAX_WORDS {
                    return;
                }
                if is_secret("", part) {
                    self.add(part, 0);
                }
            }
        }
    }

    /// Decodes a text that may be encoded as base64 or for a URL, and searches in the decoded text.
    fn encoded(&mut self, text: &str, levels: usize) {
        if text.contains(char::is_whitespace) || text.contains("://") {
            return;
        }
        if text.contains('%') {
            let decoded = percent_decode_str(text).decode_utf8_lossy();
            if decoded != text {
                self.search(&decoded, levels - 1);
            }
        }
        let standard = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
        let decoded = STANDARD_NO_PAD.decode(standard).ok().and_then(|decoded| String::from_utf8(decoded).ok());
        // A random token is seldom a text when it is decoded, and almost never a text with a structure.
        if let Some(decoded) = decoded.filter(|text| text.starts_with(['{', '[']) || text.contains("://") || text.contains(['=', ':'])) {
            self.search(&decoded, levels - 1);
        }
    }

    /// Finds the password in `user:password`. No name marks it as a password, so a word, a number or a path is not treated as one.
    fn pair(&mut self, text: &str) {
        let Some((user, password)) = text.split_once(':') else { return };
        let is_user =
            !user.is_empty() && user.len() <= MAX_USER_BYTES && user.chars().all(|next| next.is_alphanumeric() || "._-@+".contains(next));
        if is_user && !password.starts_with("//") && !password.contains(char::is_whitespace) && is_redactable("", password) {
            self.add(password, 0);
        }
    }
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
            "host = \"db\"\npassword = \"SECRET\"",
            "[db]\nuser = x\npassword = SECRET",
            "Server = h; Password = SECRET;",
            "password:SECRET",
            "db:\n  password: SECRET\n",
            "db:\n  \"password\": \"SECRET\"\n",
            "db:\n  password: |-\n    SECRET\n",
            "{password: 'SECRET', user: 'x'}",
            "{password: SECRET, user: x}",
            "{\"password\": \"SECRET\", } // c",
            "{'password': 'SECRET'}",
            "{\"password\" => \"SECRET\"}",
            "x {\\\"password\\\":\\\"SECRET\\\"}",
            "--user x --password SECRET",
            "curl -u bob:SECRET",
            "-H \"Authorization: Bearer SECRET\"",
            "machine h login u password SECRET",
            "password\tSECRET",
            "<config><password>SECRET</password></config>",
            "//registry.example/:_authToken=SECRET",
            "%7B%22password%22%3A%22SECRET%22%7D",
            "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=SECRET;EndpointSuffix=core.windows.net",
        ] {
            let found = secrets_within(&text.replace("SECRET", SECRET));
            assert!(found.contains(SECRET), "{text}: {found:?}");
        }
    }

    #[test]
    fn a_secret_is_found_in_a_text_that_is_encoded() {
        for text in ["{\"password\":\"SECRET\"}", "https://u:SECRET@h/", "password = SECRET"] {
            let encoded = STANDARD_NO_PAD.encode(text.replace("SECRET", SECRET));
            assert!(secrets_within(&encoded).contains(SECRET), "{text}");
        }
    }

    #[test]
    fn a_word_that_looks_like_a_secret_is_found_though_nothing_names_it() {
        for text in ["user,SECRET", "bob|SECRET", "k1=SECRET,k2=abc", "host:5432:db:user:SECRET", "a SECRET b", "a:SECRET;b:c"] {
            let secret = "Zx9Qw8Er7Ty6Ui5Op4As3Df2";
            let found = secrets_within(&text.replace("SECRET", secret));
            assert!(found.contains(secret), "{text}: {found:?}");
        }
    }

    #[test]
    fn a_login_is_found_as_it_is_sent_and_as_it_is_written() {
        let found = secrets_within("https://bob:p%40ss%2Fword9@example.com/mcp");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["bob:p%40ss%2Fword9", "bob:p@ss/word9", "p%40ss%2Fword9", "p@ss/word9"]);
        // A short password is only known as a part of its login.
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
            "host=db password= dbname=production-eu",
            "/nix/store/0fxk3ydb2vqz7c1r8m5wq9a4hjl6gnps-nodejs-22/bin/node",
            "--port 8080 --host production.example.com",
            "token: /run/secrets/token",
            "<name>production-database</name>",
        ] {
            let found = secrets_within(text);
            assert!(found.is_empty(), "{text}: {found:?}");
        }
    }

    #[test]
    fn a_text_of_many_parts_costs_little_and_adds_few() {
        let many: Vec<String> = (0..5_000).map(|number| format!("token{number}=Zx9-Qw8-{number}")).collect();
        assert!(secrets_within(&many.join(";")).len() <= MAX_SECRETS);
        for part in ["a=", "a:", "password:", "password = \"", "<a>", "<", "-a b ", "password\t", ": ", "{'", "%41", "a \\"] {
            let _ = secrets_within(&part.repeat(20_000));
        }
    }
}
