//! Parses the `${…}` placeholders in a config's values without replacing them.

use std::fmt::{self, Debug, Formatter};

use crate::redact::is_secret_segment;
use crate::text::displayed_within;

const POSSIBLE: &str = "use ${VAR}, ${env:VAR}, ${VAR:-default}, ${input:id}, ${workspaceFolder} or ${userHome}";
/// Maximum number of characters of a name in a message.
const MAX_NAME_CHARS: usize = 40;
/// Variables of VS Code that have no meaning outside of an editor. An environment variable with such a name must be written as `${env:…}`.
const EDITOR_VARIABLES: [&str; 18] = [
    "workspaceFolderBasename",
    "file",
    "fileWorkspaceFolder",
    "fileWorkspaceFolderBasename",
    "relativeFile",
    "relativeFileDirname",
    "fileBasename",
    "fileBasenameNoExtension",
    "fileExtname",
    "fileDirname",
    "fileDirnameBasename",
    "cwd",
    "execPath",
    "defaultBuildTask",
    "pathSeparator",
    "lineNumber",
    "columnNumber",
    "selectedText",
];

/// A text with its placeholders parsed.
///
/// `${VAR}` and `${env:VAR}` are environment variables. `${VAR:-default}` has a default, which is used if the variable is unset or empty.
/// `${input:id}` is a value that a person is asked for. `${workspaceFolder}` and `${userHome}` are folders. `\${…}` means the same as
/// `${…}`, and a `${` without a closing brace is literal text.
///
/// ```
/// use hyperlight_mcp::config::{Part, Placeholder, Template};
/// let template = Template::parse("Bearer ${env:TOKEN:-none}").unwrap();
/// let variable = Placeholder::Variable { name: "TOKEN", default: Some("none") };
/// assert_eq!(template.parts()[1], Part::Placeholder { source: "${env:TOKEN:-none}", meaning: variable });
/// assert!(Template::parse("${command:pick}").is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Template<'t> {
    parts: Vec<Part<'t>>,
}

/// A piece of a [`Template`].
// `Debug` is not derived, as literal text may be a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part<'t> {
    Literal(&'t str),
    /// A placeholder. `source` is its text in the config, including a backslash before it.
    Placeholder {
        source: &'t str,
        meaning: Placeholder<'t>,
    },
}

/// The meaning of a `${…}` placeholder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Placeholder<'t> {
    Variable { name: &'t str, default: Option<&'t str> },
    Input(&'t str),
    WorkspaceFolder,
    UserHome,
}

/// The placeholders that may be in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Only `${workspaceFolder}` and `${userHome}`, for fields that other people or processes can see. Such a field must not contain a
    /// secret.
    Folders,
    All,
}

impl<'t> Template<'t> {
    /// Parses the placeholders of a text.
    ///
    /// # Errors
    /// A sentence for each invalid placeholder.
    pub fn parse(text: &'t str) -> Result<Self, Vec<String>> {
        let (template, problems) = Self::read(text);
        if problems.is_empty() { Ok(template) } else { Err(problems) }
    }

    /// Parses the placeholders of a text that nothing uses yet. An invalid placeholder counts as a variable without a value.
    pub(super) fn lenient(text: &'t str) -> Self {
        Self::read(text).0
    }

