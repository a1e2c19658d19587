//! Formats an approval request in full, within the width of the terminal.

mod findings;
mod generated;
mod leaves;
mod manifest;
mod schema;

use super::text::{MARK, Style, Tone, joined, one_line};
use crate::config::Confirm;
use crate::text::has_invisible;
use crate::trust::{Added, ApprovalRequest, CommandRequest, HIDDEN_IN_CODE};

/// The warning about a host with letters outside of ASCII.
pub(crate) const LOOKALIKE: &str =
    "a host has letters outside of ASCII, which can look like other letters: compare its ASCII form with the host that you know";
/// Maximum number of leading blanks of a line of code that are shown unchanged. If there are more, their number is shown instead.
const MAX_INDENT: usize = 40;
/// Width of the column with the field names.
const NAMES: usize = 16;
/// Start of a line that continues a note.
const CONTINUED: &str = "     ";

/// Returns the name of a request's stage for a person.
#[must_use]
pub fn stage_of(request: &ApprovalRequest) -> &'static str {
    match request {
        ApprovalRequest::Command(_) => "stage 1 of 2: what runs",
        ApprovalRequest::Manifest(_) => "stage 2 of 2: what a model reads and calls",
    }
}

/// Formats everything that a person must see before approving.
///
/// ```no_run
/// # async fn show(gateway: &hyperlight_mcp::Gateway) -> hyperlight_mcp::Result<()> {
/// use hyperlight_mcp::command::{Style, request_text};
/// println!("{}", request_text(&gateway.approval_request("weather").await?, &Style::default()));
/// # Ok(()) }
/// ```
#[must_use]
pub fn request_text(request: &ApprovalRequest, style: &Style) -> String {
    match request {
        ApprovalRequest::Command(request) => command_text(request, style),
        ApprovalRequest::Manifest(request) => manifest::manifest_text(request, style),
    }
}

/// Builds the text of one request.
struct Page<'s> {
    style: &'s Style,
    text: String,
}

impl Page<'_> {
    /// Adds a field. The text of the field comes from a config or a server, so it is converted to one line and wrapped.
    fn field(&mut self, name: &str, text: &str) {
        let shown = line(text);
        self.text.push_str(&self.style.field(&format!("  {name}"), NAMES, &shown));
    }

    /// Adds a field with each item on a line of its own. Further lines of an item are indented.
    fn list(&mut self, name: &str, items: &[String]) {
        for (index, item) in items.iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            self.text.push_str(&self.style.item(&format!("  {name}"), NAMES, &line(item)));
        }
    }

    fn heading(&mut self, text: &str) {
        self.text.push('\n');
        self.text.push_str(&self.style.paint(Tone::Heading, text));
        self.text.push('\n');
    }

    fn noted(&mut self, tone: Tone, text: &str) {
        // The text may come from a server. The lines that continue a long text have an indentation that no field has, so that no such line
        // can look like a field.
        let wrapped = self.style.wrapped(CONTINUED, &line(text));
        for (index, line) in wrapped.lines().enumerate() {
            self.text.push_str(if index == 0 { "  " } else { CONTINUED });
            self.text.push_str(&self.style.paint(tone, line.trim_start()));
            self.text.push('\n');
        }
    }

    /// Adds an item, such as a resource, whose text a server or a config chooses. The rows that continue it have a mark.
    fn item(&mut self, indent: &str, text: &str) {
        self.text.push_str(&self.style.marked(indent, text));
    }

    /// Adds a text of a server with its line breaks. Each row has a mark, so that none can look like a row of this program.
    fn quoted(&mut self, text: &str) {
        self.text.push_str(&self.style.quoted("      ", text));
    }

    /// Adds a line of code with its number. Text that does not fit into the width follows on the next line, after a mark. Numbers and marks
    /// are in columns that code never uses. Leading blanks are kept, and tabs are replaced by blanks.
    fn code(&mut self, number: usize, text: &str) {
        let text = text.replace('\t', "    ");
        let code = text.trim_start_matches(' ');
        let (blanks, code) = text.split_at((text.len() - code.len()).min(MAX_INDENT));
        let mark = format!("  {number:>4} | ");
        let further = format!("{:>width$} ", "\\", width = mark.len() - 1);
        for part in self.style.broken(&mark, &further, &format!("{blanks}{}", line(code))) {
            self.text.push_str(&self.style.paint(Tone::Quiet, &part));
            self.text.push('\n');
        }
    }
}

