//! Computes the new text of the operator's config. Does not read or write files.

use serde_json::{Value as Json, json};

use super::args::{Add, Set, Unset};
use crate::cli::edit::{PropertyChange, with_properties};
use crate::cli::import::{found_entry, parsed, readable};
use crate::config::{SectionPath, is_setting, parse_text, section_for_new, servers_of};
use crate::text::nearest;

/// A property as its path within an entry, with its new value. `None` removes the property. An empty path means the whole entry.
type EntryChange = (Vec<String>, Option<Json>);

/// A change of one server in the config.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'c> {
    Add(&'c Add),
    Set(&'c Set),
    Unset(&'c Unset),
    Remove(&'c str),
    /// Removes `"disabled": true` and `"enabled": false` from the entry.
    Enable(&'c str),
    /// Adds these names of tools to `reads`.
    Reads(&'c str, &'c [String]),
    /// Adds these hosts to `network` of the box.
    Hosts(&'c str, &'c [String]),
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Changed {
    pub(super) text: String,
    /// The server's entry after the change. `None` if the server was removed.
    pub(super) entry: Option<Json>,
    /// Warnings of the config's reader about the entry.
    pub(super) warnings: Vec<String>,
}

impl Change<'_> {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Add(add) => &add.name,
            Self::Set(set) => &set.name,
            Self::Unset(unset) => &unset.name,
            Self::Remove(name) | Self::Enable(name) | Self::Reads(name, _) | Self::Hosts(name, _) => name,
        }
    }

    /// Returns the config after the change. The new text is parsed in the same way as by a gateway, so that an unusable config is never
    /// written.
    ///
    /// # Errors
    /// A sentence that describes why the text was not changed.
    pub(super) fn made(&self, text: &str, file: &str) -> Result<Changed, String> {
        let root = parsed(text)?;
        let name = self.name();
        let there = section_with(&root, name);
        let new = match (self, there) {
            (Self::Add(_), Some(_)) => return Err(format!("there is a server {name} already: set changes it, and remove removes it")),
            (Self::Add(add), None) => {
                let entry = entry_of(add)?;
                edited(text, &[(path_of(section_for_new(&root), &[name]), Some(entry))])?
            }
            (_, None) => return Err(unknown(&root, name)),
            (_, Some(section)) => {
                let entry = entry_in(&root, name).unwrap_or_default();
                let changes = self.of_entry(&entry)?;
                let paths = changes.iter().map(|(path, value)| {
                    let inner: Vec<&str> = std::iter::once(name).chain(path.iter().map(String::as_str)).collect();
                    (path_of(section, &inner), value.clone())
                });
                edited(text, &paths.collect::<Vec<_>>())?
            }
        };
        let warnings = if matches!(self, Self::Remove(_)) { Vec::new() } else { checked(&new, file, name)? };
        let root = parsed(&new)?;
        let entry = entry_in(&root, name);
        Ok(Changed { text: new, entry, warnings })
    }

    /// Returns the changes of the entry's properties. An empty path means the entry itself.
    fn of_entry(&self, entry: &Json) -> Result<Vec<EntryChange>, String> {
        match self {
            Self::Add(_) | Self::Remove(_) => Ok(vec![(Vec::new(), None)]),
            Self::Enable(_) => {
                let switches = ["disabled", "enabled"].into_iter().filter(|key| entry.get(key).is_some());
                Ok(switches.map(|key| (vec![key.to_owned()], None)).collect())
            }
            Self::Reads(_, names) => {
                let there = entry.get("reads").and_then(Json::as_array).cloned().unwrap_or_default();
                let new = names.iter().map(|name| json!(name)).filter(|name| !there.contains(name)).collect::<Vec<_>>();
                Ok(vec![(vec!["reads".to_owned()], Some(there.into_iter().chain(new).collect()))])
            }
            Self::Hosts(_, hosts) => Ok(vec![with_hosts(entry, hosts)]),
            Self::Set(set) => set
                .values
                .iter()
                .map(|given| {
                    let (key, value) = assignment(given)?;
                    let path = property_of(entry, key);
                    let value = if path.len() == 1 { setting(value) } else { Json::from(value) };
                    Ok((path, Some(value)))
                })
                .collect(),
            Self::Unset(unset) => unset
                .keys
                .iter()
                .map(|key| {
                    if key.contains('=') {
                        // The value is not repeated, as it may be a secret.
                        return Err("expected KEY, without =VALUE".to_owned());
                    }
                    let path = property_of(entry, key);
                    let is_there = path.iter().try_fold(entry, |inner, name| inner.get(name)).is_some();
                    if is_there { Ok((path, None)) } else { Err(format!("its entry has no {}", path.join("."))) }
                })
                .collect(),
        }
    }
}

/// Returns the change of an entry that adds hosts to its box. The box is a word, an object, or the default.
fn with_hosts(entry: &Json, hosts: &[String]) -> EntryChange {
    let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    match entry.get("box") {
        Some(Json::Object(settings)) => {
            let there = settings.get("network").and_then(Json::as_array).cloned().unwrap_or_default();
            let new = hosts.iter().map(|host| json!(host)).filter(|host| !there.contains(host)).collect::<Vec<_>>();
            (path(&["box", "network"]), Some(there.into_iter().chain(new).collect()))
        }
        Some(Json::String(base)) => (path(&["box"]), Some(json!({ "base": base, "network": hosts }))),
        _ => (path(&["box"]), Some(json!({ "network": hosts }))),
    }
}

fn path_of<'c>(section: SectionPath, inner: &[&'c str]) -> Vec<&'c str> {
    section.iter().copied().chain(inner.iter().copied()).collect()
}

