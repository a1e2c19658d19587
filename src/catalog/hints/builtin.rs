//! Describes the module `host:mcp`.

use super::agent::described;
use super::{FunctionInfo, ModuleKind, ModuleSummary};

/// Name of the module without the prefix `host:`.
pub(in crate::catalog) const MCP_MODULE: &str = "mcp";

/// The name, parameters, return type, purpose and example of each function.
const FUNCTIONS: [[&str; 5]; 13] = [
    [
        "call",
        "(server: string, tool: string, input?: object)",
        "ToolResult",
        "Calls any tool by its raw name; throws if the call fails.",
        "call(\"weather\", \"get-forecast\", { city: \"Rome\" })",
    ],
    ["tools", "(server?: string)", "Tool[]", "Lists tools with their schemas.", "tools()"],
    [
        "search",
        "(query: string, options?: { limit?: number; servers?: string[] })",
        "Match[]",
        "Finds tools by what they do, the best first.",
        "search(\"weather forecast\")",
    ],
    ["describe", "(what: string)", "string", "The TypeScript declarations of a module or tool.", "describe(\"weather.get_forecast\")"],
    ["resources", "(server?: string)", "ResourceEntry[]", "Lists what can be read.", "resources()"],
    ["read", "(server: string, uri: string)", "Resource | Resource[] | null", "Reads a resource.", "read(\"notes\", \"note://today\")"],
    ["prompts", "(server?: string)", "PromptEntry[]", "Lists prompts.", "prompts()"],
    ["prompt", "(server: string, name: string, input?: object)", "PromptResult", "Fills in a prompt.", "prompt(\"travel\", \"plan\")"],
    [
        "saved",
        "(id: string, pointer?: string)",
        "any",
        "Returns all or a part of a value that an earlier run returned shortened.",
        "saved(\"6x0…\", \"/rows/0\")",
    ],
    ["sleep", "(milliseconds: number)", "Promise<void>", "Waits; other work of the run continues.", "await sleep(1000)"],
    ["all", "(calls: Promise<T>[])", "T[]", "Waits for calls made by .async.", "all(cities.map((city) => get_forecast.async({ city })))"],
    [
        "allSettled",
        "(calls: Promise<T>[])",
        "PromiseSettledResult<T>[]",
        "Like all, but a failed call gives its error in the list.",
        "allSettled([get_forecast.async({ city: \"Rome\" })])",
    ],
    ["isError", "(value: unknown)", "boolean", "Returns whether a value is the error of a failed call.", "isError(forecast)"],
];

/// Returns the summary of the module, and its functions.
pub(in crate::catalog) fn mcp_module() -> (ModuleSummary, Vec<FunctionInfo>) {
    let function = |[name, parameters, returns, purpose, example]: [&str; 5]| FunctionInfo {
        example: example.to_owned(),
        ..described(name, parameters, returns, purpose)
    };
    let summary = ModuleSummary {
        name: MCP_MODULE.to_owned(),
        specifier: format!("host:{MCP_MODULE}"),
        kind: ModuleKind::BuiltIn,
        server: None,
        purpose: "Finds, describes and calls the tools of all servers; reads their resources and prompts, and what earlier runs saved."
            .to_owned(),
        functions: FUNCTIONS.len(),
    };
    (summary, FUNCTIONS.into_iter().map(function).collect())
}
