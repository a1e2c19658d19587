//! Finds the package registry that a package runner (such as `npx`) in a box may reach until its server has started. The settings of the
//! user's own package manager determine the registry.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::boxes::{Registry, Runner, RunnerSettings, registry};
use crate::config::{BoxDefinition, BoxHost, BoxNetwork, ServerDefinition, Surroundings, Transport, folder_of_variable};
use crate::files::{Links, read_bounded};
use crate::gateway::core::Core;

/// Maximum size in bytes of a file with settings of a package manager.
const MAX_SETTINGS_BYTES: u64 = 256 * 1024;
/// Variables whose names begin with one of these texts are settings of package managers.
const SETTINGS: [&str; 3] = ["npm_config_", "UV_", "PIP_"];

impl Core {
    /// Returns the registry of a server's package, which is part of its approval. Returns an empty registry for a command that is not a
    /// package runner, for a server without a box, and for a box that may reach all hosts. Uses the arguments as they are written in the
    /// config, because a person sees these. So the value of a placeholder never adds a registry.
    pub(in crate::gateway) fn start_registry(&self, server: &ServerDefinition) -> Registry {
        let Transport::Stdio { command, arguments, .. } = &server.transport else { return Registry::default() };
        match &server.in_box {
            Some(BoxDefinition::On(settings)) if settings.network != BoxNetwork::Any => {
                registry_of(command, arguments, &self.surroundings).unwrap_or_default()
            }
            None | Some(BoxDefinition::Off | BoxDefinition::On(_)) => Registry::default(),
        }
    }
}

/// Returns the registry that a package runner needs, according to this user's own settings. A registry that only the entry names must be in
/// the box's `network` instead: the author of an entry must not be able to choose a private address.
fn registry_of(command: &str, arguments: &[String], surroundings: &Surroundings) -> Option<Registry> {
    let Surroundings { environment, user_home, workspace_folder: _ } = surroundings;
    let runner = Runner::of(command, arguments)?;
    let config = folder_of_variable(environment, "XDG_CONFIG_HOME").unwrap_or_else(|| user_home.join(".config"));
    // Reads only files that the package manager reads too.
    let read = |reader: Runner, path: PathBuf| {
        let bytes = if reader == runner { read_bounded(&path, Links::Follow, MAX_SETTINGS_BYTES).ok() } else { None };
        String::from_utf8(bytes?).ok()
    };
    let npmrc = read(Runner::Npm, user_home.join(".npmrc"));
    let pip_config = read(Runner::Pip, config.join("pip/pip.conf")).or_else(|| read(Runner::Pip, user_home.join(".pip/pip.conf")));
    let uv_config = read(Runner::Uv, config.join("uv/uv.toml"));
    let settings = RunnerSettings {
        variables: environment.iter().filter(|(name, _)| is_setting(name)).map(|(name, value)| (name.clone(), value.clone())).collect(),
        npmrc: npmrc.as_deref(),
        pip_config: pip_config.as_deref(),
        uv_config: uv_config.as_deref(),
    };
    registry(command, arguments, &settings)
}

fn is_setting(variable: &str) -> bool {
    SETTINGS.iter().any(|start| variable.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start)))
}

