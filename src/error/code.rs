//! The stable code of each error.

use super::Error;

impl Error {
    /// Returns the stable code, as documented in `docs/ERRORS.md`.
    ///
    /// ```
    /// let error = hyperlight_mcp::Error::NoHandler;
    /// assert_eq!(error.code(), "ERR_NO_HANDLER");
    /// ```
    // long: every variant has its arm, so that a new variant does not compile until it has a code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidOption { .. } => "ERR_INVALID_OPTION",
            Self::ConfigUnreadable { .. } => "ERR_CONFIG_UNREADABLE",
            Self::ConfigSyntax { .. } => "ERR_CONFIG_SYNTAX",
            Self::ConfigInvalid { .. } => "ERR_CONFIG_INVALID",
            Self::TooManyServers { .. } => "ERR_TOO_MANY_SERVERS",
            Self::UnknownServer { .. } => "ERR_UNKNOWN_SERVER",
            Self::NotApproved { .. } => "ERR_NOT_APPROVED",
            Self::NotEnabled { .. } => "ERR_NOT_ENABLED",
            Self::ServerDisabled { .. } => "ERR_SERVER_DISABLED",
            Self::DisabledByPerson { .. } => "ERR_DISABLED_BY_PERSON",
            Self::OperatorOnly { .. } => "ERR_OPERATOR_ONLY",
            Self::NotGranted { .. } => "ERR_NOT_GRANTED",
            Self::UnknownToolbox { .. } => "ERR_UNKNOWN_TOOLBOX",
            Self::GrantInConfig { .. } => "ERR_GRANT_IN_CONFIG",
            Self::ProfileConflict { .. } => "ERR_PROFILE_CONFLICT",
            Self::DigestChanged { .. } | Self::ProviderDigestChanged { .. } => "ERR_DIGEST_CHANGED",
            Self::UnknownProvider { .. } => "ERR_UNKNOWN_PROVIDER",
            Self::Provider { .. } => "ERR_PROVIDER",
            Self::UnknownTool { .. } | Self::UnknownDirectName { .. } => "ERR_UNKNOWN_TOOL",
            Self::UnknownModule { .. } => "ERR_UNKNOWN_MODULE",
            Self::ToolChanged { .. } => "ERR_TOOL_CHANGED",
            Self::ToolVanished { .. } => "ERR_TOOL_VANISHED",
            Self::UnknownResource { .. } => "ERR_UNKNOWN_RESOURCE",
            Self::ResourceChanged { .. } => "ERR_RESOURCE_CHANGED",
            Self::UnknownPrompt { .. } => "ERR_UNKNOWN_PROMPT",
            Self::PromptChanged { .. } => "ERR_PROMPT_CHANGED",
            Self::CallDenied { .. } => "ERR_CALL_DENIED",
            Self::UnsupportedTransport { .. } => "ERR_UNSUPPORTED_TRANSPORT",
            Self::InsecureUrl { .. } => "ERR_INSECURE_URL",
            Self::SpawnFailed { .. } => "ERR_SPAWN_FAILED",
            Self::ConnectFailed { .. } => "ERR_CONNECT_FAILED",
            Self::ConnectTimeout { .. } => "ERR_CONNECT_TIMEOUT",
            Self::TooManyConnections { .. } => "ERR_TOO_MANY_CONNECTIONS",
            Self::ServerUnavailable { .. } => "ERR_SERVER_UNAVAILABLE",
            Self::ServerExited { .. } => "ERR_SERVER_EXITED",
            Self::RequestFailed { .. } => "ERR_REQUEST_FAILED",
            Self::CallTimeout { .. } => "ERR_CALL_TIMEOUT",
            Self::AuthorizationRequired { .. } => "ERR_AUTHORIZATION_REQUIRED",
            Self::AuthorizationFailed { .. } => "ERR_AUTHORIZATION_FAILED",
            Self::Protocol { .. } | Self::UnusableAnswer { .. } => "ERR_PROTOCOL",
            Self::ResponseTooLarge { .. } => "ERR_RESPONSE_TOO_LARGE",
            Self::OutputSchema { .. } => "ERR_OUTPUT_SCHEMA",
            Self::ArgumentsTooLarge { .. } => "ERR_ARGUMENTS_TOO_LARGE",
            Self::InvalidArguments { .. } => "ERR_INVALID_ARGUMENTS",
            Self::InputTooLarge { .. } => "ERR_INPUT_TOO_LARGE",
            Self::ValueTooLarge { .. } | Self::ValueTooManyParts { .. } => "ERR_VALUE_TOO_LARGE",
            Self::NotSaved { .. } => "ERR_NOT_SAVED",
            Self::UnknownSession { .. } => "ERR_UNKNOWN_SESSION",
            Self::CodeTooLarge { .. } => "ERR_CODE_TOO_LARGE",
            Self::CodeSyntax { .. } => "ERR_CODE_SYNTAX",
            Self::NoHandler => "ERR_NO_HANDLER",
            Self::GuestThrew { .. } => "ERR_GUEST_THREW",
            Self::InvalidValue { .. } => "ERR_INVALID_VALUE",
            Self::NeverSettles => "ERR_NEVER_SETTLES",
            Self::RunTimeout { .. } => "ERR_RUN_TIMEOUT",
            Self::Aborted { .. } => "ERR_ABORTED",
            Self::Closed { .. } => "ERR_CLOSED",
            Self::GuestMemory { .. } => "ERR_GUEST_MEMORY",
            Self::GuestCrashed { .. } => "ERR_GUEST_CRASHED",
            Self::NoHypervisor { .. } => "ERR_NO_HYPERVISOR",
            Self::NameTaken { .. } => "ERR_NAME_TAKEN",
            Self::HostFunction { .. } => "ERR_HOST_FUNCTION",
            Self::ToolFailed { .. } => "ERR_TOOL_FAILED",
            Self::ApprovalStore { .. } => "ERR_APPROVAL_STORE",
            Self::Store { .. } => "ERR_STORE",
            Self::Busy { .. } => "ERR_BUSY",
            Self::TooManyProposals { .. } => "ERR_TOO_MANY_PROPOSALS",
            Self::PluginOff => "ERR_PLUGIN_OFF",
            Self::PluginNotApproved { .. } => "ERR_PLUGIN_NOT_APPROVED",
            Self::Io { .. } => "ERR_IO",
            Self::Internal(_) => "ERR_INTERNAL",
        }
    }
}