fn edited(text: &str, changes: &[PropertyChange<'_>]) -> Result<String, String> {
    with_properties(text, changes).map_err(|problem| problem.to_string())
}

/// Returns the section that contains a server.
fn section_with(root: &Json, name: &str) -> Option<SectionPath> {
    servers_of(root).find(|(_, known, _)| *known == name).map(|(section, _, _)| section)
}

fn entry_in(root: &Json, name: &str) -> Option<Json> {
    servers_of(root).find(|(_, known, _)| *known == name).map(|(_, _, entry)| entry.clone())
}

fn unknown(root: &Json, name: &str) -> String {
    let meant =
        nearest(name, servers_of(root).map(|(_, known, _)| known)).map(|meant| format!(": did you mean {meant}?")).unwrap_or_default();
    format!("it has no server {name}{meant}")
}

/// Returns the entry of a new server.
fn entry_of(add: &Add) -> Result<Json, String> {
    let Add { name: _, command, url, env, header } = add;
    let mut entry = match (url, command.split_first()) {
        (Some(url), _) => json!({ "type": "http", "url": url }),
        (None, Some((command, []))) => json!({ "command": command }),
        (None, Some((command, arguments))) => json!({ "command": command, "args": arguments }),
        (None, None) => return Err("a new server needs a command after --, or --url".to_owned()),
    };
    for (key, given) in [("env", env), ("headers", header)] {
        for given in given {
            let (name, value) = assignment(given)?;
            entry[key][name] = value.into();
        }
    }
    Ok(entry)
}

/// Splits `KEY=VALUE`. A value may contain `=`.
fn assignment(given: &str) -> Result<(&str, &str), String> {
    match given.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key, value)),
        // The text is not repeated in the message, because it may be a secret.
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// Returns the path of the property that a key of `set` and `unset` means: a setting of the entry, a variable of its environment, or a
/// header of a server with a URL. `env.KEY` always means a variable, and `headers.KEY` always means a header.
fn property_of(entry: &Json, key: &str) -> Vec<String> {
    if let Some((table @ ("env" | "headers"), name)) = key.split_once('.') {
        return vec![table.to_owned(), name.to_owned()];
    }
    if is_setting(key) {
        return vec![key.to_owned()];
    }
    let is_remote = ["url", "serverUrl", "httpUrl"].iter().any(|key| entry.get(key).is_some())
        && entry.get("type").and_then(Json::as_str) != Some("stdio");
    vec![if is_remote { "headers" } else { "env" }.to_owned(), key.to_owned()]
}

/// Returns the value of a setting: the parsed JSON, or the text itself if it is not JSON.
fn setting(value: &str) -> Json {
    serde_json::from_str(value).unwrap_or_else(|_| value.into())
}

/// Parses the new text in the same way as a gateway. Returns the warnings about the server.
fn checked(text: &str, file: &str, name: &str) -> Result<Vec<String>, String> {
    let config = parse_text(text, file, None).map_err(|error| readable(&error))?;
    if config.servers.iter().all(|server| server.name != name) {
        let invalid = config.invalid.iter().find(|server| server.name == name || config.invalid.len() == 1);
        return Err(invalid.map_or_else(|| format!("{name} cannot be the name of a server"), |server| readable(&server.error)));
    }
    let about = format!(".{name}");
    Ok(config.warnings.into_iter().filter(|warning| warning.contains(&about)).collect())
}