/// Returns a sentence with the hosts of a registry that a box reaches although they are not in its list. Returns `None` if there are no
/// such hosts.
pub(super) fn start_sentence(registry: &Registry, hosts: &BTreeSet<BoxHost>) -> Option<String> {
    let names: Vec<String> = registry.hosts.difference(hosts).map(ToString::to_string).collect();
    (!names.is_empty()).then(|| format!("may reach {} until it has started, to fetch its package", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use serde_json::{Value as Json, json};

    use super::*;
    use crate::client::Target;
    use crate::config::read_env_file;
    use crate::gateway::core::Inputs;
    use crate::gateway::{Gateway, GatewayOptions};
    use crate::trust::Subject;

    /// A gateway with one server, in a home without settings, and in a workspace that is named like a package runner.
    struct Scene {
        home: tempfile::TempDir,
        gateway: Gateway,
        server: Arc<ServerDefinition>,
    }

    impl Scene {
        fn new(entry: &Json) -> Self {
            let home = tempfile::tempdir().unwrap();
            let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
            options.config = Some(json!({ "mcpServers": { "a": entry } }));
            options.state_dir = Some(home.path().join("state"));
            let workspace = home.path().join("work/npx");
            fs::create_dir_all(&workspace).unwrap();
            options.workspace_folder = Some(workspace);
            options.environment = [("HOME", home.path().to_str().unwrap()), ("PATH", "/usr/bin:/bin")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
            let gateway = Gateway::open(options).unwrap();
            let server = gateway.core.registry.server("a").unwrap();
            Self { home, gateway, server }
        }

        async fn approve(&self) -> Subject {
            let (core, approvals) = (&self.gateway.core, &self.gateway.core.trust.approvals);
            let subject = core.full_subject(&self.server).await.unwrap();
            approvals.approve_command(&subject, None, &approvals.basis("a").unwrap()).unwrap();
            subject
        }

        fn use_registry(&self, url: &str) {
            fs::write(self.home.path().join(".npmrc"), format!("registry={url}\n")).unwrap();
        }

        async fn shown(&self) -> Vec<String> {
            let subject = self.gateway.core.full_subject(&self.server).await.unwrap();
            let request = self.gateway.core.command_request(&self.server, &subject, None);
            request.in_box.unwrap().allows.into_iter().filter(|sentence| sentence.contains("until it has started")).collect()
        }

        /// Returns the hosts that the box may reach until the server has started, and the names of the box's variables.
        async fn given(&self, subject: &Subject) -> (Vec<String>, Vec<String>) {
            let core = &self.gateway.core;
            let (_, command) = core.approved_command(&self.server, &Inputs::new(), &read_env_file).unwrap();
            let target = core.target(&self.server, command.unwrap(), "/bin/sh".into(), subject.registry.clone()).await.unwrap();
            let Target::Process { command, in_box: Some(in_box), .. } = target else { panic!("it has no box") };
            let names = command.environment.into_iter().map(|(name, _)| name);
            (in_box.border.start_hosts.iter().map(ToString::to_string).collect(), names.collect())
        }
    }

    #[tokio::test]
    async fn another_registry_than_the_one_that_was_shown_needs_a_new_approval() {
        let scene = Scene::new(&json!({ "command": "npx", "args": ["-y", "a"] }));
        let core = &scene.gateway.core;
        assert_eq!(scene.shown().await, ["may reach registry.npmjs.org:443 until it has started, to fetch its package"]);
        let subject = scene.approve().await;
        assert!(core.check_approved(&scene.server, &read_env_file).is_ok());
        scene.use_registry("https://other.example/npm/");
        let refused = core.check_approved(&scene.server, &read_env_file).unwrap_err();
        assert!(refused.code() == "ERR_NOT_APPROVED" && refused.to_string().contains("registry"), "{refused}");
        assert_eq!(scene.shown().await, ["may reach other.example:443 until it has started, to fetch its package"]);
        assert_ne!(core.full_subject(&scene.server).await.unwrap().shown_digest, subject.shown_digest);
        // A URL with another path has the same host, and the request has shown the host.
        scene.use_registry("https://registry.npmjs.org/mirror/");
        assert!(core.check_approved(&scene.server, &read_env_file).is_ok());
    }

    #[tokio::test]
    async fn a_box_gets_the_registry_that_was_compared_with_the_approval() {
        let scene = Scene::new(&json!({ "command": "npx", "args": ["-y", "a"] }));
        let subject = scene.approve().await;
        let given = scene.given(&subject).await;
        assert!(given.0 == ["registry.npmjs.org:443"] && given.1.contains(&"npm_config_registry".to_owned()), "{given:?}");
        // The network of this box has all hosts, so the registry is not added.
        let open = Scene::new(&json!({ "command": "npx", "args": ["-y", "a"], "box": { "network": "any" } }));
        let subject = open.approve().await;
        let given = open.given(&subject).await;
        assert!(given.0.is_empty() && !given.1.contains(&"npm_config_registry".to_owned()), "{given:?}");
    }

    #[tokio::test]
    async fn what_a_placeholder_stands_for_brings_no_registry() {
        let scene = Scene::new(&json!({ "command": "${workspaceFolder}", "args": ["a"] }));
        let subject = scene.approve().await;
        assert_eq!(scene.shown().await, [] as [String; 0]);
        assert_eq!(scene.given(&subject).await.0, [] as [String; 0]);
        let plain = Scene::new(&json!({ "command": "uv", "args": ["tool", "run", "a"] }));
        let subject = plain.approve().await;
        assert_eq!(plain.given(&subject).await.0, ["files.pythonhosted.org:443", "pypi.org:443"]);
    }
}
