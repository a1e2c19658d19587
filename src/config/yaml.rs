//! Reads a config in YAML as the same tree as a config in JSON. Aliases and tags are refused: a short text with aliases can expand to an
//! endless one, and no key of a config needs them.

use std::collections::HashSet;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::tree::{Entry, MAX_DEPTH, Node, Tree, Value, is_ours};
use crate::error::{Error, Result};
use crate::text::{Position, Problem, displayed};

/// Maximum depth of all values, also of those that are skipped. The parser of JSON has the same limit.
const MAX_NESTING: usize = 512;
const ALIAS: &str = "aliases are not supported in a config: write the value in full";
const TAG: &str = "tags are not supported in a config";
const KEY: &str = "a key must be a text";

/// Returns whether a config with this file name is YAML.
///
/// ```
/// assert!(hyperlight_mcp::config::is_yaml("/home/ada/mcp.yaml") && !hyperlight_mcp::config::is_yaml("mcp.json"));
/// ```
#[must_use]
pub fn is_yaml(file: &str) -> bool {
    let end = file.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    matches!(end.as_deref(), Some("yaml" | "yml"))
}

/// Parses a text of one document.
///
/// # Errors
/// `ERR_CONFIG_SYNTAX` with line and column.
pub(super) fn from_text(text: &str, file: &str) -> Result<Tree> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder { parser: Parser::new_from_str(text), path: String::new(), depth: 0, duplicates: Vec::new() };
    let root = builder.document().map_err(|Failure { position, problem }| Error::ConfigSyntax {
        file: file.into(),
        line: position.line,
        column: position.column,
        problem: problem.into(),
    })?;
    Ok(Tree { root, duplicates: builder.duplicates })
}

/// A text that cannot be read, with its place.
struct Failure {
    position: Position,
    problem: String,
}

impl Failure {
    fn at(place: &Marker, problem: impl Into<String>) -> Self {
        Self { position: position_of(place), problem: problem.into() }
    }
}

impl From<ScanError> for Failure {
    fn from(error: ScanError) -> Self {
        Self::at(error.marker(), error.info())
    }
}

/// Returns the position of a marker. The parser counts lines from 1 and columns from 0.
fn position_of(place: &Marker) -> Position {
    Position { line: place.line(), column: place.col() + 1 }
}

struct Builder<'t> {
    parser: Parser<'t, StrInput<'t>>,
    path: String,
    depth: usize,
    duplicates: Vec<Problem>,
}

impl<'t> Builder<'t> {
    /// Returns the next event. After the end of the text, returns the event for the end of the stream.
    fn next(&mut self) -> std::result::Result<(Event<'t>, Span), Failure> {
        match self.parser.next_event() {
            Some(event) => Ok(event?),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> std::result::Result<Node, Failure> {
        let mut root = None;
        loop {
            let (event, place) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root.unwrap_or(Node { position: None, value: Value::Null })),
                Event::DocumentStart(_) if root.is_some() => return Err(Failure::at(&place.start, "a config is one document")),
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                value => root = Some(self.node(value, &place)?),
            }
        }
    }

    fn node(&mut self, event: Event<'_>, place: &Span) -> std::result::Result<Node, Failure> {
        let value = match event {
            Event::Scalar(text, style, _, tag) => scalar(&text, style, tag.as_deref()),
            Event::Alias(_) => return Err(Failure::at(&place.start, ALIAS)),
            Event::SequenceStart(_, None) | Event::MappingStart(_, None) if self.depth > MAX_DEPTH => {
                self.skip(event, place)?;
                Some(Value::Foreign)
            }
            Event::SequenceStart(_, None) => Some(Value::List(self.nested(Self::items)?)),
            Event::MappingStart(_, None) => Some(Value::Object(self.nested(Self::entries)?)),
            _ => None,
        };
        let value = value.ok_or_else(|| Failure::at(&place.start, TAG))?;
        Ok(Node { position: Some(position_of(&place.start)), value })
    }