    /// Returns the parts of a text, and a sentence for each invalid placeholder.
    fn read(text: &'t str) -> (Self, Vec<String>) {
        let mut parts = Vec::new();
        let mut problems = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else { break };
            let end = start + length + 1;
            // A backslash before a placeholder prevents other programs from replacing it first. The backslash is not part of the literal
            // text.
            let before = rest[..start].strip_suffix('\\').unwrap_or(&rest[..start]);
            if !before.is_empty() {
                parts.push(Part::Literal(before));
            }
            let meaning = placeholder(&rest[start + 2..end - 1]).unwrap_or_else(|problem| {
                problems.push(problem);
                // No variable has an empty name.
                Placeholder::Variable { name: "", default: None }
            });
            parts.push(Part::Placeholder { source: &rest[before.len()..end], meaning });
            rest = &rest[end..];
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest));
        }
        (Self { parts }, problems)
    }

    /// Returns the parts in the order of the text. Together, they are the whole text.
    #[must_use]
    pub fn parts(&self) -> &[Part<'t>] {
        &self.parts
    }

    pub(super) fn placeholders(&self) -> impl Iterator<Item = Placeholder<'t>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Placeholder { meaning, .. } => Some(*meaning),
        })
    }

    /// Returns the ids of the inputs in the text.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &'t str> {
        self.placeholders().filter_map(|placeholder| if let Placeholder::Input(id) = placeholder { Some(id) } else { None })
    }

    /// Fails if the text contains a placeholder that `allowed` does not permit.
    pub(super) fn check(&self, allowed: Allowed) -> Result<(), Vec<String>> {
        let refused = |placeholder: Placeholder| match placeholder {
            Placeholder::Variable { name, .. } => Some(format!("${{{}}}", shown_name(name))),
            Placeholder::Input(id) => Some(format!("${{input:{}}}", displayed_within(id, MAX_NAME_CHARS))),
            Placeholder::WorkspaceFolder | Placeholder::UserHome => None,
        };
        let problem = |shown: String| {
            format!("{shown} is not replaced here; ${{workspaceFolder}} and ${{userHome}} are. Pass it in env (or headers)")
        };
        let problems: Vec<_> = match allowed {
            Allowed::All => Vec::new(),
            Allowed::Folders => self.placeholders().filter_map(refused).map(problem).collect(),
        };
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

impl Debug for Template<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(&self.parts).finish()
    }
}

impl Debug for Part<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => write!(formatter, "Literal({} bytes)", text.len()),
            Self::Placeholder { meaning, .. } => meaning.fmt(formatter),
        }
    }
}

impl Debug for Placeholder<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name, default } => {
                write!(formatter, "Variable({name}{})", if default.is_some() { ", with a default" } else { "" })
            }
            Self::Input(id) => write!(formatter, "Input({id})"),
            Self::WorkspaceFolder => formatter.write_str("WorkspaceFolder"),
            Self::UserHome => formatter.write_str("UserHome"),
        }
    }
}

/// Parses the text between the braces.
fn placeholder(inside: &str) -> Result<Placeholder<'_>, String> {
    if let Some(id) = inside.strip_prefix("input:") {
        return if id.is_empty() { Err(format!("${{input:}} has no input id; {POSSIBLE}")) } else { Ok(Placeholder::Input(id)) };
    }
    let (subject, default) = inside.split_once(":-").map_or((inside, None), |(subject, default)| (subject, Some(default)));
    let folder = match subject {
        "workspaceFolder" => Some(Placeholder::WorkspaceFolder),
        "userHome" => Some(Placeholder::UserHome),
        _ => None,
    };
    // The rest of `inside` may be part of a secret, so these messages show only the name or the prefix.
    match (folder, default) {
        (Some(folder), None) => return Ok(folder),
        (Some(_), Some(_)) => return Err(format!("${{{subject}}} always has a value, so it cannot have a default")),
        // The first closing brace would end the placeholder and change the text silently, so this is an error.
        (None, Some(default)) if default.contains("${") => {
            return Err(format!("the default of ${{{}:-…}} is literal text and cannot contain another placeholder", shown_name(subject)));
        }
        (None, _) => {}
    }
    let name = subject.strip_prefix("env:").unwrap_or(subject);
    if let Some((prefix, _)) = name.split_once(':') {
        return Err(format!("${{{}:…}} is not known; {POSSIBLE}", shown_name(prefix)));
    }
    if name == subject && EDITOR_VARIABLES.contains(&name) {
        return Err(format!("${{{name}}} is an editor's variable, which has no value here; {POSSIBLE}"));
    }
    if !is_variable_name(name) {
        return Err(format!(
            "${{{}}} is not known: a variable's name consists of letters, digits and _, and does not start with a digit; {POSSIBLE}",
            shown_name(name)
        ));
    }
    Ok(Placeholder::Variable { name, default })
}

fn is_variable_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    first && name.chars().all(|next| next.is_ascii_alphanumeric() || next == '_')
}

