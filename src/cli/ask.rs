//! Callbacks of the gateway that ask a person at the terminal. Without a terminal, they refuse.

use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Map, Value as Json};

use super::pages;
use super::terminal::{Dialog, Terminal};
use crate::command::{Style, Tone, one_line, request_text};
use crate::error::Error;
use crate::gateway::{
    Answer, ApprovalQuestion, AuthorizationQuestion, Callbacks, ElicitationAnswer, ElicitationQuestion, Form, IssuerQuestion,
};
use crate::text::{arguments_text, escaped, sanitise_line, sanitise_text, shell_word, whole_arguments_text};
use crate::trust::{AllowedWrites, ApprovalRequest, Decision};

const MAX_TEXT_CHARS: usize = 4_000;
/// The method of a tool call.
const TOOLS_CALL: &str = "tools/call";
/// Width of the column with the names of what is shown.
const NAMES: usize = 12;

/// The person at the terminal. If `can_ask` is false, nobody can answer.
pub(super) struct Person {
    pub(super) terminal: Arc<Terminal>,
    pub(super) can_ask: bool,
    /// Tools that may be called without a question.
    pub(super) allowed: AllowedWrites,
}

/// Returns a sentence that says how a person can allow calls of a tool in advance. The server chooses the name of the tool, and the person
/// may copy the option into a shell.
fn allowing(server: &str, tool: &str) -> String {
    let is_sayable = !tool.contains(',') && escaped_line(tool) == tool;
    if is_sayable {
        format!("To allow it: --allow-writes {}", shell_word(&format!("{server}.{tool}")))
    } else {
        "The option --allow-writes cannot name this tool, so a person must be at the terminal".to_owned()
    }
}

impl Callbacks for Person {
    fn approve_call(&self, question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        let ApprovalQuestion { server, tool, method, reason, .. } = question;
        if self.allowed.allows(server, tool) {
            return Some(Box::pin(async { Ok(Decision::Run) }));
        }
        // The name is shown with escapes, because another tool may have the same name except for invisible characters.
        let call = format!("{server}.{}", escaped_line(tool));
        if !self.can_ask {
            let way_out = allowing(server, tool);
            let text = format!("{call} was not called: {reason}, and there is no terminal to ask a person. {way_out}");
            self.terminal.note(Tone::Warning, "warning:", &text);
            return None;
        }
        let (arguments, cuts) = arguments_text(&question.args);
        let (cut, all) = match cuts {
            0 => (String::new(), ""),
            _ => (format!("The arguments are not shown in full: {cuts} of the values are cut.\n"), ", show [a]ll arguments"),
        };
        let (terminal, whole) = (Arc::clone(&self.terminal), (cuts > 0).then(|| question.args.clone()));
        // The server chooses the tool's name and a model the arguments, so the rows that continue them are marked.
        // A server may have a tool whose name looks like the method of another request.
        let (does, asks) = match *method {
            TOOLS_CALL => (format!("call {call}"), format!("Call {call}?")),
            other => (format!("send the request {other} to {server}"), format!("Send {other} to {server}?")),
        };
        let wish = format!("{}\n({reason}) with", terminal.marked(0, &format!("the code wants to {does}")));
        let choices = format!("{} [o]nce, for this [r]un, for this [s]ession{all}, [N]o: ", terminal.marked(0, &asks));
        let text = format!("{wish}\n{}\n{cut}{choices}", terminal.broken(&arguments));
        Some(Box::pin(async move {
            let dialog = terminal.dialog().await;
            let mut answer = dialog.ask(&text).await.unwrap_or_default().to_lowercase();
            while let (Some(whole), "a" | "all") = (&whole, answer.as_str()) {
                let text = format!("{wish}\n{}\n{choices}", terminal.broken(&whole_arguments_text(whole)));
                answer = dialog.ask(&text).await.unwrap_or_default().to_lowercase();
            }
            // In other questions, `y` is the usual answer. Here it allows the least: this call.
            Ok(match answer.as_str() {
                "o" | "once" | "y" | "yes" => Decision::Once,
                "r" | "run" => Decision::Run,
                "s" | "session" => Decision::Session,
                _ => Decision::Deny,
            })
        }))
    }

    fn can_elicit(&self) -> bool {
        self.can_ask
    }

    fn elicit(&self, question: &ElicitationQuestion) -> Option<Answer<ElicitationAnswer>> {
        if !self.can_ask {
            return None;
        }
        let (terminal, question) = (Arc::clone(&self.terminal), serde_json::to_value(question).ok()?);
        Some(Box::pin(async move { Ok(fill_in(&terminal, &question).await) }))
    }

