//! The subject of an approval: a server as its config defines it, converted to a canonical form.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};

use super::digest::digest;
use super::document::NamedFiles;
use super::executable::Executable;
use crate::boxes::{ChangeableBy, Present, Registry};
use crate::config::{
    Address, BoxDefinition, BoxNetwork, BoxSettings, Confirm, GeneratedSecret, GeneratedTool, GeneratedTools, OAuthDefinition,
    ServerDefinition, ServerSource, SigningAlgorithm, ToolFilter, Transport, UriFilter,
};
use crate::store::{Canonical, MachineKey};

/// The parts of a server's config that an approval covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub server: String,
    /// The key of the approval: [`ServerDefinition::key`].
    pub key: String,
    /// The digest of everything that a person decides about before the server is started.
    pub digest: String,
    /// A digest of `digest`, the current program and its folders, the other servers that the request names, and the missing programs that a
    /// box could make. `approve` compares this digest, so that it approves only the request that was shown.
    pub shown_digest: String,
    /// The program that would be started now. `None` if it was not looked up or not found.
    pub executable: Option<Executable>,
    /// The folders that the server's box has for the program, as far as the approval covers them. `None` if they were not looked up.
    pub places: Option<Vec<String>>,
    /// The places of programs to which links lead out of projects. Empty if they were not looked up.
    pub linked: Vec<String>,
    /// The contents of the server's box on this machine now. Empty if they were not looked up. No digest depends on the sentences.
    pub present: Present,
    /// The boxes of other servers that can change now what the server runs. Empty if they were not looked up. No digest depends on the sentences.
    pub changeable_by: ChangeableBy,
    /// The files that the server's entry names now. Empty if they were not looked up. Only the digest of the request depends on them, and
    /// only on the missing ones.
    pub named: NamedFiles,
    /// True if a changed program needs a new approval.
    pub pin_executable: bool,
    /// The only folder in which the approval is valid, if the command depends on the folder ([`super::deciding_folder`]).
    pub folder: Option<PathBuf>,
    /// The addresses in the entry with their fields, in the displayed form.
    pub addresses: Vec<(&'static str, Address)>,
    /// The registry that a package runner reaches until its server has started, as it was compared with the approval. It may be empty.
    pub registry: Registry,
}

/// The values outside of the entry that an approval depends on.
#[derive(Debug, Default)]
pub struct Circumstances {
    /// The program that would be started now.
    pub executable: Option<Executable>,
    /// The current values of variables and of the environment file, for `pinValues`.
    pub pinned: Option<Vec<(String, SecretString)>>,
    /// The workspace folder, if the command depends on it.
    pub folder: Option<PathBuf>,
    /// The entry's addresses, with the hosts that variables currently give them ([`super::addresses_of`]).
    pub addresses: Vec<(&'static str, Address)>,
    /// The registry that the settings of the user's package manager name, if the command is a package runner in a box.
    pub registry: Registry,
}

impl Subject {
    /// Computes the digests of a server.
    #[must_use]
    pub fn new(server: &ServerDefinition, key: &MachineKey, circumstances: Circumstances) -> Self {
        let Circumstances { executable, pinned, folder, addresses, registry } = circumstances;
        // The folder's name is in hexadecimal, so that two names that are not valid UTF-8 differ as well.
        let name = folder.as_ref().map(|folder| hex::encode(folder.as_os_str().as_encoded_bytes()));
        let form = name.iter().fold(form(server, key), |form, name| form.text("workspaceFolder").text(name));
        let form = addresses.iter().fold(form, |form, (field, address)| with_origin(form, key, field, address));
        let form = with_registry(form, &registry);
        let form = match &pinned {
            None => form.flag(false),
            // The digests of the values are made with the machine's key, so that nobody can guess the values from the digest.
            Some(values) => values.iter().fold(form.flag(true), |form, (name, value)| {
                let value = Canonical::new("pinned value").text(name).text(value.expose_secret());
                form.text(name).text(&key.authenticate(&value))
            }),
        };
        let decided = digest(&form);
        let subject = Self {
            server: server.name.clone(),
            key: server.key(),
            shown_digest: String::new(),
            digest: decided,
            executable,
            places: None,
            linked: Vec::new(),
            present: Present::default(),
            changeable_by: ChangeableBy::default(),
            named: NamedFiles::default(),
            pin_executable: server.pin_executable,
            folder,
            addresses,
            registry,
        };
        subject.with_shown_digest()
    }

