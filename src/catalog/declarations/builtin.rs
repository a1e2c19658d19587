//! Declares in TypeScript the modules that do not belong to a server: `host:mcp`, and the modules that the agent's author adds.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::text::{comment, is_plain, quoted};
use super::{DeclarationStyle, Failures, INDENT};
use crate::catalog::is_identifier;

/// A function of a module that the agent's author adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFunction {
    pub name: String,
    pub description: Option<String>,
    /// A TypeScript function type, for example `(a: number, b: number) => number`. The caller has checked its syntax.
    pub signature: Option<String>,
}

const MCP_FUNCTIONS: &str = r#"  /** Calls a tool by its raw name. Throws an Error with `code` unless the server answered; a tool's own failure has `isError`. */
  export function call(server: string, tool: string, input?: object): ToolResult;
  /** The tools that match a few words, the best first. */
  export function search(query: string, options?: { limit?: number; servers?: string[] }): Match[];
  /** Declarations as text, of a module ("weather", "host:mcp-weather") or a function ("weather.get_forecast"). */
  export function describe(what: string): string;
  /** All tools, or one server's. */
  export function tools(server?: string): Tool[];
  /** What can be read: resources, and templates of them. */
  export function resources(server?: string): ResourceEntry[];
  /** Reads a resource; a list where it has several parts, null for none. */
  export function read(server: string, uri: string): Resource | Resource[] | null;
  export function prompts(server?: string): PromptEntry[];
  /** Fills in a prompt. */
  export function prompt(server: string, name: string, input?: Record<string, string | number | boolean | null>): PromptResult;
  /** A value that an earlier run returned shortened: all of it, or the part at a JSON Pointer: `saved(id, "/rows/0")`. */
  export function saved(id: string, pointer?: string): any;
  /** Waits. This counts as time of the run. Other calls of the run go on meanwhile. */
  export function sleep(milliseconds: number): Promise<void>;
  /** Awaits `.async` calls: `all(cities.map((city) => get_forecast.async({ city })))`. */
  export function all<T extends unknown[]>(calls: [...T]): { [K in keyof T]: Awaited<T[K]> };
  export function allSettled<T extends unknown[]>(calls: [...T]): { [K in keyof T]: PromiseSettledResult<Awaited<T[K]>> };
  /** Whether a value is what a failed call returns: `{ error, code? }` with texts, and nothing else. */
  export function isError(value: unknown): value is ToolError;
"#;

/// Declarations that all modules share, so that no server's module has to repeat them: the member `.async` of each function, the results
/// that `bridge::shape` returns for a tool without an output schema, and the form of a failure.
const SHARED: &str = r"  global {
    interface CallableFunction {
      /** The same call as a promise, for many calls at once; not for `sleep`, `all`, `allSettled`, `isError`. */
      async<A extends any[], R>(this: (...input: A) => R, ...input: A): Promise<Awaited<R>>;
    }
    /**
     * The result of a server's function without a type of its own: text or parsed JSON, bytes, a resource, a link; a list of several; null
     * for nothing. A function with a type of its own returns text or null where the server sends no structured content.
     */
    type ToolOutput = ToolContent | ToolContent[] | number | boolean | null;
    type ToolContent = string | { mimeType: string; data: Uint8Array } | { uri: string; mimeType?: string; text: string } | { uri: string; mimeType?: string; data: Uint8Array } | { uri: string; name: string; [key: string]: unknown } | Record<string, unknown> | unknown[];
    /** What a failed call of a server's function returns where it does not throw. `code` is missing if the tool itself reported the error. */
    interface ToolError { error: string; code?: string }
  }
";
/// A short description of `ToolOutput`, for the declaration of one function.
pub(super) const TOOL_OUTPUT_IN_WORDS: &str =
    "  // ToolOutput: text or parsed JSON, bytes, a resource, a link; a list of several; null for nothing.\n";