/// Returns an entry in the form that is shown to a person, without secrets.
pub(super) fn shown(name: &str, from: &str, entry: Json) -> crate::cli::import::Addition {
    found_entry(name, from, entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\", \"disabled\": true, \"env\": { \"T\": \"1\" } }, // a\n    \"web\": { \"url\": \"https://a.example/mcp\" }\n  }\n}\n";

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    fn add(name: &str, command: &[&str], env: &[&str]) -> Add {
        Add { name: name.to_owned(), command: words(command), url: None, env: words(env), header: Vec::new() }
    }

    fn set(name: &str, values: &[&str]) -> Result<Changed, String> {
        Change::Set(&Set { name: name.to_owned(), values: words(values) }).made(CONFIG, "c")
    }

    fn unset(name: &str, keys: &[&str]) -> Result<Changed, String> {
        Change::Unset(&Unset { name: name.to_owned(), keys: words(keys) }).made(CONFIG, "c")
    }

    #[test]
    fn a_server_is_added_where_the_others_are_and_comments_stay() {
        let changed = Change::Add(&add("b", &["npx", "-y", "p"], &["K=a=b"])).made(CONFIG, "c").unwrap();
        assert_eq!(changed.entry, Some(json!({ "command": "npx", "args": ["-y", "p"], "env": { "K": "a=b" } })));
        assert!(changed.text.contains("// mine") && changed.text.contains("// a\n"), "{}", changed.text);
        let first = Change::Add(&add("b", &["x"], &[])).made("", "c").unwrap();
        assert_eq!(parsed(&first.text).unwrap(), json!({ "mcpServers": { "b": { "command": "x" } } }));
        let settings = r#"{ "mcp": { "servers": {} } }"#;
        let nested = Change::Add(&add("b", &["x"], &[])).made(settings, "c").unwrap();
        assert_eq!(parsed(&nested.text).unwrap(), json!({ "mcp": { "servers": { "b": { "command": "x" } } } }));
    }

    #[test]
    fn what_could_not_be_used_is_not_written() {
        let problem = |change: Change<'_>| change.made(CONFIG, "c").unwrap_err();
        assert!(problem(Change::Add(&add("a", &["x"], &[]))).contains("already"));
        assert!(problem(Change::Add(&add("B c", &["x"], &[]))).contains("^[a-z]"));
        assert!(problem(Change::Add(&add("b", &["x"], &["sk-secret"]))).contains("expected KEY=VALUE"));
        assert!(problem(Change::Remove("webb")).contains("did you mean web?"));
        assert!(set("a", &["timeoutMs=soon"]).unwrap_err().contains("timeoutMs"));
        assert!(unset("a", &["command"]).unwrap_err().contains("command"));
        assert!(unset("a", &["U"]).unwrap_err().contains("env.U"));
        assert_eq!(unset("a", &["T=sk-secret"]).unwrap_err(), "expected KEY, without =VALUE");
        assert!(
            Change::Add(&add("b", &["x"], &[]))
                .made(r#"{ "limits": { "maxServers": 1 }, "mcpServers": { "a": {} } }"#, "c")
                .unwrap_err()
                .contains("maxServers")
        );
        assert!(Change::Remove("a").made(r#"{ "mcpServers": { "a": {}, "a": {} } }"#, "c").is_err());
    }

    #[test]
    fn a_key_is_a_variable_a_header_or_a_setting() {
        let entry = |changed: Result<Changed, String>| changed.unwrap().entry.unwrap();
        assert_eq!(entry(set("a", &["T=2", "U=3"]))["env"], json!({ "T": "2", "U": "3" }));
        assert_eq!(entry(set("a", &["timeoutMs=5000", "env.timeoutMs=x"]))["timeoutMs"], 5000);
        assert_eq!(entry(set("a", &["env.timeoutMs=x"]))["env"]["timeoutMs"], "x");
        assert_eq!(entry(set("a", &["allowTools=[\"b\"]"]))["allowTools"], json!(["b"]));
        assert_eq!(entry(set("web", &["Authorization=Bearer ${TOKEN}"]))["headers"], json!({ "Authorization": "Bearer ${TOKEN}" }));
        assert_eq!(entry(unset("a", &["T", "disabled"])), json!({ "command": "x", "env": {} }));
        assert_eq!(entry(Change::Enable("a").made(CONFIG, "c")).get("disabled"), None);
        let names = words(&["get_a", "list_b"]);
        let once = Change::Reads("a", &names).made(CONFIG, "c").unwrap();
        assert_eq!(once.entry.as_ref().unwrap()["reads"], json!(["get_a", "list_b"]));
        let twice = Change::Reads("a", &words(&["list_b", "get_c"])).made(&once.text, "c").unwrap();
        assert_eq!(twice.entry.unwrap()["reads"], json!(["get_a", "list_b", "get_c"]));
        assert!(twice.text.contains("// mine"), "comments stay");
        let hosts = words(&["api.example.org", "b.example:8443"]);
        let boxed = |text: &str| Change::Hosts("a", &hosts).made(text, "c").unwrap().entry.unwrap()["box"].clone();
        assert_eq!(boxed(CONFIG), json!({ "network": ["api.example.org", "b.example:8443"] }));
        let with = |in_box: &str| boxed(&format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x", "box": {in_box} }} }} }}"#));
        assert_eq!(with("\"strict\""), json!({ "base": "strict", "network": ["api.example.org", "b.example:8443"] }));
        let more = with(r#"{ "memoryMb": 64, "network": ["api.example.org", "c.example"] }"#);
        assert_eq!(more, json!({ "memoryMb": 64, "network": ["api.example.org", "c.example", "b.example:8443"] }));
        assert_eq!(with(r#"{ "network": "none" }"#), json!({ "network": ["api.example.org", "b.example:8443"] }));
        let theirs = r#"{ "mcp": { "b": { "command": "x", "enabled": false } } }"#;
        assert_eq!(entry(Change::Enable("b").made(theirs, "c")), json!({ "command": "x" }));
        let removed = Change::Remove("a").made(CONFIG, "c").unwrap();
        assert_eq!((removed.entry, removed.text.contains("// mine")), (None, true));
    }
}
