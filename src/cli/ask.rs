//! Callbacks of the gateway that ask a person at the terminal. Without a terminal, they refuse.

use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Map, Value as Json};

use super::pages;
use super::terminal::{Dialog, Terminal};
use super::untrusted::indented;
use crate::command::{Tone, request_text};
use crate::error::Error;
use crate::gateway::{
    Answer, ApprovalQuestion, AuthorizationQuestion, Callbacks, ElicitationAnswer, ElicitationQuestion, Form, IssuerQuestion,
};
use crate::text::{arguments_text, escaped, sanitise_line, sanitise_text, shell_word, whole_arguments_text};
use crate::trust::{AllowedWrites, ApprovalRequest, Decision};

const MAX_TEXT_CHARS: usize = 4_000;

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
        let ApprovalQuestion { server, tool, reason, .. } = question;
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
        let choices = format!("Call {call}? [o]nce, for this [r]un, for this [s]ession{all}, [N]o: ");
        let text = format!("the code wants to call {call} ({reason}) with\n{arguments}\n{cut}{choices}");
        let (terminal, reason, whole) = (Arc::clone(&self.terminal), reason.clone(), (cuts > 0).then(|| question.args.clone()));
        Some(Box::pin(async move {
            let dialog = terminal.dialog().await;
            let mut answer = dialog.ask(&text).await.unwrap_or_default().to_lowercase();
            while let (Some(whole), "a" | "all") = (&whole, answer.as_str()) {
                let text = format!("the code wants to call {call} ({reason}) with\n{}\n{choices}", whole_arguments_text(whole));
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
        let issuer = sanitise_line(&question.issuer, MAX_TEXT_CHARS);
        let text = format!(
            "server \"{}\" needs your authorization at {issuer}. Open this page in a browser, sign in, then come back here:\n  {url}\n",
            question.server
        );
        self.terminal.say(&text);
        Some(Box::pin(async { Ok(None) }))
    }

    fn can_confirm_issuer(&self) -> bool {
        self.can_ask
    }

    fn confirm_issuer(&self, question: &IssuerQuestion) -> Option<Answer<bool>> {
        if !self.can_ask {
            return None;
        }
        let IssuerQuestion { server, issuer, client_id, credential } = question;
        let line = |text: &str| sanitise_line(text, MAX_TEXT_CHARS);
        let text = format!(
            "server \"{server}\" names the authorization server {}, which is not in the config (oauth.issuer). Send the {credential} of client {} there?",
            line(issuer),
            line(client_id)
        );
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
        let text = format!("{} (for server \"{server}\"; what you type is not shown): ", sanitise_line(description, MAX_TEXT_CHARS));
        let terminal = Arc::clone(&self.terminal);
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

/// Asks a server's question: shows a form field by field, or a page to open. An empty answer to a required field declines the question.
async fn fill_in(terminal: &Terminal, question: &Json) -> ElicitationAnswer {
    let text = |value: &Json| sanitise_text(value.as_str().unwrap_or_default(), MAX_TEXT_CHARS);
    let line = |value: &Json| sanitise_line(value.as_str().unwrap_or_default(), MAX_TEXT_CHARS);
    let who = question["server"].as_str().unwrap_or_default();
    let dialog = terminal.dialog().await;
    dialog.say(&format!("server \"{who}\" asks: {}\n", indented(&text(&question["message"]))));
    if let Some(url) = question["url"].as_str() {
        // The address is shown in full and not changed, because a person opens it.
        dialog.say(&format!("  {}\n", escaped_line(url)));
        let agreed = dialog.confirm(&format!("Have you opened this page of server \"{who}\", and do you agree?")).await;
        return if agreed { ElicitationAnswer::Accept(None) } else { ElicitationAnswer::Decline };
    }
    let schema = &question["requestedSchema"];
    let form = match Form::parse(schema) {
        Ok(form) => form,
        Err(problem) => return refused(&dialog, &problem),
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
        let Some(typed) = dialog.ask(&format!("  {label} ({}{must}){otherwise}: ", choices(field, kind))).await else {
            return ElicitationAnswer::Cancel;
        };
        match value_of(&typed, kind) {
            Ok(Some(value)) => drop(answers.insert(name.clone(), value)),
            Ok(None) if must.is_empty() || default.is_some() => {}
            Ok(None) | Err(()) => return refused(&dialog, "the value has the wrong type, or is missing"),
        }
    }
    // Defaults are inserted before the form is shown, so that only values which were shown are sent.
    let content = match form.fill(Some(&Json::Object(answers))) {
        Ok(content) => content,
        Err(problems) => return refused(&dialog, &problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    };
    dialog.say(&format!("This would be sent to \"{who}\":\n{}\n", whole_arguments_text(&content)));
    if dialog.confirm(&format!("Send this to server \"{who}\"?")).await {
        ElicitationAnswer::Accept(Some(Json::Object(content)))
    } else {
        ElicitationAnswer::Decline
    }
}

fn refused(dialog: &Dialog<'_>, problem: &str) -> ElicitationAnswer {
    dialog
        .say(&format!("  This answer does not fit the form ({}), so the question is declined.\n", sanitise_line(problem, MAX_TEXT_CHARS)));
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