/// Formats the name of a property or an argument at the begin of a row. Puts it in quotes if it begins like the mark of another row.
fn bare(name: &str) -> String {
    if name.trim_start().starts_with(MARK.trim_end()) { line(&format!("{name:?}")) } else { line(name) }
}

/// Converts a text to one line. Replaces control characters and invisible characters with their numbers.
fn line(text: &str) -> String {
    one_line(text)
}

fn command_text(request: &CommandRequest, style: &Style) -> String {
    let mut page = Page { style, text: String::new() };
    page.heading(&format!("{}: may this run? (stage 1 of 2)", request.server));
    warning(&mut page, request, true);
    reasons(&mut page, request);
    if let Some(url) = &request.url {
        page.field("connects to", url);
        if let Some(host) = &request.unicode_host {
            page.field("host", &format!("{host} (in Unicode)"));
            page.noted(Tone::Bad, LOOKALIKE);
        }
        page.list("host from", &request.host_from);
    }
    if let Some(command) = &request.command {
        page.field("runs", &quoted(command));
        page.list("arguments", &request.args.iter().flatten().map(|argument| quoted(argument)).collect::<Vec<_>>());
        match &request.executable {
            Some(executable) => {
                page.field("program", &executable.path.display().to_string());
                page.field("its SHA-256", &executable.sha256);
            }
            None => page.field("program", "not found, or its path leads through /proc"),
        }
    }
    if let Some(folder) = &request.cwd {
        page.field("folder", &bordered(folder));
    }
    if let Some(folder) = &request.workspace_folder {
        page.field("valid in", &format!("{} only, as in another folder the command would start or read other files", bordered(folder)));
    }
    if let Some(tools) = &request.generated {
        generated::add(&mut page, tools, &request.findings);
    }
    given_values(&mut page, request);
    filters(&mut page, request);
    page.field("confirm", asks(request.confirm));
    reads(&mut page, &request.reads);
    if request.allow_insecure_http {
        page.noted(Tone::Warning, "plain http:// to another machine is allowed: anybody on the network can read and change messages");
    }
    for name in &request.loaders {
        page.noted(
            Tone::Bad,
            &format!("{name} can make a program load or run code that the command does not name: its value is shown in full"),
        );
    }
    for name in &request.hidden_in_code {
        page.noted(Tone::Bad, &format!("{name} is named in the code that the arguments run: {HIDDEN_IN_CODE}"));
    }
    for name in &request.redirectors {
        page.noted(Tone::Bad, &format!("{name} can send traffic to another machine or weaken its encryption: check its value"));
    }
    if has_unseen(request) {
        page.noted(Tone::Bad, "this contains invisible characters, which are shown as numbers");
    }
    warning(&mut page, request, false);
    page.field("digest", &request.digest);
    page.text
}

/// Shows why a person is asked again, and which agent has added the server.
fn reasons(page: &mut Page, request: &CommandRequest) {
    if let Some(lapsed) = &request.lapsed {
        page.field("asked again", lapsed);
    }
    if let Some(Added { by, display_name }) = &request.added {
        page.field("added by", &format!("{by}, which calls it \"{display_name}\""));
    }
}

fn reads(page: &mut Page, names: &[String]) {
    if !names.is_empty() {
        let told = "of these, tools without annotations that say what they do are called without a question";
        page.field("reads", &format!("{}: {told}", joined(names)));
    }
}

