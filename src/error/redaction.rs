//! An error without what must not leave the crate.

use std::path::PathBuf;

use super::Error;

impl Error {
    /// The same error, its texts changed. Names of servers and limits are ours and stay; everything that a server, a guest or the
    /// system has said goes through.
    // long: one arm a variant, so that a new one cannot be forgotten.
    #[must_use]
    pub(crate) fn map_text(self, change: impl Fn(&str) -> String) -> Self {
        let path = |path: PathBuf| PathBuf::from(change(&path.display().to_string()));
        match self {
            Self::InvalidOption { method, problem } => Self::InvalidOption { method, problem: change(&problem) },
            Self::ConfigUnreadable { path: file, problem } => Self::ConfigUnreadable { path: path(file), problem: change(&problem) },
            Self::ConfigSyntax { file, line, column, problem } => {
                Self::ConfigSyntax { file: change(&file), line, column, problem: change(&problem) }
            }
            Self::ConfigInvalid { file, problems } => Self::ConfigInvalid {
                file: change(&file),
                problems: problems.into_iter().map(|known| crate::config::Problem { problem: change(&known.problem), ..known }).collect(),
            },
            Self::CallDenied { server, tool, reason } => Self::CallDenied { server, tool, reason: change(&reason) },
            Self::UnsupportedTransport { server, problem } => Self::UnsupportedTransport { server, problem: change(&problem) },
            Self::InsecureUrl { server, origin } => Self::InsecureUrl { server, origin: change(&origin) },
            Self::SpawnFailed { server, command, problem } => {
                Self::SpawnFailed { server, command: change(&command), problem: change(&problem) }
            }
            Self::ConnectFailed { server, problem } => Self::ConnectFailed { server, problem: change(&problem) },
            Self::ConnectTimeout { server, limit_ms, hint } => Self::ConnectTimeout { server, limit_ms, hint: change(&hint) },
            Self::ServerExited { server, during, status, stderr } => Self::ServerExited { server, during, status, stderr: change(&stderr) },
            Self::RequestFailed { server, tool, problem } => Self::RequestFailed { server, tool, problem: change(&problem) },
            Self::Protocol { server, tool, code, message } => Self::Protocol { server, tool, code, message: change(&message) },
            Self::AuthorizationRequired { server, issuer, lack } => {
                Self::AuthorizationRequired { server, issuer: issuer.map(|issuer| change(&issuer)), lack }
            }
            Self::AuthorizationFailed { server, issuer, problem } => {
                Self::AuthorizationFailed { server, issuer: issuer.map(|issuer| change(&issuer)), problem: change(&problem) }
            }
            Self::OutputSchema { server, tool, problem } => Self::OutputSchema { server, tool, problem: change(&problem) },
            Self::InvalidArguments { what, problem } => Self::InvalidArguments { what, problem: change(&problem) },
            Self::CodeSyntax { message, line, column } => Self::CodeSyntax { message: change(&message), line, column },
            Self::GuestThrew { name, message, stack, line, column } => {
                Self::GuestThrew { name: change(&name), message: change(&message), stack: change(&stack), line, column }
            }
            Self::InvalidValue { problem } => Self::InvalidValue { problem: change(&problem) },
            Self::GuestCrashed { problem } => Self::GuestCrashed { problem: change(&problem) },
            Self::NoHypervisor { problem, remedy } => Self::NoHypervisor { problem: change(&problem), remedy },
            Self::HostFunction { function, message } => Self::HostFunction { function, message: change(&message) },
            Self::ApprovalStore { path: file, problem } => Self::ApprovalStore { path: path(file), problem: change(&problem) },
            Self::Io { what, problem } => Self::Io { what: change(&what), problem: change(&problem) },
            Self::Internal(problem) => Self::Internal(change(&problem)),
            // These say what we know ourselves: names of servers, tools and limits, and figures.
            Self::TooManyServers { .. }
            | Self::UnknownServer { .. }
            | Self::NotApproved { .. }
            | Self::NotEnabled { .. }
            | Self::ServerDisabled { .. }
            | Self::DisabledByPerson { .. }
            | Self::DigestChanged { .. }
            | Self::UnknownTool { .. }
            | Self::UnknownModule { .. }
            | Self::ToolChanged { .. }
            | Self::ToolVanished { .. }
            | Self::UnknownResource { .. }
            | Self::ResourceChanged { .. }
            | Self::UnknownPrompt { .. }
            | Self::PromptChanged { .. }
            | Self::TooManyConnections { .. }
            | Self::ServerUnavailable { .. }
            | Self::CallTimeout { .. }
            | Self::ResponseTooLarge { .. }
            | Self::ArgumentsTooLarge { .. }
            | Self::InputTooLarge { .. }
            | Self::ValueTooLarge { .. }
            | Self::NotSaved { .. }
            | Self::CodeTooLarge { .. }
            | Self::NoHandler
            | Self::NeverSettles
            | Self::RunTimeout { .. }
            | Self::Aborted { .. }
            | Self::Closed { .. }
            | Self::GuestMemory { .. }
            | Self::NameTaken { .. }
            | Self::Busy { .. }
            | Self::PluginOff
            | Self::PluginNotApproved { .. } => self,
        }
    }
}
