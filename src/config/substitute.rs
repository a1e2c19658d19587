//! `${…}` in a config, replaced when a server is started: never earlier, so that no secret lies around resolved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::definition::Transport;
use crate::error::{Error, Result};

/// What placeholders refer to, handed in so that tests need no environment of their own.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub environment: BTreeMap<String, String>,
    pub workspace_folder: PathBuf,
    pub user_home: PathBuf,
}

/// A command with nothing left to replace.
#[derive(Debug)]
pub struct ResolvedCommand {
    pub command: String,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, SecretString)>,
    pub working_directory: PathBuf,
}

/// What a child gets of our environment besides what its config declares: the MCP SDKs' safe list, and where to put temporary files.
const INHERITED: [&str; 9] = ["PATH", "HOME", "LANG", "LC_ALL", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL"];

/// Replaces the placeholders of a stdio server. `None` for a server that has no command.
///
/// # Errors
/// `ERR_CONFIG_INVALID` for an unset variable or an unknown placeholder, with the field that has it.
pub fn resolve_command(server: &str, transport: &Transport, surroundings: &Surroundings) -> Result<Option<ResolvedCommand>> {
    let Transport::Stdio { command, arguments, environment, working_directory, environment_file } = transport else {
        return Ok(None);
    };
    if environment_file.is_some() {
        // Refused rather than ignored: the server would start without what it needs.
        return Err(invalid(&format!("{server}.envFile"), "is not read by this version; write the variables into env".to_owned()));
    }
    let plain = |field: String, text: &str| replace(text, &field, surroundings, Variables::Folders);
    let arguments =
        arguments.iter().enumerate().map(|(index, text)| plain(format!("{server}.args[{index}]"), text)).collect::<Result<_>>()?;
    let mut resolved: Vec<(String, SecretString)> = INHERITED
        .iter()
        .filter_map(|name| surroundings.environment.get(*name).map(|value| ((*name).to_owned(), SecretString::from(value.clone()))))
        .collect();
    for (name, value) in environment {
        let value = replace(value.expose_secret(), &format!("{server}.env.{name}"), surroundings, Variables::All)?;
        resolved.retain(|(known, _)| known != name);
        resolved.push((name.clone(), SecretString::from(value)));
    }
    let working_directory = match working_directory {
        Some(folder) => surroundings.workspace_folder.join(plain(format!("{server}.cwd"), folder)?),
        None => surroundings.workspace_folder.clone(),
    };
    Ok(Some(ResolvedCommand { command: plain(format!("{server}.command"), command)?, arguments, environment: resolved, working_directory }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variables {
    /// `${workspaceFolder}` and `${userHome}` only.
    Folders,
    /// The environment's as well.
    All,
}

fn replace(text: &str, field: &str, surroundings: &Surroundings, variables: Variables) -> Result<String> {
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let name = &rest[start + 2..start + length];
        // `\${VAR}` means the same: the backslash keeps other programs from replacing it first.
        let literal = rest[..start].strip_suffix('\\').unwrap_or(&rest[..start]);
        output.push_str(literal);
        output.push_str(&look_up(name, field, surroundings, variables)?);
        rest = &rest[start + length + 1..];
    }
    output.push_str(rest);
    Ok(output)
}

fn look_up(name: &str, field: &str, surroundings: &Surroundings, variables: Variables) -> Result<String> {
    let path = |path: &Path| Ok(path.to_string_lossy().into_owned());
    match name {
        "workspaceFolder" => path(&surroundings.workspace_folder),
        "userHome" => path(&surroundings.user_home),
        _ if variables == Variables::All => {
            let variable = name.strip_prefix("env:").unwrap_or(name);
            surroundings
                .environment
                .get(variable)
                .cloned()
                .ok_or_else(|| invalid(field, format!("the environment variable {variable} is not set")))
        }
        _ => Err(invalid(field, format!("${{{name}}} is not replaced here; ${{workspaceFolder}} and ${{userHome}} are"))),
    }
}

fn invalid(field: &str, problem: String) -> Error {
    Error::ConfigInvalid { file: "config".to_owned(), field: field.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings() -> Surroundings {
        let environment = [("TOKEN", "t0k"), ("PATH", "/bin"), ("SECRET_OF_OURS", "x")];
        Surroundings {
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            workspace_folder: "/work space".into(),
            user_home: "/home/ada".into(),
        }
    }

    fn stdio(arguments: &[&str], environment: &[(&str, &str)]) -> Transport {
        Transport::Stdio {
            command: "${userHome}/bin/server".into(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            environment: environment.iter().map(|(name, value)| ((*name).to_owned(), SecretString::from(*value))).collect(),
            working_directory: Some("sub".into()),
            environment_file: None,
        }
    }

    #[test]
    fn folders_are_replaced_everywhere_and_variables_in_env() {
        let transport = stdio(&["${workspaceFolder}/x"], &[("A", "${TOKEN}-${env:TOKEN}"), ("B", "\\${TOKEN}")]);
        let resolved = resolve_command("s", &transport, &surroundings()).unwrap().unwrap();
        assert_eq!(resolved.command, "/home/ada/bin/server");
        assert_eq!(resolved.arguments, ["/work space/x"]);
        assert_eq!(resolved.working_directory, Path::new("/work space/sub"));
        let value =
            |name: &str| resolved.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.expose_secret().to_owned());
        assert_eq!(value("A").as_deref(), Some("t0k-t0k"));
        assert_eq!(value("B").as_deref(), Some("t0k"));
    }

    #[test]
    fn a_child_gets_the_safe_list_and_nothing_else_of_ours() {
        let resolved = resolve_command("s", &stdio(&[], &[]), &surroundings()).unwrap().unwrap();
        let names: Vec<_> = resolved.environment.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["PATH"]);
    }

    #[test]
    fn an_unset_variable_is_an_error_that_names_it_and_its_field() {
        let error = resolve_command("s", &stdio(&[], &[("A", "${NOPE}")]), &surroundings()).unwrap_err();
        assert!(error.to_string().contains("s.env.A") && error.to_string().contains("NOPE"), "{error}");
        assert!(resolve_command("s", &stdio(&["${TOKEN}"], &[]), &surroundings()).unwrap_err().to_string().contains("s.args[0]"));
    }
}
