//! Declares tools in TypeScript. A model reads the declarations before it writes code.
//!
//! Each server has one `declare module "host:mcp-<server>"`. Every value that a schema allows is assignable to the declared type. A type
//! is wider than its schema if TypeScript cannot express a keyword (ranges, patterns, conditions), or if the schema is nested too deeply.
//! If the keyword is short, a comment states it.
//!
//! Objects may have properties that the schema does not mention, as in TypeScript. TypeScript only refuses undeclared properties in an
//! object literal. This check finds a misspelt argument. If all properties of a tool's input are optional, TypeScript refuses a non-empty
//! object that has none of them. Other objects with only optional properties get an index signature, so TypeScript accepts any object for
//! them.
//!
//! No schema is fetched from elsewhere. The text of a schema is escaped, so that it cannot end the comment or string literal that
//! contains it.

mod builtin;
mod convert;
mod document;
mod finish;
mod kinds;
mod module;
mod notes;
mod parts;
mod print;
mod signature;
mod text;
mod types;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_json::Value as Json;

pub use self::builtin::{AgentFunction, declare_agent_module, declare_mcp};
pub(in crate::catalog) use self::parts::{Parameter, parts};
pub use self::signature::signature;

use self::convert::{Direction, convert};
use self::finish::finish;
use self::kinds::Kinds;
use self::module::Module;
use self::print::Printer;
use self::text::comment;
pub(in crate::catalog) use self::text::{key, quoted};
use self::types::{Definition, Type};
use super::{Manifest, SeenResults, Tool, Wording};
use crate::limits::MAX_WHOLE_DESCRIPTION_CHARS;

/// The way in which a failed call reports its error (the sandbox option `toolErrors`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Failures {
    /// The call returns `{ error, code? }`, and the declaration includes this type.
    #[default]
    Returned,
    /// The call throws an `Error`. The declaration does not mention errors.
    Thrown,
}

/// Settings for declarations.
#[derive(Debug, Clone)]
pub struct DeclarationStyle {
    /// Functions that sanitise the servers' texts.
    pub wording: Wording,
    pub failures: Failures,
    /// What was seen of the results of the server's tools. It is used for tools whose server declares no results.
    pub seen: SeenResults,
}

const INDENT: &str = "  ";
const TOOL_ERROR: &str = "  /** A failed call. `code` is missing if the tool itself reported the error. */
  export interface ToolError { error: string; code?: string }
";
/// Comment about results without structured content. The bridge returns such results although they do not fit the output type.
const UNSTRUCTURED: &str = "  // If the server sends no structured content, the result is text or null, not the output type.\n";
/// Types that `bridge::shape` returns: one text or its parsed JSON, an image, a resource, a link, a list of several of these, or nothing.
const TOOL_OUTPUT: &str = "  /** Text or parsed JSON, bytes, a resource, a link; a list of several; null for nothing. */
  export type ToolOutput = ToolContent | ToolContent[] | number | boolean | null;
  export type ToolContent = string | { mimeType: string; data: Uint8Array } | { uri: string; mimeType?: string; text: string } \
| { uri: string; mimeType?: string; data: Uint8Array } | { uri: string; name: string; [key: string]: unknown } | Record<string, unknown> \
| unknown[];
";

/// Declares a server's module: `declare module "host:mcp-<server>" { … }`. The declaration compiles alone, and also together with other
/// modules.
///
/// ```
/// use hyperlight_mcp::catalog::{DeclarationStyle, Failures, Manifest, Tool, Wording, declare_server};
/// use hyperlight_mcp::text::{sanitise_line, sanitise_text};
/// use serde_json::json;
///
/// let input_schema = json!({ "type": "object", "properties": { "location": { "type": "string" } }, "required": ["location"] });
/// let tool = Tool { name: "get-forecast".into(), title: None, description: Some("The weather.".into()), input_schema,
///     output_schema: None, annotations: None, execution: None, meta: None };
/// let manifest = Manifest { tools: vec![tool], ..Manifest::default() };
/// let style = DeclarationStyle {
///     wording: Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 },
///     failures: Failures::Returned,
///     seen: Default::default(),
/// };
/// let text = declare_server("weather", &manifest, &style);
/// assert!(text.contains("export interface GetForecastInput { location: string }"), "{text}");
/// assert!(text.contains("export function get_forecast(input: GetForecastInput): ToolOutput | ToolError;"), "{text}");
/// ```
#[must_use]
pub fn declare_server(server: &str, manifest: &Manifest, style: &DeclarationStyle) -> String {
    declare(server, manifest, style, None)
}

/// Declares a server's module with only one function. `tool` is the raw name of its tool. The declaration contains the types that this
/// function needs, and no default export. Returns `None` if there is no such tool.
///
/// ```
/// # use hyperlight_mcp::catalog::{DeclarationStyle, Failures, Manifest, Wording, declare_tool};
/// # use hyperlight_mcp::text::{sanitise_line, sanitise_text};
/// # let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 };
/// let style = DeclarationStyle { wording, failures: Failures::Thrown, seen: Default::default() };
/// assert_eq!(declare_tool("weather", &Manifest::default(), "get-forecast", &style), None);
/// ```
#[must_use]
pub fn declare_tool(server: &str, manifest: &Manifest, tool: &str, style: &DeclarationStyle) -> Option<String> {
    manifest.tool(tool).map(|_| declare(server, manifest, style, Some(tool)))
}

