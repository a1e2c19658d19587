//! Decides which registry a package runner such as `npx` or `uvx` fetches its package from, by the settings of the package manager.

use std::collections::{BTreeMap, BTreeSet};

use url::Url;

use crate::config::BoxHost;

/// The default registry of npm.
const NPM: &str = "https://registry.npmjs.org/";
/// The default registry of Python's package managers.
const PYPI: &str = "https://pypi.org/simple/";
/// The host from which packages of [`PYPI`] are downloaded.
const PYPI_FILES: &str = "https://files.pythonhosted.org/";
/// The beginning of npm's variables for its settings, and the ending of those for scopes: `npm_config_@scope:registry`.
const NPM_VARIABLE: &str = "npm_config_";
/// The setting of npm with the user's certificate authorities, which the box gets too. Without it, npm would not trust a private registry.
const NPM_CA_FILE: &str = "cafile";
/// Maximum number of registries of one kind.
const MAX_REGISTRIES: usize = 8;

/// The settings of package managers, as they are outside of the box.
#[derive(Debug, Default)]
pub struct RunnerSettings<'a> {
    /// Variables of the user.
    pub variables: BTreeMap<String, String>,
    /// The text of the user's `.npmrc`.
    pub npmrc: Option<&'a str>,
    /// The text of the user's `pip.conf`.
    pub pip_config: Option<&'a str>,
    /// The text of the user's `uv.toml`.
    pub uv_config: Option<&'a str>,
}

/// The hosts and variables that a package runner needs until its server has started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    pub hosts: BTreeSet<BoxHost>,
    /// Variables that name the registry for the package manager in the box. They contain no user, password and query, but a token that is
    /// part of a URL's path stays.
    pub variables: Vec<(String, String)>,
}

/// The package managers that run a program of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    Npm,
    Uv,
    Pip,
}

/// Returns the hosts and variables that a command needs to fetch its package. `None` if it is not a package runner.
///
/// ```
/// use hyperlight_mcp::boxes::{RunnerSettings, registry};
/// let found = registry("npx", &["-y".into(), "some-package".into()], &RunnerSettings::default()).unwrap();
/// assert_eq!(found.hosts.first().unwrap().to_string(), "registry.npmjs.org:443");
/// assert!(registry("node", &["index.js".into()], &RunnerSettings::default()).is_none());
/// ```
#[must_use]
pub fn registry(command: &str, arguments: &[String], settings: &RunnerSettings<'_>) -> Option<Registry> {
    Some(match Runner::of(command, arguments)? {
        Runner::Npm => npm(settings),
        Runner::Uv => python(uv(settings), &["UV_DEFAULT_INDEX", "UV_INDEX"]),
        Runner::Pip => python(pip(settings), &["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"]),
    })
}

impl Runner {
    /// Returns the package manager of a command. `None` if it is not a package runner.
    #[must_use]
    pub fn of(command: &str, arguments: &[String]) -> Option<Self> {
        let mut words = arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with('-'));
        match command.rsplit('/').next()? {
            "npx" | "bunx" => Some(Self::Npm),
            "npm" => matches!(words.next(), Some("exec" | "x")).then_some(Self::Npm),
            "uvx" => Some(Self::Uv),
            "uv" => (words.next() == Some("tool") && words.next() == Some("run")).then_some(Self::Uv),
            "pipx" => (words.next() == Some("run")).then_some(Self::Pip),
            _ => None,
        }
    }
}

/// Reads npm's settings: its variables, then the user's file, then the default. The registries of scopes are used too.
fn npm(settings: &RunnerSettings<'_>) -> Registry {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in settings.npmrc.into_iter().flat_map(|text| assignments(text, &['#', ';'])) {
        found.insert(key.to_owned(), value);
    }
    for (name, value) in &settings.variables {
        let is_of_npm = name.get(..NPM_VARIABLE.len()).is_some_and(|start| start.eq_ignore_ascii_case(NPM_VARIABLE));
        if is_of_npm && !value.is_empty() {
            found.insert(name[NPM_VARIABLE.len()..].to_ascii_lowercase(), value.clone());
        }
    }
    let mut registry = Registry::default();
    let own = found.get("registry").map_or(NPM, String::as_str);
    let scoped = found.iter().filter(|(key, _)| key.starts_with('@') && key.ends_with(":registry"));
    let all = std::iter::once(("registry", own)).chain(scoped.map(|(key, url)| (key.as_str(), url.as_str())));
    for (key, url) in all.take(MAX_REGISTRIES) {
        if let Some(url) = registry.add(url) {
            registry.variables.push((format!("{NPM_VARIABLE}{key}"), url));
        }
    }
    if let Some(file) = found.get(NPM_CA_FILE).filter(|file| super::paths::is_system(file.as_ref())) {
        registry.variables.push((format!("{NPM_VARIABLE}{NPM_CA_FILE}"), file.clone()));
    }
    registry
}