    /// Returns the subject with another program.
    pub(crate) fn with_executable(self, executable: Option<Executable>) -> Self {
        Self { executable, ..self }.with_shown_digest()
    }

    /// Returns the subject with other folders of its program.
    pub(crate) fn with_places(self, places: Option<Vec<String>>) -> Self {
        Self { places, ..self }.with_shown_digest()
    }

    /// Returns the subject with other places of programs to which links lead out of projects.
    pub(crate) fn with_linked(self, linked: Vec<String>) -> Self {
        Self { linked, ..self }.with_shown_digest()
    }

    /// Returns the subject with what its box has on this machine now, and with the other boxes that can change what it runs.
    pub(crate) fn with_neighbours(self, present: Present, changeable_by: ChangeableBy) -> Self {
        Self { present, changeable_by, ..self }.with_shown_digest()
    }

    fn with_shown_digest(self) -> Self {
        let path = self.executable.as_ref().map(|program| program.path.to_string_lossy());
        let form = Canonical::new("hyperlight-mcp request 1").text(&self.digest);
        let form = form.optional(path.as_deref()).optional(self.executable.as_ref().map(|program| program.sha256.as_str()));
        let form = self.places.iter().fold(form, |form, places| form.list(places.iter().map(String::as_str)));
        let form = if self.linked.is_empty() { form } else { form.text("linked").list(self.linked.iter().map(String::as_str)) };
        // If another server is approved after the request was shown, the sentences do not name this server. So its name changes the digest.
        let lists = [("changes", &self.present.servers), ("changeable by", &self.changeable_by.servers)];
        let named = lists.into_iter().filter(|(_, servers)| !servers.is_empty());
        let form = named.fold(form, |form, (name, servers)| form.text(name).list(servers.iter().map(String::as_str)));
        // A program that is missing counts as shown at the approval. So one that is removed after the request was shown changes the digest.
        let missing: &[String] = if self.changeable_by.servers.is_empty() { &[] } else { &self.named.missing };
        let missing = [("makes", self.present.makes.as_slice()), ("missing", missing)].into_iter().filter(|(_, paths)| !paths.is_empty());
        let form = missing.fold(form, |form, (name, paths)| form.text(name).list(paths.iter().map(String::as_str)));
        Self { shown_digest: digest(&form), ..self }
    }
}

/// Adds the current host of an address that variables decide. The host is shown, so another value of a variable makes another request. The
/// machine's key hides it, because a variable may be secret.
fn with_origin(form: Canonical, key: &MachineKey, field: &str, address: &Address) -> Canonical {
    if address.host_from.is_empty() {
        return form;
    }
    let origin = Canonical::new("origin").text(field).optional(address.decided_origin.as_deref());
    form.text("origin").text(&key.authenticate(&origin))
}

/// Adds the hosts of a registry, which are shown. The registry's variables are not added: they only tell a package manager which of these
/// hosts it asks.
fn with_registry(form: Canonical, Registry { hosts, variables: _ }: &Registry) -> Canonical {
    if hosts.is_empty() {
        return form;
    }
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    form.text("registry").list(hosts.iter().map(String::as_str))
}

/// Returns the canonical form of everything that a person is shown. The machine's key hides the values in it. Each field of an entry is
/// either included, or ignored for a stated reason.
fn form(server: &ServerDefinition, key: &MachineKey) -> Canonical {
    let ServerDefinition {
        name,
        source,
        transport,
        filter: ToolFilter { allow, deny },
        confirm,
        reads,
        pin_executable,
        pin_values,
        resource_filter: UriFilter { allow: allow_resources, deny: deny_resources },
        prompt_filter: ToolFilter { allow: allow_prompts, deny: deny_prompts },
        allow_insecure_http,
        in_box,
        roots,
        input_defaults,
        input_descriptions,
        // These fields decide when and how the server is called. They do not decide what is run, read or contacted.
        call_timeout_ms: _,
        connect_timeout_ms: _,
        disabled: _,
        pinned: _,
        schema_violations: _,
        argument_checks: _,
        parallel: _,
        elicits: _,
        idle_timeout_ms: _,
        keep_alive_ms: _,
        max_call_timeout_ms: _,
        protocol_version: _,
        // These fields decide how a default is shown, and what people read about the server. They do not change a value.
        secret_inputs: _,
        description: _,
        // These fields decide which tasks select the server.
        keywords: _,
        capabilities: _,
        // The environment and the headers, which are in the form, already name these variables.
        required_environment: _,
        // The entry's position in the config. Only errors use it.
        origin: _,
    } = server;
    let form = with_transport(Canonical::new("hyperlight-mcp command 2").text(name), key, transport);
    let form = with_source(form, source);
    let form = form.flag(allow.is_some()).list(allow.as_deref().unwrap_or_default().iter().map(String::as_str));
    let form = form.list(deny.iter().map(String::as_str)).text(word_of(*confirm)).flag(*pin_executable).flag(*pin_values);
    // If the config does not set these fields, the form is the same as before the fields existed. So older approvals stay valid.
    let form = if *allow_insecure_http { form.text("allowInsecureHttp") } else { form };
    let form = in_box.iter().fold(form, |form, in_box| with_box(form, key, in_box));
    let form = if roots.is_empty() { form } else { form.text("roots").list(roots.iter().map(String::as_str)) };
    let form = if reads.is_empty() { form } else { form.text("reads").list(reads.iter().map(String::as_str)) };
    let form = filtered(form, "resources", allow_resources.as_deref(), deny_resources);
    let form = filtered(form, "prompts", allow_prompts.as_deref(), deny_prompts);
    let form = if input_defaults.is_empty() { form } else { keyed(form.text("inputs"), key, "input", input_defaults) };
    if input_descriptions.is_empty() {
        return form;
    }
    // The description is the question that a person answers with a secret, so another question makes another request.
    let form = form.text("inputDescriptions").text(&input_descriptions.len().to_string());
    input_descriptions.iter().fold(form, |form, (id, description)| form.text(id).text(description))
}

/// Adds what the box allows, with its defaults, so that another default makes another request.
fn with_box(form: Canonical, key: &MachineKey, in_box: &BoxDefinition) -> Canonical {
    match in_box {
        BoxDefinition::Off => form.text("box").text("off"),
        BoxDefinition::On(settings) => {
            let BoxSettings { base, read, write, network, memory_mb, disk_mb, processes, cpu_percent, is_nested, environment } = settings;
            let form = form.text("box").text(base.as_str()).list(read.iter().map(String::as_str)).list(write.iter().map(String::as_str));
            let form = match network {
                BoxNetwork::Any => form.text("any"),
                BoxNetwork::Hosts(hosts) => {
                    form.text("hosts").list(hosts.iter().map(ToString::to_string).collect::<Vec<_>>().iter().map(String::as_str))
                }
            };
            let form = form.text(&memory_mb.to_string()).text(&disk_mb.to_string()).text(&processes.to_string());
            // Without variables, the form is the same as before the key hid their values.
            let form = form.optional(cpu_percent.map(|percent| percent.to_string()).as_deref()).flag(*is_nested).list(std::iter::empty());
            let variables: Vec<_> = environment.iter().map(|(name, value)| (name.clone(), SecretString::from(value.as_str()))).collect();
            if variables.is_empty() { form } else { keyed(form, key, "box environment", &variables) }
        }
    }
}

fn word_of(confirm: Confirm) -> &'static str {
    match confirm {
        Confirm::Never => "never",
        Confirm::Writes => "writes",
        Confirm::Always => "always",
    }
}

