use clap::CommandFactory as _;

use super::*;
use crate::command::Line;
use crate::gateway::GatewayOptions;
use crate::store::{Kind, Store};

/// The effect that a line of a model may have.
#[derive(Debug, PartialEq)]
enum Power {
    Reads,
    /// Decides for the runs of its own agent, within what a person has allowed.
    OwnRuns,
    Refused,
}

/// Returns the effect that a command of a model may have. A new command needs a line here.
fn power(command: &Command) -> Power {
    match command {
        Command::Enable(Approve { digest: Some(_), .. }) | Command::Approve(Approve { digest: Some(_), .. }) => Power::Refused,
        Command::Enable(_) | Command::Disable(_) => Power::OwnRuns,
        Command::Providers(arguments) if arguments.provider.is_none() => Power::Reads,
        Command::Revoke(_) | Command::Logs(_) | Command::Providers(_) => Power::Refused,
        // Only a person gets the approval request itself. A model gets only the digest of the request.
        Command::List | Command::Info(_) | Command::Search(_) | Command::Test(_) | Command::Approve(_) | Command::Reload => Power::Reads,
    }
}

/// Returns everything that people have decided.
fn decisions(folder: &std::path::Path) -> Vec<String> {
    let store = Store::open(folder, std::sync::Arc::new(|problem| panic!("{problem}"))).unwrap();
    let kinds = [Kind::Approval, Kind::Revocation, Kind::Server, Kind::Grant, Kind::Toolbox, Kind::Provider, Kind::Fetch];
    kinds.map(|kind| format!("{:?}", store.rows(kind).unwrap())).into()
}

#[tokio::test]
async fn no_command_of_a_model_changes_what_a_person_has_decided() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = GatewayOptions::new("/no/watchdog", tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": { "a": { "command": "true", "box": "off" } } }));
    options.state_dir = Some(folder.path().to_owned());
    let gateway = Gateway::open(options).unwrap();
    let digest = gateway.approval_request("a").await.unwrap().digest().to_owned();
    gateway.approve("a", Some(&digest), None).await.unwrap();
    let before = decisions(folder.path());
    let speaker = CommandOptions { speaker: Speaker::Model, ..CommandOptions::default() };
    let mut lines: Vec<String> = Line::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    lines.retain(|name| name != "help");
    let with_server: Vec<String> = lines.iter().flat_map(|name| [format!("{name} a"), format!("{name} a {digest}")]).collect();
    let mut refused = 0;
    for line in lines.iter().chain(&with_server) {
        let Ok(Parsed::Command(command)) = parse(line) else { continue };
        let outcome = execute(&gateway, line, &speaker).await;
        if power(&command) == Power::Refused {
            refused += 1;
            assert!(!outcome.ok && outcome.text.contains("only a person"), "{line}: {}", outcome.text);
        }
        assert_eq!(decisions(folder.path()), before, "{line}");
    }
    assert_eq!(refused, 6, "enable, approve and providers with a digest, providers with a name, revoke, logs");
    // A person still can.
    assert!(execute(&gateway, "revoke a", &CommandOptions::default()).await.ok);
    assert_ne!(decisions(folder.path()), before);
    gateway.close().await;
}