/// The registry that replaces the default one (`None` if the default stays), and further registries, as the settings of the package manager
/// name them.
struct Indexes {
    own: Option<String>,
    others: Vec<String>,
}

fn uv(settings: &RunnerSettings<'_>) -> Indexes {
    let variable = |name: &str| settings.variables.get(name).filter(|value| !value.is_empty()).cloned();
    let file = settings.uv_config.and_then(|text| text.parse::<toml::Table>().ok()).unwrap_or_default();
    let text = |value: &toml::Value| value.as_str().map(str::to_owned);
    let mut own = variable("UV_DEFAULT_INDEX").or_else(|| variable("UV_INDEX_URL")).or_else(|| file.get("index-url").and_then(text));
    let mut others: Vec<String> = Vec::new();
    for index in file.get("index").and_then(toml::Value::as_array).into_iter().flatten() {
        let Some(url) = index.get("url").and_then(text) else { continue };
        match index.get("default").and_then(toml::Value::as_bool) {
            Some(true) => own = own.or(Some(url)),
            _ => others.push(url),
        }
    }
    others.extend(file.get("extra-index-url").and_then(toml::Value::as_array).into_iter().flatten().filter_map(text));
    for name in ["UV_INDEX", "UV_EXTRA_INDEX_URL"] {
        others.extend(variable(name).iter().flat_map(|value| value.split_whitespace()).map(unnamed));
    }
    Indexes { own, others }
}

/// Returns the URL of an index that may have a name: `name=https://…`.
fn unnamed(index: &str) -> String {
    match index.split_once('=') {
        Some((name, url)) if !name.contains([':', '/']) => url.to_owned(),
        _ => index.to_owned(),
    }
}

fn pip(settings: &RunnerSettings<'_>) -> Indexes {
    let variable = |name: &str| settings.variables.get(name).filter(|value| !value.is_empty()).cloned();
    let file: BTreeMap<String, String> = settings
        .pip_config
        .into_iter()
        .flat_map(|text| assignments(text, &['#', ';']))
        .map(|(key, value)| (key.replace('_', "-"), value))
        .collect();
    let own = variable("PIP_INDEX_URL").or_else(|| file.get("index-url").cloned());
    let others = variable("PIP_EXTRA_INDEX_URL").or_else(|| file.get("extra-index-url").cloned()).unwrap_or_default();
    Indexes { own, others: others.split_whitespace().map(str::to_owned).collect() }
}

fn python(Indexes { own, others }: Indexes, [own_name, others_name]: &[&str; 2]) -> Registry {
    let mut registry = Registry::default();
    match own {
        Some(own) => {
            if let Some(url) = registry.add(&own) {
                registry.variables.push(((*own_name).to_owned(), url));
            }
        }
        None => {
            registry.add(PYPI);
        }
    }
    let others: Vec<String> = others.iter().take(MAX_REGISTRIES).filter_map(|url| registry.add(url)).collect();
    if !others.is_empty() {
        registry.variables.push(((*others_name).to_owned(), others.join(" ")));
    }
    // The index of PyPI links to files on another host.
    let pypi = BTreeSet::from(["pypi.org"]);
    if registry.hosts.iter().any(|host| pypi.contains(host.host().host().as_str())) {
        registry.add(PYPI_FILES);
    }
    registry
}

impl Registry {
    /// Adds the host of a registry. Returns its URL without user, password and query. `None` for a text that is not a URL of a registry.
    fn add(&mut self, url: &str) -> Option<String> {
        let mut url = Url::parse(url.trim().trim_matches(['"', '\''])).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        let (host, port) = (url.host_str()?, url.port_or_known_default()?);
        self.hosts.insert(format!("{host}:{port}").parse().ok()?);
        url.set_username("").ok()?;
        url.set_password(None).ok()?;
        url.set_query(None);
        url.set_fragment(None);
        Some(url.to_string())
    }
}

