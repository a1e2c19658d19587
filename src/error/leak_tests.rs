//! Tests every variant of [`Error`] with a secret in each text field. The error must not show the secret, before and after redaction.

use super::{Error, ErrorText, MissingCallback, OwnText};
use crate::redact::Redactor;
use crate::text::Problem;

const SECRET: &str = "correct-horse-battery";

/// Returns a text that quotes the secret, converted to any type that a field can have.
fn quoted<T: From<String>>() -> T {
    format!("it says {SECRET} there").into()
}

fn problems() -> Vec<Problem> {
    vec![Problem { field: quoted(), line: Some(1), column: Some(1), problem: quoted() }]
}

/// The kind of text that an error contains. Only text of this crate can be read before redaction.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Holds {
    Foreign,
    Own,
    Nothing,
}
use Holds::{Foreign, Nothing, Own};

/// Returns an error of each variant. `Error::code` names every variant in a `match`, and the test below compares the number of codes.
// long: one line for each variant.
#[allow(clippy::too_many_lines)]
fn every_variant() -> Vec<(Holds, Error)> {
    let server = || "weather".to_owned();
    let lack = MissingCallback::Page;
    let (line, column) = (Some(1), Some(1));
    let mut all = vec![
        (Own, Error::InvalidOption { method: "m", problem: quoted() }),
        (Foreign, Error::ConfigUnreadable { path: quoted(), problem: quoted() }),
        (Foreign, Error::ConfigSyntax { file: quoted(), line: 1, column: 1, problem: quoted() }),
        (Foreign, Error::ConfigInvalid { file: quoted(), problems: problems().into() }),
        (Nothing, Error::TooManyServers { count: 2, limit: 1 }),
        (Foreign, Error::UnknownServer { server: server(), place: "here", known: vec![quoted()] }),
        (Own, Error::NotApproved { server: server(), reason: quoted() }),
        (Nothing, Error::NotEnabled { server: server() }),
        (Nothing, Error::ServerDisabled { server: server() }),
        (Nothing, Error::DisabledByPerson { server: server() }),
        (
            Foreign,
            Error::NotGranted {
                agent: quoted(),
                server: server(),
                item: quoted(),
                reason: quoted(),
                instead: Box::new(Error::UnknownTool { server: server(), tool: quoted(), meant: Some(quoted()), known: vec![quoted()] }),
            },
        ),
        (Foreign, Error::UnknownToolbox { toolbox: quoted(), known: vec![quoted()] }),
        (Foreign, Error::GrantInConfig { what: quoted(), place: quoted() }),
        (Foreign, Error::ProfileConflict { problem: quoted() }),
        (Nothing, Error::DigestChanged { server: server() }),
        (Foreign, Error::ProviderDigestChanged { provider: quoted() }),
        (Foreign, Error::FetchNotApproved { agent: quoted(), hosts: quoted(), reason: quoted(), way_out: quoted() }),
        (Foreign, Error::FetchDigestChanged { agent: quoted() }),
        (Foreign, Error::UnknownProvider { provider: quoted(), known: vec![quoted()] }),
        (Foreign, Error::Provider { provider: quoted(), problem: quoted() }),
        (Foreign, Error::UnknownTool { server: server(), tool: quoted(), meant: Some(quoted()), known: vec![quoted()] }),
        (Foreign, Error::UnknownDirectName { name: quoted(), known: vec![quoted()] }),
        (Foreign, Error::UnknownModule { name: quoted(), meant: Some(quoted()), known: vec![quoted()] }),
        (Foreign, Error::ToolChanged { server: server(), tool: quoted() }),
        (Foreign, Error::ToolVanished { server: server(), tool: quoted() }),
        (Foreign, Error::UnknownResource { server: server(), uri: quoted(), known: vec![quoted()], untried: 3 }),
        (Foreign, Error::ResourceChanged { server: server(), uri: quoted() }),
        (Foreign, Error::UnknownPrompt { server: server(), prompt: quoted(), known: vec![quoted()] }),
        (Foreign, Error::PromptChanged { server: server(), prompt: quoted() }),
        (Foreign, Error::CallDenied { server: server(), tool: quoted(), reason: quoted() }),
        (Own, Error::UnsupportedTransport { server: server(), problem: quoted() }),
        (Foreign, Error::InsecureUrl { server: server(), origin: quoted() }),
        (Foreign, Error::BoxFailed { server: server(), problem: quoted() }),
        (Foreign, Error::SpawnFailed { server: server(), command: quoted(), problem: quoted() }),
        (Foreign, Error::ConnectFailed { server: server(), problem: quoted() }),
        (Own, Error::ConnectTimeout { server: server(), limit_ms: 1, hint: quoted() }),
        (Own, Error::TooManyConnections { server: server(), limit: 1, holders: vec![quoted()] }),
        (Nothing, Error::ServerUnavailable { server: server(), failures: 1, retry_in_ms: 1 }),
        (Foreign, Error::ServerExited { server: server(), during: OwnText::from("now"), status: OwnText::from("ended"), stderr: quoted() }),
        (Own, Error::ServerExited { server: server(), during: quoted(), status: quoted(), stderr: quoted() }),
    ];
    all.extend([
        (Foreign, Error::RequestFailed { server: server(), tool: quoted(), problem: quoted() }),
        (Foreign, Error::CallTimeout { server: server(), tool: quoted(), limit_ms: 1, limit_name: "l" }),
        (Foreign, Error::AuthorizationRequired { server: server(), issuer: Some(quoted()), lack }),
        (Foreign, Error::AuthorizationFailed { server: server(), issuer: Some(quoted()), problem: quoted() }),
        (Foreign, Error::Protocol { server: server(), tool: quoted(), code: 1, message: quoted() }),
        (Foreign, Error::UnusableAnswer { server: server(), tool: quoted(), problem: quoted() }),
        (Foreign, Error::MalformedAnswer { server: server(), request: quoted(), problem: OwnText::from("2") }),
        (Own, Error::MalformedAnswer { server: server(), request: quoted(), problem: quoted() }),
        (Foreign, Error::ResponseTooLarge { what: quoted(), size: OwnText::from("2"), limit: 1, limit_name: "l" }),
        (Own, Error::ResponseTooLarge { what: quoted(), size: quoted(), limit: 1, limit_name: "l" }),
        (Foreign, Error::OutputSchema { server: server(), tool: quoted(), problem: quoted() }),
        (Foreign, Error::ArgumentsTooLarge { what: quoted(), size: 2, limit: 1 }),
        (Foreign, Error::InvalidArguments { what: quoted(), problem: quoted() }),
        (Nothing, Error::InputTooLarge { size: 2, limit: 1 }),
        (Nothing, Error::ValueTooLarge { size: 2, limit: 1 }),
        (Nothing, Error::ValueTooManyParts { limit: 1 }),
        (Foreign, Error::NotSaved { id: quoted(), max_age_ms: 1, max_bytes: 1 }),
        (Nothing, Error::UnknownSession { problem: "p" }),
        (Nothing, Error::UnknownCall { field: "f", problem: "p" }),
        (Own, Error::InvalidRequest { problem: quoted() }),
        (Nothing, Error::CodeTooLarge { size: 2, limit: 1 }),
        (Foreign, Error::CodeSyntax { message: quoted(), line, column }),
        (Nothing, Error::NoHandler),
        (Foreign, Error::GuestThrew { name: quoted(), message: quoted(), stack: quoted(), line, column }),
        (Foreign, Error::InvalidValue { problem: quoted() }),
        (Nothing, Error::NeverSettles),
        (Nothing, Error::RunTimeout { limit_ms: 1, limit: "limits.runTimeoutMs" }),
        (Nothing, Error::Aborted { what: "call" }),
        (Nothing, Error::Closed { what: "gateway" }),
        (Nothing, Error::GuestMemory { limit: 1 }),
        (Foreign, Error::GuestCrashed { problem: quoted() }),
        (Own, Error::NoHypervisor { problem: quoted(), remedy: quoted() }),
        (Own, Error::NameTaken { name: quoted(), problem: quoted() }),
        (Foreign, Error::HostFunction { function: quoted(), message: quoted() }),
        (Nothing, Error::OperatorOnly { what: "reload", problem: "p" }),
        (Foreign, Error::ToolFailed { server: server(), tool: quoted(), message: quoted() }),
        (Foreign, Error::ApprovalStore { path: quoted(), problem: quoted() }),
        (Foreign, Error::Store { path: quoted(), problem: quoted() }),
        (Nothing, Error::Busy { what: "runs", limit: 1 }),
        (Nothing, Error::TooManyProposals { what: "servers", limit: 1 }),
        (Nothing, Error::PluginOff),
        (Nothing, Error::PluginNotApproved { problem: "p" }),
        (Own, Error::BootPrompt { problem: quoted() }),
        (Foreign, Error::BootModel { problem: quoted() }),
        (Foreign, Error::BootRefused { what: quoted(), reason: quoted() }),
        (Nothing, Error::BootNoTools),
        (Foreign, Error::BootPlan { problem: quoted() }),
        (Foreign, Error::BootHandler { tool: quoted(), problem: quoted() }),
        (Own, Error::BootSecret { name: quoted(), problem: quoted() }),
        (Foreign, Error::BootCache { path: quoted(), problem: quoted() }),
        (Foreign, Error::BootNotCached { path: quoted() }),
        (Foreign, Error::Unanswered { problem: quoted() }),
        (Foreign, Error::Io { what: OwnText::from("a thread"), problem: quoted() }),
        (Own, Error::Io { what: quoted(), problem: quoted() }),
        (Own, Error::Internal(quoted())),
    ]);
    all
}