    fn can_authorize(&self) -> bool {
        self.can_ask
    }

    fn authorize(&self, url: &str, question: &AuthorizationQuestion) -> Option<Answer<Option<String>>> {
        if !self.can_ask {
            return None;
        }
        self.terminal.say(&authorization_text(url, question, &self.terminal.err));
        Some(Box::pin(async { Ok(None) }))
    }

    fn can_confirm_issuer(&self) -> bool {
        self.can_ask
    }

    fn confirm_issuer(&self, question: &IssuerQuestion) -> Option<Answer<bool>> {
        if !self.can_ask {
            return None;
        }
        let text = issuer_text(question, &self.terminal.err);
        let terminal = Arc::clone(&self.terminal);
        Some(Box::pin(async move { Ok(terminal.confirm(&text).await) }))
    }

    fn can_approve_server(&self) -> bool {
        self.can_ask
    }

    fn approve_server(&self, request: &ApprovalRequest) -> Option<Answer<bool>> {
        if !self.can_ask {
            return None;
        }
        let (terminal, text) = (Arc::clone(&self.terminal), request_text(request, &self.terminal.err));
        Some(Box::pin(async move {
            let dialog = terminal.dialog().await;
            pages::show(&dialog, &text, false).await;
            Ok(dialog.confirm("Approve?").await)
        }))
    }

    fn input(&self, id: &str, description: &str, server: &str) -> Option<Answer<SecretString>> {
        if !self.can_ask {
            return None;
        }
        let description = if description.is_empty() { id } else { description };
        let terminal = Arc::clone(&self.terminal);
        let text = format!("{} (for server \"{server}\"; what you type is not shown):", sanitise_line(description, MAX_TEXT_CHARS));
        let text = format!("{} ", terminal.marked(0, &text));
        let id = id.to_owned();
        Some(Box::pin(async move {
            let given = terminal.ask_secret(&text).await;
            given.map(SecretString::from).ok_or_else(|| Error::InvalidOption {
                method: "input",
                problem: format!("{id}: no value was typed; type a value when the input is asked for").into(),
            })
        }))
    }
}

/// Returns the sentence about the page of an authorization, and the page. The issuer and the page are addresses that a server chooses. So the
/// part of each that says where it leads has a line of its own.
fn authorization_text(url: &str, question: &AuthorizationQuestion, style: &Style) -> String {
    let AuthorizationQuestion { server, issuer } = question;
    let told = format!("server \"{server}\" needs your authorization. Open this page in a browser, sign in, then come back here:");
    [style.wrapped("", &told), address_text("issuer", issuer, style), page_text(url, style)].concat()
}

/// Returns the question before a credential is sent to an authorization server that is not in the config.
fn issuer_text(question: &IssuerQuestion, style: &Style) -> String {
    let IssuerQuestion { server, issuer, client_id, credential } = question;
    let told = format!("server \"{server}\" names an authorization server that oauth.issuer does not name:");
    let client = style.item("  client", NAMES, &one_line(&sanitise_line(client_id, MAX_TEXT_CHARS)));
    let question = format!("Send the {credential} of this client there?");
    [style.wrapped("", &told), address_text("issuer", issuer, style), client, question].concat()
}

/// Formats an address of others in two fields: its scheme, host and port, which decide who gets what is sent there, and the whole address.
/// Otherwise a long address could begin a row with the address of somebody else.
fn address_text(name: &str, address: &str, style: &Style) -> String {
    let whole = one_line(&sanitise_line(address, MAX_TEXT_CHARS));
    [style.item(&format!("  {name} at"), NAMES, &origin_of(address)), style.item("  in full", NAMES, &whole)].concat()
}

/// Returns the scheme, the host in ASCII, and the port of an address.
fn origin_of(address: &str) -> String {
    let origin = url::Url::parse(address).ok().map(|url| url.origin()).filter(url::Origin::is_tuple);
    origin.map_or_else(|| "unknown, as this is no address of HTTP".to_owned(), |origin| origin.ascii_serialization())
}

/// Formats a page to open: the server that has it, and the address in one piece and unchanged, so that a person can copy it or click on it. The
/// terminal breaks a long address itself. An address has no blanks, so no row of it is a sentence; a text with blanks is marked.
fn page_text(url: &str, style: &Style) -> String {
    let url = escaped_line(url);
    let shown = if url.contains(char::is_whitespace) { style.quoted("  ", &url) } else { format!("  {url}\n") };
    [style.item("  page at", NAMES, &origin_of(&url)), shown].concat()
}