/// Declarations of the types that the functions of `host:mcp` return. The modules `modules`, `resources_and_prompts` and `shape` of
/// `bridge` build the values of these types.
const MCP_TYPES: &str = r"  /** A result as the server sent it. */
  export interface ToolResult { content: unknown[]; structuredContent?: unknown; isError: boolean; meta?: unknown }
  export interface Match { server: string; tool: string; module: string; identifier: string; signature: string; purpose: string; score: number }
  /** `name` for `call`; `identifier` is what the server's module exports. */
  export interface Tool { server: string; name: string; identifier: string; description?: string; inputSchema: unknown; outputSchema?: unknown }
  /** Has `uri` or `uriTemplate`. */
  export interface ResourceEntry { server: string; uri?: string; uriTemplate?: string; name: string; title?: string; description?: string; mimeType?: string }
  export type Resource = { uri: string; mimeType?: string; text: string; data?: undefined } | { uri: string; mimeType?: string; data: Uint8Array; text?: undefined };
  export interface PromptEntry { server: string; name: string; title?: string; description?: string; arguments: { name: string; title?: string; description?: string; required?: boolean }[] }
  /** `content`: as a tool's result without a schema: text, JSON, bytes, a resource or a link. */
  export interface PromptResult { description?: string; messages: { role: string; content: unknown }[] }
";

/// Declares the module `host:mcp`. It can call any tool by its raw name, search tools, and use resources and prompts. Its functions
/// always throw when they fail, even if the functions of servers return their errors.
///
/// ```
/// # use hyperlight_mcp::catalog::{DeclarationStyle, Failures, Wording, declare_mcp};
/// # use hyperlight_mcp::text::{sanitise_line, sanitise_text};
/// # let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 };
/// let text = declare_mcp(&DeclarationStyle { wording, failures: Failures::Returned, seen: Default::default() });
/// assert!(text.contains("export function describe(what: string): string;"));
/// ```
#[must_use]
pub fn declare_mcp(style: &DeclarationStyle) -> String {
    // If the functions of servers return their errors, the comment mentions that the functions of `host:mcp` throw.
    let about = match style.failures {
        Failures::Returned => "/** All servers. Unlike tools, these functions throw where they fail. */\n",
        Failures::Thrown => "/** All servers. */\n",
    };
    let default = default_export("host:mcp");
    format!("{about}declare module \"host:mcp\" {{\n{MCP_FUNCTIONS}{SHARED}{MCP_TYPES}{default}}}\n")
}

/// Declares a module that the agent's author adds. `name` has no prefix `host:`. A function whose name is not an identifier is left out,
/// because code cannot import it.
///
/// ```
/// use hyperlight_mcp::catalog::{AgentFunction, declare_agent_module};
///
/// let add = AgentFunction { name: "add".into(), description: Some("The sum.".into()), signature: Some("(a: number, b: number) => number".into()) };
/// let text = declare_agent_module("math", None, &[add]);
/// assert!(text.contains("/** The sum. */\n  export const add: (a: number, b: number) => number;"), "{text}");
/// ```
#[must_use]
pub fn declare_agent_module(name: &str, purpose: Option<&str>, functions: &[AgentFunction]) -> String {
    let specifier = format!("host:{name}");
    let mut text = comment(purpose.unwrap_or_default(), "");
    // `write!` to a `String` cannot fail.
    let _ = writeln!(text, "declare module {} {{", quoted(&specifier));
    let mut seen = BTreeSet::new();
    for function in functions {
        if !is_identifier(&function.name) || !is_plain(&function.name) || !seen.insert(function.name.as_str()) {
            continue;
        }
        text.push_str(&comment(function.description.as_deref().unwrap_or_default(), INDENT));
        let signature = function.signature.as_deref().unwrap_or("(...args: any[]) => any");
        // If the signature contains `//`, a line break is added, so that a comment in the signature does not include the semicolon.
        let end = if signature.contains("//") { "\n" } else { "" };
        let _ = writeln!(text, "{INDENT}export const {}: {signature}{end};", function.name);
    }
    text + &default_export(&specifier) + "}\n"
}

/// Declares the default export of a module: an object with all of its functions.
pub(super) fn default_export(specifier: &str) -> String {
    format!("{INDENT}export * as default from {};\n", quoted(specifier))
}