/// Adds the source of the server. A server of the operator's config has the same form as before other sources existed.
fn with_source(form: Canonical, source: &ServerSource) -> Canonical {
    if source.is_operators_config() { form } else { form.text("source").text(source.kind.as_str()).optional(source.name.as_deref()) }
}

fn with_transport(form: Canonical, key: &MachineKey, transport: &Transport) -> Canonical {
    match transport {
        Transport::Stdio { command, arguments, environment, removed_environment, working_directory, environment_file } => {
            let form = form.text("stdio").text(command).list(arguments.iter().map(String::as_str));
            let form = form
                .list(removed_environment.iter().map(String::as_str))
                .optional(working_directory.as_deref())
                .optional(environment_file.as_deref());
            keyed(form, key, "environment", environment)
        }
        Transport::Http { url, headers, oauth } => {
            let form = keyed(form.text("http").text(url), key, "header", headers);
            // Without `oauth`, the form is the same as before the field existed.
            oauth.iter().fold(form, |form, oauth| with_oauth(form, key, oauth))
        }
        Transport::Generated(tools) => with_generated(form, tools),
    }
}

/// Adds generated tools: what they reach, and each line of their code.
fn with_generated(form: Canonical, tools: &GeneratedTools) -> Canonical {
    let GeneratedTools { tools, hosts, private_hosts, secrets } = tools;
    let form = form
        .text("generated")
        .list(hosts.iter().map(String::as_str))
        .list(private_hosts.iter().map(String::as_str))
        .text(&secrets.len().to_string());
    let form = secrets.iter().fold(form, |form, GeneratedSecret { name, host, in_body }| form.text(name).text(host).flag(*in_body));
    tools.iter().fold(form.text(&tools.len().to_string()), |form, tool| {
        let GeneratedTool { name, description, input_schema, endpoints, notes, needs_network, read_only, code } = tool;
        form.text(name)
            .text(description)
            .json(input_schema)
            .list(endpoints.iter().map(String::as_str))
            .text(notes)
            .flag(*needs_network)
            .flag(*read_only)
            .text(code)
    })
}