/// Shows the request's warning, if its place is here. This function is called at the beginning and at the end of the page. If the entry
/// says that there is no box, the warning comes first, and otherwise last.
fn warning(page: &mut Page, request: &CommandRequest, is_first: bool) {
    if request.is_without_box == is_first {
        page.noted(if is_first { Tone::Bad } else { Tone::Warning }, request.warning);
    }
}

/// The Braille sign without dots, which looks like a blank. Texts in Braille need this sign, so it is not removed anywhere.
const BLANK: char = '\u{2800}';

/// Returns whether a text of the request contains invisible characters.
fn has_unseen(request: &CommandRequest) -> bool {
    let all = [&request.command, &request.url, &request.unicode_host, &request.cwd, &request.workspace_folder]
        .into_iter()
        .flatten()
        .chain(request.args.iter().flatten())
        .chain(request.in_box.iter().flat_map(|in_box| &in_box.allows).chain(&request.changeable_by))
        .chain(request.environment.iter().chain(&request.input_defaults).chain(&request.input_descriptions));
    request.has_invisible_code || all.into_iter().any(|text| has_invisible(text) || text.contains(BLANK))
}

/// Shows the variables, headers, inputs, OAuth settings and roots that a server gets.
fn given_values(page: &mut Page, request: &CommandRequest) {
    if let Some(in_box) = &request.in_box {
        page.field("box", in_box.base.as_str());
        page.list("", &in_box.allows);
    }
    page.list("other servers", &request.changeable_by);
    if request.command.is_some() && request.environment.is_empty() && request.env_file.is_none() {
        page.field("environment", "none of your variables except PATH, HOME and a few like them");
    }
    page.list("environment", &assigned(&request.environment));
    if let Some(file) = &request.env_file {
        page.field("variables", &bordered(file));
    }
    page.list("headers", &assigned(&request.headers));
    page.list("input default", &assigned(&request.input_defaults));
    page.list("asks you for", &assigned(&request.input_descriptions));
    page.list("OAuth", request.oauth.as_deref().unwrap_or_default());
    page.list("MCP roots", &request.roots);
    if request.pin_executable {
        page.field("pinned", "if the file of the program changes, the server needs approval again");
    }
    if request.pin_values {
        page.field("pinned", "if a value of the environment or headers changes, the server needs approval again");
    }
}

/// Shows the filters of the config.
fn filters(page: &mut Page, request: &CommandRequest) {
    let allowed = [("only tools", &request.allow_tools), ("may read", &request.allow_resources), ("only prompts", &request.allow_prompts)];
    for (name, names) in allowed {
        if let Some(names) = names {
            page.field(name, if names.is_empty() { "none".to_owned() } else { joined(names) }.as_str());
        }
    }
    let denied =
        [("never tools", &request.deny_tools), ("may not read", &request.deny_resources), ("never prompts", &request.deny_prompts)];
    for (name, names) in denied {
        if !names.is_empty() {
            page.field(name, &joined(names));
        }
    }
}

fn asks(confirm: Confirm) -> &'static str {
    match confirm {
        Confirm::Never => "never asks: every tool is called without a question, including tools that write",
        Confirm::Writes => "asks a person before each call of a tool that is not read-only",
        Confirm::Always => "asks a person before every call",
    }
}

/// Formats lines `NAME=value`. Puts a value in quotes if it contains white space.
fn assigned(lines: &[String]) -> Vec<String> {
    let assignment = |line: &String| match line.split_once('=') {
        Some((name, value)) => format!("{name}={}", bordered(value)),
        None => line.clone(),
    };
    lines.iter().map(assignment).collect()
}

/// Puts a value in quotes if it contains white space, so that its start and end are visible.
pub(crate) fn bordered(value: &str) -> String {
    if value.contains(char::is_whitespace) { format!("{value:?}") } else { value.to_owned() }
}

/// Formats an argument of a command. Puts the argument in quotes unless it consists only of plain characters.
pub(crate) fn quoted(argument: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "@%+=:,./_-${}".contains(character);
    if !argument.is_empty() && argument.chars().all(plain) { argument.to_owned() } else { format!("{argument:?}") }
}

#[cfg(test)]
mod tests;