/// Asks a server's question: shows a form field by field, or a page to open. An empty answer to a required field declines the question.
async fn fill_in(terminal: &Terminal, question: &Json) -> ElicitationAnswer {
    let text = |value: &Json| sanitise_text(value.as_str().unwrap_or_default(), MAX_TEXT_CHARS);
    let line = |value: &Json| sanitise_line(value.as_str().unwrap_or_default(), MAX_TEXT_CHARS);
    let who = question["server"].as_str().unwrap_or_default();
    let dialog = terminal.dialog().await;
    let asks = format!("server \"{who}\" asks:");
    dialog.say(&format!("{asks} {}\n", terminal.after_word(&asks, &text(&question["message"]))));
    if let Some(url) = question["url"].as_str() {
        dialog.say(&page_text(url, &terminal.err));
        let agreed = dialog.confirm(&format!("Have you opened this page of server \"{who}\", and do you agree?")).await;
        return if agreed { ElicitationAnswer::Accept(None) } else { ElicitationAnswer::Decline };
    }
    let schema = &question["requestedSchema"];
    let form = match Form::parse(schema) {
        Ok(form) => form,
        Err(problem) => return refused(terminal, &dialog, &problem),
    };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    let mut answers = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let label = [&field["title"], &field["description"]].into_iter().find(|label| label.is_string());
        let label = label.map_or_else(|| escaped_line(name), line);
        let kind = field["type"].as_str().unwrap_or("string");
        let default = form.default_of(name);
        let must = if required.contains(&name.as_str()) { ", required" } else { "" };
        let otherwise = default.map(|value| format!(" [{}]", shown_default(value))).unwrap_or_default();
        let asked = terminal.marked(2, &format!("{label} ({}{must}){otherwise}:", choices(field, kind)));
        let Some(typed) = dialog.ask(&format!("  {asked} ")).await else {
            return ElicitationAnswer::Cancel;
        };
        match value_of(&typed, kind) {
            Ok(Some(value)) => drop(answers.insert(name.clone(), value)),
            Ok(None) if must.is_empty() || default.is_some() => {}
            Ok(None) | Err(()) => return refused(terminal, &dialog, "the value has the wrong type, or is missing"),
        }
    }
    // Defaults are inserted before the form is shown, so that only values which were shown are sent.
    let content = match form.fill(Some(&Json::Object(answers))) {
        Ok(content) => content,
        Err(problems) => return refused(terminal, &dialog, &problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    };
    let shown = terminal.broken(&whole_arguments_text(&content));
    dialog.say(&format!("This would be sent to \"{who}\":\n{shown}\n"));
    if dialog.confirm(&format!("Send this to server \"{who}\"?")).await {
        ElicitationAnswer::Accept(Some(Json::Object(content)))
    } else {
        ElicitationAnswer::Decline
    }
}

fn refused(terminal: &Terminal, dialog: &Dialog<'_>, problem: &str) -> ElicitationAnswer {
    let told = format!("This answer does not fit the form ({}), so the question is declined.", sanitise_line(problem, MAX_TEXT_CHARS));
    dialog.say(&format!("  {}\n", terminal.marked(2, &told)));
    ElicitationAnswer::Decline
}

/// Formats a text that is sent unchanged: on one line, with numbers in place of invisible characters.
fn escaped_line(text: &str) -> String {
    escaped(text).replace('\n', "\\n")
}