    fn nested<T>(&mut self, build: fn(&mut Self) -> std::result::Result<T, Failure>) -> std::result::Result<T, Failure> {
        self.depth += 1;
        let built = build(self)?;
        self.depth -= 1;
        Ok(built)
    }

    /// Reads the rest of a value that this program does not use. The value may be anything that YAML permits. This is a loop, because a
    /// person's other program decides how deep the value is, and the stack of this thread may be small.
    fn skip(&mut self, first: Event<'_>, place: &Span) -> std::result::Result<(), Failure> {
        let (mut depth, mut next) = (0, (first, *place));
        loop {
            match &next.0 {
                Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
                Event::SequenceEnd | Event::MappingEnd => depth -= 1,
                Event::StreamEnd => return Ok(()),
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
            if self.depth + depth > MAX_NESTING {
                return Err(Failure::at(&next.1.start, "the values are nested too deeply"));
            }
            next = self.next()?;
        }
    }

    fn items(&mut self) -> std::result::Result<Vec<Node>, Failure> {
        let mut items = Vec::new();
        loop {
            let (event, place) = self.next()?;
            if matches!(event, Event::SequenceEnd | Event::StreamEnd) {
                return Ok(items);
            }
            let segment = format!("[{}]", items.len());
            items.push(self.within(&segment, event, &place)?);
        }
    }

    fn entries(&mut self) -> std::result::Result<Vec<Entry>, Failure> {
        let (mut entries, mut seen) = (Vec::new(), HashSet::new());
        loop {
            let (event, place) = self.next()?;
            let name = match event {
                Event::MappingEnd | Event::StreamEnd => return Ok(entries),
                Event::Scalar(name, ..) => name.into_owned(),
                _ => return Err(Failure::at(&place.start, KEY)),
            };
            let position = Some(position_of(&place.start));
            let dot = if self.path.is_empty() { "" } else { "." };
            let segment = format!("{dot}{}", displayed(&name));
            if !seen.insert(name.clone()) {
                let field = format!("{}{segment}", self.path);
                self.duplicates.push(Problem::new(field, position, "this key is used twice in its object"));
            }
            let (event, place) = self.next()?;
            let node = if is_ours(&name, &self.path, self.depth - 1) {
                self.within(&segment, event, &place)?
            } else {
                self.skip(event, &place)?;
                Node { position: None, value: Value::Foreign }
            };
            entries.push(Entry { name, position, node });
        }
    }

    fn within(&mut self, segment: &str, event: Event<'_>, place: &Span) -> std::result::Result<Node, Failure> {
        let length = self.path.len();
        self.path.push_str(segment);
        let node = self.node(event, place);
        self.path.truncate(length);
        node
    }
}

/// Returns the value of a scalar by the core schema of YAML 1.2. Numbers have the forms of JSON, and all other words are texts. `None` if it
/// has a tag other than `!!str`.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Option<Value> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => return Some(Value::Text(text.to_owned())),
        Some(_) => return None,
        None => {}
    }
    if style != ScalarStyle::Plain {
        return Some(Value::Text(text.to_owned()));
    }
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Boolean(true),
        "false" | "False" | "FALSE" => Value::Boolean(false),
        number if serde_json::from_str::<serde_json::Number>(number).is_ok() => Value::Number(number.to_owned()),
        text => Value::Text(text.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{Transport, parse_text};

    fn problem(text: &str) -> String {
        let error = parse_text(text, "c.yaml", 9).unwrap_err();
        format!("{} {}", error.code(), error.redacted(&crate::redact::Redactor::new(None, None)))
    }

    #[test]
    fn a_config_in_yaml_is_the_same_config() {
        let text = "# ours\nmcp:\n  weather:\n    command: npx\n    args: [-y, 'weather@1.2', 5.0]\n    env:\n      A: \"${A}\"\n      B: 7\n      C: null\n    timeoutMs: 5000\n    enabled: false\nmetadata:\n  author: &me ada\n  other: *me\n  mcp:\n    web: { url: https://example.com/mcp }\n";
        let config = parse_text(&text.replace(", 5.0", ""), "c.yml", 9).unwrap();
        assert!(config.warnings.is_empty() && config.invalid.is_empty(), "{:?} {:?}", config.warnings, config.invalid);
        let [weather, web] = &config.servers[..] else { panic!("{:?}", config.servers) };
        let Transport::Stdio { command, arguments, environment, removed_environment, .. } = &weather.transport else { panic!() };
        assert_eq!((command.as_str(), arguments.join(" ")), ("npx", "-y weather@1.2".to_owned()));
        assert_eq!((environment.len(), removed_environment.len(), weather.call_timeout_ms, weather.disabled), (2, 1, Some(5000), true));
        assert_eq!(web.origin.field(), "metadata.mcp.web");
        // The number in the error is at its position in the text.
        let config = parse_text(text, "c.yml", 9).unwrap();
        let error = config.invalid[0].error.clone().redacted(&crate::redact::Redactor::new(None, None)).to_string();
        assert_eq!(error, "c.yml:5:31: mcp.weather.args[2]: must be a string");
        assert!(parse_text("", "c.yaml", 9).unwrap().servers.is_empty());
    }

    #[test]
    fn what_is_no_config_is_an_error_with_its_place() {
        for (text, told) in [
            ("servers:\n  a: [", "ERR_CONFIG_SYNTAX c.yaml:"),
            ("servers:\n  a: &x { command: x }\n  b: *x\n", "ERR_CONFIG_SYNTAX c.yaml:3:6: aliases are not supported"),
            ("servers: !!map { a: { command: x } }", "tags are not supported"),
            ("servers:\n  ? [a]\n  : { command: x }", "a key must be a text"),
            ("servers: {}\n---\nservers: {}", "a config is one document"),
            ("servers:\n  a: { command: x }\n  a: { command: y }\n", "ERR_CONFIG_INVALID c.yaml:3:3: servers.a: this key is used twice"),
            ("- a", "the config: must be an object"),
        ] {
            let problem = problem(text);
            assert!(problem.contains(told), "{text:?}: {problem}");
        }
        assert!(problem(&format!("servers: {}", "[".repeat(600))).contains("ERR_CONFIG_SYNTAX"));
        assert!(problem(&format!("servers: {}{}", "[".repeat(600), "]".repeat(600))).contains("ERR_CONFIG_SYNTAX"));
        assert!(problem(&format!("{}x", "- ".repeat(600))).contains("ERR_CONFIG_SYNTAX"));
        assert!(
            problem(&format!("notes:\n  {}x", "- ".repeat(600)))
                .contains("ERR_CONFIG_SYNTAX c.yaml:2:1025: the values are nested too deeply")
        );
    }

    #[test]
    fn a_value_that_is_not_read_may_be_anything_that_yaml_permits() {
        let text = "notes: &all\n  ? [odd]\n  : !!tag x\n  more: [*all, { a: 1, a: 2 }]\nservers:\n  a: { command: x }\n";
        let config = parse_text(text, "c.yaml", 9).unwrap();
        assert_eq!((config.servers.len(), config.invalid.len()), (1, 0));
    }

    #[test]
    fn a_deep_value_needs_no_deep_stack() {
        let deep = format!("{}x", "- ".repeat(500));
        let text = format!("notes:\n  {deep}\nlimits:\n  {deep}\nservers:\n  a: {{ command: x }}\n");
        let parsed = std::thread::Builder::new().stack_size(1 << 20).spawn(move || parse_text(&text, "c.yaml", 9)).unwrap().join().unwrap();
        assert!(parsed.unwrap_err().code() == "ERR_CONFIG_INVALID");
    }
}