/// Reads lines of the form `key = value`. Lines of another form are left out.
fn assignments<'a>(text: &'a str, comments: &'static [char]) -> impl Iterator<Item = (&'a str, String)> {
    let lines = text.lines().map(str::trim).filter(move |line| !line.starts_with(comments));
    lines.filter_map(|line| line.split_once('=')).map(|(key, value)| (key.trim(), value.trim().trim_matches(['"', '\'']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn found(command: &str, arguments: &str, settings: &RunnerSettings<'_>) -> (Vec<String>, Vec<String>) {
        let registry = registry(command, &words(arguments), settings).unwrap_or_default();
        let variables = registry.variables.iter().map(|(name, value)| format!("{name}={value}"));
        (registry.hosts.iter().map(ToString::to_string).collect(), variables.collect())
    }

    fn variables(all: &[(&str, &str)]) -> RunnerSettings<'static> {
        let variables = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RunnerSettings { variables, ..RunnerSettings::default() }
    }

    #[test]
    fn only_package_runners_have_a_registry() {
        let none = RunnerSettings::default();
        for (command, arguments) in [("/usr/bin/npx", "-y a"), ("bunx", "a"), ("npm", "exec a"), ("npm", "--yes x a")] {
            assert_eq!(found(command, arguments, &none).0, ["registry.npmjs.org:443"], "{command} {arguments}");
        }
        for (command, arguments) in [("uvx", "a"), ("uv", "tool run a"), ("pipx", "run a")] {
            assert_eq!(found(command, arguments, &none).0, ["files.pythonhosted.org:443", "pypi.org:443"], "{command} {arguments}");
        }
        for (command, arguments) in
            [("npm", "run a"), ("uv", "run a"), ("uv", "tool list"), ("pipx", "list"), ("node", "npx"), ("docker", "run a")]
        {
            assert!(registry(command, &words(arguments), &none).is_none(), "{command} {arguments}");
        }
    }

    #[test]
    fn a_token_in_the_query_of_a_registry_is_not_given_away() {
        let settings = variables(&[("npm_config_registry", "https://ada:secret@npm.example/all/?token=secret#secret")]);
        let (hosts, given) = found("npx", "a", &settings);
        assert_eq!(hosts, ["npm.example:443"]);
        assert!(given.iter().any(|variable| variable.ends_with("=https://npm.example/all/")), "{given:?}");
        assert!(!given.concat().contains("secret"), "{given:?}");
    }

    #[test]
    fn the_settings_of_npm_name_its_registry_and_give_no_token_away() {
        let npmrc = "; mine\nregistry = http://ada:secret@127.0.0.1:4873/npm/\n@acme:registry=https://npm.acme.example\n\
            //npm.acme.example/:_authToken=secret\ncafile=/etc/ssl/certs/ca.crt\n";
        let settings = RunnerSettings { npmrc: Some(npmrc), ..RunnerSettings::default() };
        let (hosts, given) = found("npx", "a", &settings);
        assert_eq!(hosts, ["npm.acme.example:443", "127.0.0.1:4873"]);
        assert_eq!(
            given,
            [
                "npm_config_registry=http://127.0.0.1:4873/npm/",
                "npm_config_@acme:registry=https://npm.acme.example/",
                "npm_config_cafile=/etc/ssl/certs/ca.crt"
            ]
        );
        let settings = RunnerSettings { npmrc: Some(npmrc), ..variables(&[("NPM_CONFIG_REGISTRY", "https://other.example/")]) };
        assert!(found("npx", "a", &settings).0.contains(&"other.example:443".to_owned()));
        let (hosts, given) = found("npx", "a", &variables(&[("npm_config_registry", "file:///etc")]));
        assert_eq!((hosts.len(), given.len()), (0, 0));
    }

    #[test]
    fn the_settings_of_python_name_its_indexes() {
        let uv =
            "[[index]]\nurl = 'https://a.example/simple'\n[[index]]\nname = 'b'\nurl = 'https://u:p@b.example/simple'\ndefault = true\n";
        let settings = RunnerSettings { uv_config: Some(uv), ..RunnerSettings::default() };
        let (hosts, given) = found("uvx", "x", &settings);
        assert_eq!(hosts, ["a.example:443", "b.example:443"]);
        assert_eq!(given, ["UV_DEFAULT_INDEX=https://b.example/simple", "UV_INDEX=https://a.example/simple"]);
        let settings =
            variables(&[("UV_INDEX_URL", "http://10.0.0.9:3141/"), ("UV_EXTRA_INDEX_URL", "https://pypi.org/simple x=https://c.example")]);
        let expected = ["c.example:443", "files.pythonhosted.org:443", "pypi.org:443", "10.0.0.9:3141"];
        assert_eq!(found("uvx", "x", &settings).0, expected);
        let pip = RunnerSettings { pip_config: Some("[global]\nindex_url = https://d.example/simple\n"), ..RunnerSettings::default() };
        assert_eq!(found("pipx", "run x", &pip).0, ["d.example:443"]);
        assert_eq!(found("uvx", "x", &pip).0, ["files.pythonhosted.org:443", "pypi.org:443"]);
    }
}