fn filtered(form: Canonical, kind: &str, allow: Option<&[String]>, deny: &[String]) -> Canonical {
    if allow.is_none() && deny.is_empty() {
        return form;
    }
    let form = form.text(kind).flag(allow.is_some()).list(allow.unwrap_or_default().iter().map(String::as_str));
    form.list(deny.iter().map(String::as_str))
}

/// Adds the authorization server, the client and its credentials.
fn with_oauth(form: Canonical, key: &MachineKey, oauth: &OAuthDefinition) -> Canonical {
    let OAuthDefinition {
        issuer,
        client_id,
        client_secret,
        scopes,
        client_metadata_url,
        callback_port,
        grant,
        private_key,
        signing_algorithm,
    } = oauth;
    let secrets = [("clientSecret", client_secret), ("privateKey", private_key)];
    let secrets: Vec<_> = secrets.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))).collect();
    let form = form
        .text("oauth")
        .optional(client_id.as_deref())
        .list(scopes.iter().map(String::as_str))
        .optional(client_metadata_url.as_deref())
        .optional(callback_port.map(|port| port.to_string()).as_deref())
        .text(grant.name())
        .optional(signing_algorithm.map(SigningAlgorithm::name));
    let form = keyed(form, key, "oauth", &secrets);
    // Without `issuer`, the form is the same as before the field existed.
    issuer.iter().fold(form, |form, issuer| form.text("issuer").text(issuer))
}

/// Adds names and values of the config. For a variable, its placeholder is added and not its value, so that a rotated token needs no new
/// approval.
fn keyed(form: Canonical, key: &MachineKey, kind: &str, values: &[(String, SecretString)]) -> Canonical {
    values.iter().fold(form.text(&values.len().to_string()), |form, (name, value)| {
        let value = Canonical::new(kind).text(name).text(value.expose_secret());
        form.text(name).text(&key.authenticate(&value))
    })
}

#[cfg(test)]
#[path = "subject_tests.rs"]
mod tests;
