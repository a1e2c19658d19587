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
mod share;
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
use self::share::share;
use self::text::comment;
pub(in crate::catalog) use self::text::{key, quoted};
use self::types::{Definition, Type};
use super::{Manifest, SeenResults, SeenTool, Tool, Wording, module_specifier};
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
    /// Shapes of results that were seen from the server's tools. They are used for tools whose server declares no results.
    pub seen: SeenResults,
}

const INDENT: &str = "  ";
/// Declares a server's module: `declare module "host:mcp-<server>" { … }`. The declaration compiles together with the
/// declarations of other modules, and of `host:mcp` ([`declare_mcp`]), which has the types that all servers share.
///
/// ```
/// use hyperlight_mcp::catalog::{DeclarationStyle, Failures, Manifest, Tool, Wording, declare_server};
/// use hyperlight_mcp::text::{sanitise_line, sanitise_text};
/// use serde_json::json;
///
/// let input_schema = json!({ "type": "object", "properties": { "location": { "type": "string" } }, "required": ["location"] });
/// let tool = Tool { name: "get-forecast".into(), title: None, description: Some("The weather.".into()), input_schema,
///     output_schema: None, annotations: None, execution: None, meta: None, icons: None };
/// let manifest = Manifest { tools: vec![tool], ..Manifest::default() };
/// let style = DeclarationStyle {
///     wording: Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 },
///     failures: Failures::Returned,
///     seen: Default::default(),
/// };
/// let text = declare_server("weather", &manifest, &style);
/// assert!(text.contains("export function get_forecast(input: { location: string }): ToolOutput | ToolError;"), "{text}");
/// ```
#[must_use]
pub fn declare_server(server: &str, manifest: &Manifest, style: &DeclarationStyle) -> String {
    declare(server, manifest.distinct_tools(), manifest, style, Extent::Module)
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
    manifest.tool(tool).map(|tool| declare(server, [tool], manifest, style, Extent::Function))
}

/// Declares a server's module with some of its functions, for a text that contains several modules. There is no default export.
pub(in crate::catalog) fn declare_some<'a>(
    server: &str,
    manifest: &Manifest,
    tools: impl IntoIterator<Item = &'a Tool>,
    style: &'a DeclarationStyle,
) -> String {
    declare(server, tools, manifest, style, Extent::Part)
}

/// Parts of a declaration besides functions and their types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The default export.
    Module,
    /// No additional parts.
    Part,
    /// An explanation of `ToolOutput`, because the reader may see nothing else.
    Function,
}

/// A function of a module. The types of the function are among the definitions of the module.
struct Function<'a> {
    tool: &'a Tool,
    input: usize,
    optional: bool,
    output: Option<usize>,
    /// The shape of the results that were seen. `None` if the server declares the results, or if none was seen.
    seen: Option<&'a SeenTool>,
}

impl Function<'_> {
    /// Returns whether nothing is known of the results.
    fn is_unknown(&self) -> bool {
        self.output.is_none() && self.seen.is_none()
    }
}

fn declare<'a>(
    server: &str,
    tools: impl IntoIterator<Item = &'a Tool>,
    manifest: &Manifest,
    style: &'a DeclarationStyle,
    extent: Extent,
) -> String {
    let names = manifest.type_names();
    let mut module = Module::new(names.name_allocator());
    let mut functions = Vec::new();
    for (tool, (input_name, output_name)) in tools.into_iter().filter_map(|tool| Some((tool, names.of(&tool.name)?))) {
        let input = input_types(tool, input_name, style);
        let optional = accepts_nothing(&input[0].value, &input, 0);
        let input = module.add(&input);
        let output = tool.output_schema.as_ref().map(|schema| types_of(schema, output_name, Kinds::ALL, Direction::Output, style));
        let output = output.map(|output| module.add(&output));
        let seen = style.seen.of(tool).filter(|_| output.is_none());
        functions.push(Function { tool, input, optional, output, seen });
    }
    share(&mut module);
    let specifier = module_specifier(server);
    let mut text = manifest.instructions.as_deref().map(|text| comment(&purpose(text, style), "")).unwrap_or_default();
    // `write!` to a `String` cannot fail.
    let _ = writeln!(text, "declare module {} {{", quoted(&specifier));
    let identifiers = manifest.identifiers();
    let printer =
        Printer::new(&module.definitions, functions.iter().flat_map(|function| [Some(function.input), function.output]).flatten());
    for function in &functions {
        let identifier = &identifiers[&function.tool.name];
        let seen = function.seen.map(SeenTool::note);
        let returned = seen.as_deref().or_else(|| printer.inlined_note(function.output?));
        let notes = [("param input", printer.inlined_note(function.input)), ("returns", returned)].map(|(tag, note)| Some((tag, note?)));
        text.push_str(&comment(&described(description(function.tool, style, &format!("{server}.{identifier}")), notes), INDENT));
        text.push_str(&signature_of(function, identifier, &printer, style));
    }
    text.push_str(&printer.named(INDENT));
    match extent {
        Extent::Module => text.push_str(&builtin::default_export(&specifier)),
        Extent::Function if functions.iter().any(Function::is_unknown) => text.push_str(builtin::TOOL_OUTPUT_IN_WORDS),
        Extent::Function | Extent::Part => {}
    }
    text + "}\n"
}

fn signature_of(function: &Function<'_>, identifier: &str, printer: &Printer<'_>, style: &DeclarationStyle) -> String {
    let error = if style.failures == Failures::Returned { " | ToolError" } else { "" };
    let mark = if function.optional { "?" } else { "" };
    let input = printer.root(function.input, INDENT);
    let output = match (function.output, function.seen) {
        (Some(output), _) => printer.root(output, INDENT),
        (None, Some(seen)) => seen.declared(INDENT),
        (None, None) => "ToolOutput".to_owned(),
    };
    format!("{INDENT}export function {identifier}(input{mark}: {input}): {output}{error};\n")
}

/// Adds the comments of a function's types to its description, unless the description already contains them.
fn described(mut description: String, notes: [Option<(&str, &str)>; 2]) -> String {
    for (tag, note) in notes.into_iter().flatten().filter(|(_, note)| !note.is_empty()) {
        if !description.contains(note) {
            let _ = write!(description, "\n@{tag} {note}");
        }
    }
    description
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

/// Returns a tool's description with its annotations. If the description is cut, its end says how code reads the whole description. `name`
/// is the name for `describe`.
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