fn redactor() -> Redactor {
    let redactor = Redactor::new(None, None);
    redactor.add([&SECRET.to_owned().into()]);
    redactor
}

/// Returns everything that a program can read of an error: its message, its fields, and the message for a model.
fn readable(error: &Error) -> String {
    format!("{error} {error:?} {}", error.for_model())
}

#[test]
fn the_list_has_every_variant() {
    let codes: std::collections::BTreeSet<_> = every_variant().iter().map(|(_, error)| error.code()).collect();
    let documented = include_str!("code.rs").matches("=> \"ERR_").count();
    assert_eq!(codes.len(), documented);
}

#[test]
fn foreign_text_of_an_error_that_nobody_redacted_cannot_be_read() {
    for (holds, error) in every_variant() {
        assert_eq!(readable(&error).contains(SECRET), holds == Own, "{error:?}");
    }
}

#[test]
fn no_text_of_a_redacted_error_has_a_secret_and_the_rest_can_be_read() {
    for (holds, error) in every_variant() {
        let redacted = readable(&error.redacted(&redactor()));
        assert!(!redacted.contains(SECRET) && !redacted.contains("[not redacted]"), "{redacted}");
        assert_eq!(redacted.contains("it says [redacted] there"), holds != Nothing, "{redacted}");
    }
}

#[test]
fn text_of_this_crate_around_foreign_text_is_not_cut() {
    let cut = super::ForeignText::cut(&"x".repeat(100_000), 8).after("before: ").before(". After");
    assert_eq!(ErrorText::from(cut).in_full(), format!("before: {}… [cut]. After", "x".repeat(8)));
}

#[test]
fn a_text_that_is_redacted_twice_is_the_same() {
    let once = ErrorText::from(quoted::<String>()).redacted(&redactor());
    assert_eq!(once.clone().redacted(&redactor()), once);
}