/// Formats a default value in the form in which a person would type it.
fn shown_default(value: &Json) -> String {
    match value {
        Json::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Json::String(text) => escaped_line(text),
        Json::Array(items) => items.iter().map(shown_default).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Returns the values that a person may type. Choices are shown in full, because two of them may differ only at their ends.
fn choices(field: &Json, kind: &str) -> String {
    let lists = [&field["enum"], &field["oneOf"], &field["items"]["enum"], &field["items"]["anyOf"]];
    let value = |choice: &Json| choice.as_str().or(choice["const"].as_str()).map(escaped_line);
    match lists.into_iter().find_map(Json::as_array) {
        Some(values) => values.iter().filter_map(value).collect::<Vec<_>>().join(" | "),
        None if kind == "boolean" => "yes or no".to_owned(),
        None => kind.to_owned(),
    }
}

/// Converts an answer to the type of its field. Returns `None` for an empty answer.
fn value_of(typed: &str, kind: &str) -> std::result::Result<Option<Json>, ()> {
    if typed.is_empty() {
        return Ok(None);
    }
    match kind {
        "boolean" => match typed.to_lowercase().as_str() {
            "y" | "yes" | "true" => Ok(Some(Json::Bool(true))),
            "n" | "no" | "false" => Ok(Some(Json::Bool(false))),
            _ => Err(()),
        },
        "number" | "integer" => typed.parse::<serde_json::Number>().map(|number| Some(Json::Number(number))).map_err(drop),
        "array" => Ok(Some(typed.split(',').map(|item| Json::from(item.trim())).collect())),
        _ => Ok(Some(Json::from(typed))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::columns_in;
    use crate::gateway::Credential;

    #[test]
    fn a_shell_reads_the_suggested_option_as_one_word() {
        assert_eq!(allowing("notes", "write-note"), "To allow it: --allow-writes notes.write-note");
        assert_eq!(allowing("notes", "$(id); a"), "To allow it: --allow-writes 'notes.$(id); a'");
        // A comma separates tools, and an escape is not the name itself.
        for tool in ["x,fixture", "a\nb", "a\u{202e}"] {
            assert!(allowing("notes", tool).contains("cannot name this tool"), "{tool:?}");
        }
    }

    #[test]
    fn the_address_of_an_authorization_server_cannot_begin_a_row_with_another_one() {
        let style = Style::new(false, Some(80));
        for dots in 0..90 {
            let issuer = format!("http://127.0.0.1:38011/{}https://login.bank.example", ".".repeat(dots));
            let text = issuer_text(
                &IssuerQuestion {
                    server: "x".to_owned(),
                    issuer: issuer.clone(),
                    client_id: "me".to_owned(),
                    credential: Credential::ClientSecret,
                },
                &style,
            );
            let sign_in =
                authorization_text("https://a.example/authorize?b=c", &AuthorizationQuestion { server: "x".to_owned(), issuer }, &style);
            for shown in [&text, &sign_in] {
                assert!(shown.contains("\n  issuer at http://127.0.0.1:38011\n"), "{shown}");
                assert!(
                    shown.lines().all(|row| columns_in(row) <= 80
                        && !row.trim_start_matches(' ').starts_with("https://login") | row.starts_with(&" ".repeat(NAMES))),
                    "{shown}"
                );
            }
            assert!(text.ends_with("\nSend the client secret of this client there?"), "{text}");
            assert!(sign_in.ends_with("\n  page at   https://a.example\n  https://a.example/authorize?b=c\n"), "{sign_in}");
        }
    }

    #[test]
    fn a_page_with_blanks_is_no_sentence_of_this_program() {
        let text =
            page_text(&format!("https://a.example/{} server \"bank\" asks: your code", "x".repeat(70)), &Style::new(false, Some(80)));
        assert!(text.lines().skip(1).all(|row| row.starts_with("  | ")), "{text}");
        assert_eq!(origin_of("https://login.bank.example@evil.example/"), "https://evil.example");
        assert!(origin_of("data:text/html,x").starts_with("unknown"));
    }

    #[test]
    fn a_default_is_shown_as_it_would_be_typed() {
        let shown = |value: Json| shown_default(&value);
        assert_eq!((shown(Json::Bool(true)), shown(Json::Bool(false)), shown(Json::from(3))), ("yes".into(), "no".into(), "3".into()));
        assert_eq!((shown(serde_json::json!(["a", "b"])), shown(Json::from("a\n\u{202e}b"))), ("a, b".into(), "a\\n\\u{202e}b".into()));
    }

    #[test]
    fn a_choice_is_shown_in_full_and_as_it_is() {
        let long = "x".repeat(200);
        let choice = |field: Json| choices(&field, "string");
        assert_eq!(
            choice(serde_json::json!({ "enum": [long.clone() + "a", "/srv/data/prod/db"] })),
            format!("{long}a | /srv/data/prod/db")
        );
        assert_eq!(choice(serde_json::json!({ "oneOf": [{ "const": "b\u{2800}", "title": "c" }] })), "b\\u{2800}");
        assert_eq!(choice(serde_json::json!({ "items": { "anyOf": [{ "const": "d", "title": "e" }] } })), "d");
        assert_eq!(escaped_line("ru\u{200b}n\n"), "ru\\u{200b}n\\n");
    }

    #[test]
    fn what_is_typed_becomes_what_a_field_is() {
        assert_eq!(value_of("", "string"), Ok(None));
        assert_eq!(value_of("7", "integer"), Ok(Some(Json::from(7))));
        assert_eq!(value_of("seven", "integer"), Err(()));
        assert_eq!(value_of("Yes", "boolean"), Ok(Some(Json::Bool(true))));
        assert_eq!(value_of("a, b", "array"), Ok(Some(serde_json::json!(["a", "b"]))));
    }
}