/// Returns the part of a text that looks like a name, for a message. The text may be a secret that was written in the wrong place, so nothing
/// is shown of a name that looks like one.
pub(super) fn shown_name(text: &str) -> String {
    let is_of_name = |next: &char| next.is_ascii_alphanumeric() || *next == '_';
    let name: String = text.chars().take_while(is_of_name).take(MAX_NAME_CHARS).collect();
    match name.len() == text.len() {
        _ if is_secret_segment(text) || is_secret_segment(&name) => "…".to_owned(),
        true => name,
        false => format!("{name}…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meanings(text: &str) -> Vec<Placeholder<'_>> {
        Template::parse(text).unwrap().placeholders().collect()
    }

    fn problem(text: &str) -> String {
        Template::parse(text).unwrap_err().join("; ")
    }

    #[test]
    fn each_form_has_its_meaning_and_a_backslash_changes_nothing() {
        let plain = Placeholder::Variable { name: "A", default: None };
        assert_eq!(meanings("x${A}y${env:A}z\\${A}"), [plain, plain, plain]);
        assert_eq!(meanings("${input:token}"), [Placeholder::Input("token")]);
        assert_eq!(meanings("${workspaceFolder}${userHome}"), [Placeholder::WorkspaceFolder, Placeholder::UserHome]);
        assert_eq!(meanings("${env:userHome}"), [Placeholder::Variable { name: "userHome", default: None }]);
    }

    #[test]
    fn a_default_is_literal_text_up_to_the_brace() {
        assert_eq!(meanings("${A:-b:-c}"), [Placeholder::Variable { name: "A", default: Some("b:-c") }]);
        assert_eq!(meanings("${env:A:-}"), [Placeholder::Variable { name: "A", default: Some("") }]);
        assert!(problem("${A:-${B}}").contains("cannot contain another placeholder"));
    }

    #[test]
    fn what_is_never_closed_is_literal_text() {
        assert_eq!(Template::parse("a${B").unwrap().parts(), [Part::Literal("a${B")]);
        assert_eq!(Template::parse("$A $ {B} }").unwrap().parts(), [Part::Literal("$A $ {B} }")]);
    }

    #[test]
    fn an_unknown_placeholder_is_named_with_what_is_possible() {
        for (text, shown) in
            [("${command:pick}", "${command:…}"), ("${file}", "${file}"), ("${}", "${}"), ("${1A}", "${1A}"), ("${A B}", "${A…}")]
        {
            let problem = problem(text);
            assert!(problem.contains(shown) && problem.contains("${input:id}"), "{problem}");
        }
        assert!(problem("${userHome:-x}").contains("cannot have a default"));
        assert_eq!(Template::parse("${} ${file}").unwrap_err().len(), 2);
    }

    #[test]
    fn nothing_that_may_be_secret_is_in_a_problem_or_in_debug_output() {
        assert!(!problem("${config:s3cret}").contains("s3cret"));
        assert!(!problem("${a b:-s3cret}").contains("s3cret"));
        let token = "sk_live_51H8xQ2eZvKYlo2C9f3Jd7Rq4";
        for text in ["${TOKEN-sk-ant-api03-Qx7}", "${sk-live-ant-api03-Qx7}", "${sk-live-ant-api03-Qx7:-x}", "${TOKEN sk-ant-api03-Qx7}"] {
            let problem = problem(text);
            assert!(!problem.contains("Qx7") && !problem.contains("api03"), "{problem}");
        }
        let check = Template::parse(&format!("${{{token}}}")).unwrap().check(Allowed::Folders).unwrap_err().join(" ");
        assert!(!check.contains("51H8x"), "{check}");
        assert!(!format!("{:?}", Template::parse("s3cret${A:-s3cret}").unwrap()).contains("s3cret"));
    }

    #[test]
    fn only_folders_are_allowed_where_secrets_must_not_be() {
        let check = |text| Template::parse(text).unwrap().check(Allowed::Folders);
        assert!(check("${userHome}/x").is_ok());
        assert!(check("${A}").unwrap_err()[0].contains("${A} is not replaced here; ${workspaceFolder} and ${userHome} are"));
        assert_eq!(check("${A}${input:b}").unwrap_err().len(), 2);
    }
}