fn declare(server: &str, manifest: &Manifest, style: &DeclarationStyle, only: Option<&str>) -> String {
    let identifiers = manifest.identifiers();
    let names = manifest.type_names();
    // If only one function is declared, all other tools are skipped, because there may be thousands.
    let tools: Vec<&Tool> = match only {
        Some(name) => manifest.tool(name).into_iter().collect(),
        None => manifest.distinct_tools().collect(),
    };
    let mut module = Module::new(names.name_allocator());
    let mut functions = String::new();
    let (mut definitions, mut printed) = (String::new(), 0);
    let (mut structured, mut unstructured) = (false, false);
    for (tool, (input_name, output_name)) in tools.into_iter().filter_map(|tool| Some((tool, names.of(&tool.name)?.clone()))) {
        let input = input_types(tool, &input_name, style);
        let optional = accepts_nothing(&input[0].value, &input, 0);
        module.add(&input);
        let output = tool.output_schema.as_ref().map(|schema| types_of(schema, &output_name, Kinds::ALL, Direction::Output, style));
        structured |= output.is_some();
        let seen = style.seen.of(tool);
        unstructured |= output.is_none() && seen.is_none();
        if let Some(seen) = seen {
            definitions.push_str(&seen.definition(&output_name, INDENT));
        }
        let output = match output {
            None if seen.is_none() => "ToolOutput".to_owned(),
            None => output_name,
            Some(output) => {
                module.add(&output);
                output_name
            }
        };
        let printer = Printer { definitions: &module.definitions };
        for definition in &module.definitions[printed..] {
            definitions.push_str(&printer.definition(definition, INDENT));
        }
        printed = module.definitions.len();
        let error = if style.failures == Failures::Returned { " | ToolError" } else { "" };
        let (identifier, mark) = (&identifiers[&tool.name], if optional { "?" } else { "" });
        functions.push_str(&comment(&description(tool, style, &format!("{server}.{identifier}")), INDENT));
        // `write!` to a `String` cannot fail.
        let _ = writeln!(functions, "{INDENT}export function {identifier}(input{mark}: {input_name}): {output}{error};");
    }
    let mut text = manifest.instructions.as_deref().map(|text| comment(&purpose(text, style), "")).unwrap_or_default();
    let _ = write!(text, "declare module {} {{\n{functions}{definitions}", quoted(&module_specifier(server)));
    for (needed, shared) in [(structured, UNSTRUCTURED), (unstructured, TOOL_OUTPUT), (style.failures == Failures::Returned, TOOL_ERROR)] {
        text.push_str(if needed { shared } else { "" });
    }
    if only.is_none() {
        let all = module.name("all");
        text.push_str(&builtin::default_export(&module_specifier(server), &all));
    }
    text + "}\n"
}

fn module_specifier(server: &str) -> String {
    format!("host:mcp-{server}")
}

fn types_of(schema: &Json, name: &str, kinds: Kinds, direction: Direction, style: &DeclarationStyle) -> Vec<Definition> {
    finish(convert(schema, name, kinds, direction, &style.wording))
}

/// Returns the types of a tool's input. The input gets no index signature, so that TypeScript finds a misspelt argument even if all
/// properties are optional.
fn input_types(tool: &Tool, name: &str, style: &DeclarationStyle) -> Vec<Definition> {
    let mut types = types_of(&tool.input_schema, name, Kinds::OBJECT, Direction::Input, style);
    if let Type::Object(input) = &mut types[0].value {
        input.open = false;
    }
    types
}

/// Returns whether a type accepts `{}`. A call without an argument has this value as its input.
fn accepts_nothing(value: &Type, definitions: &[Definition], depth: usize) -> bool {
    const MAX_DEPTH: usize = 16;
    let within = |member: &Type| accepts_nothing(member, definitions, depth + 1);
    match value {
        _ if depth > MAX_DEPTH => true,
        Type::Unknown => true,
        Type::Object(object) => object.properties.iter().all(|property| property.optional),
        Type::Union(members) => members.iter().any(within),
        Type::Intersection(members) => members.iter().all(within),
        Type::Named(id) => within(&definitions[*id].value),
        _ => false,
    }
}

fn purpose(text: &str, style: &DeclarationStyle) -> String {
    const ENOUGH: usize = 2_000;
    // The marks of a Markdown heading are skipped.
    let text = text[..text.floor_char_boundary(ENOUGH)].trim_start_matches(['#', ' ', '\n']);
    style.wording.purpose(text)
}

/// Returns a tool's description with its annotations. If it is cut, the end says how code reads the whole of it. `name` is the name for
/// `describe`.
fn description(tool: &Tool, style: &DeclarationStyle, name: &str) -> String {
    let whole = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    let mut text = notes::sanitised(&style.wording, whole);
    if text.ends_with('…') && !whole.trim_end().ends_with('…') && style.wording.max_chars < MAX_WHOLE_DESCRIPTION_CHARS {
        let _ = write!(text, "\n[cut: describe({}) of host:mcp has all of it]", quoted(name));
    }
    let hints = notes::hints(tool.annotations.as_ref());
    if hints.is_empty() {
        return text;
    }
    let separator = match text.chars().next_back() {
        _ if text.contains('\n') => "\n",
        Some(last) if last.is_alphanumeric() || last == ')' => ". ",
        _ => " ",
    };
    format!("{text}{separator}{}", hints.join(" "))
}
