//! Advice about globals and modules of Node and browsers that do not exist in the sandbox.

const NO_NETWORK: &str = "a run has no network without the option fetch: { hosts }. With this option, the run has only fetch, and a person must approve the hosts. Otherwise call a tool of a server (import it from \"host:mcp-NAME\"), or a host module of the agent";
const NO_FILES: &str =
    "the sandbox has no files: call a tool of a server (import it from \"host:mcp-NAME\"), or pass the content as the run's input";
const NO_PROCESS: &str = "the sandbox has no process: pass values as the run's input; the run ends when the handler returns or throws";
const NO_BUFFER: &str = "use Uint8Array: Uint8Array.fromBase64(text), bytes.toBase64(), Uint8Array.fromHex(text), bytes.toHex(); new TextEncoder().encode(text), new TextDecoder().decode(bytes)";
const NO_PAGE: &str = "the sandbox has no web page; the global object is globalThis";
const NO_STREAMS: &str = "the sandbox has no such streams: use whole strings or Uint8Arrays";

const ONE_FILE: &str =
    "a run is one file: bundle it first, for example with npx esbuild FILE --bundle --format=esm '--external:host:*' --outfile=bundle.js";

/// The advice for each global, by the global's name.
const GLOBALS: [(&[&str], &str); 9] = [
    (&["fetch", "XMLHttpRequest", "WebSocket", "EventSource", "Request", "Response", "Headers", "FormData"], NO_NETWORK),
    (&["process", "Deno", "Bun"], NO_PROCESS),
    (&["Buffer", "Blob", "File", "FileReader"], NO_BUFFER),
    (&["window", "document", "self", "navigator", "location", "localStorage", "sessionStorage", "alert"], NO_PAGE),
    (&["ReadableStream", "WritableStream", "TransformStream", "TextDecoderStream", "TextEncoderStream"], NO_STREAMS),
    (&["global"], "use globalThis"),
    (&["module", "exports", "__dirname", "__filename"], "the code is an ES module, not a file: use export function handler(input) { … }"),
    (&["Intl"], "use toLocaleString, toLocaleDateString and toLocaleTimeString, which use en-US and UTC"),
    (&["sleep"], "write import { sleep } from \"host:mcp\""),
];

/// The advice for each module, by the module's name without `node:`.
const MODULES: [(&[&str], &str); 5] = [
    (&["http", "https", "net", "tls", "dns", "axios", "node-fetch", "undici", "got"], NO_NETWORK),
    (&["fs", "fs/promises", "path", "fs-extra", "glob"], NO_FILES),
    (&["process", "child_process", "os", "worker_threads", "cluster"], NO_PROCESS),
    (&["buffer"], NO_BUFFER),
    (
        &["timers", "timers/promises", "url", "util", "events", "perf_hooks", "string_decoder"],
        "use the globals setTimeout, URL, structuredClone, EventTarget, performance, TextDecoder; import sleep from \"host:mcp\"",
    ),
];

/// Returns the advice about a global, if the message is the engine's message that this global is not defined.
pub(in crate::sandbox) fn instead_of_global(message: &str) -> Option<&'static str> {
    find(&GLOBALS, message.strip_suffix(" is not defined")?)
}

/// Returns the advice about a module of Node, a well-known package, or a file.
pub(super) fn instead_of_module(specifier: &str) -> Option<&'static str> {
    if specifier.starts_with(['.', '/']) || specifier.starts_with("file:") {
        return Some(ONE_FILE);
    }
    find(&MODULES, specifier.strip_prefix("node:").unwrap_or(specifier))
}

fn find(known: &[(&[&str], &'static str)], name: &str) -> Option<&'static str> {
    known.iter().find(|(names, _)| names.contains(&name)).map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_node_and_browsers_have_is_known_by_its_name_alone() {
        assert_eq!(instead_of_global("fetch is not defined"), Some(NO_NETWORK));
        for missing in [instead_of_global("fetch is not defined"), instead_of_global("Headers is not defined"), instead_of_module("undici")]
        {
            let advice = missing.unwrap();
            assert!(advice.contains("fetch: { hosts }") && !advice.contains("the sandbox has no network"), "{advice}");
        }
        assert_eq!(instead_of_global("fetched is not defined"), None);
        assert_eq!(instead_of_global("fetch"), None);
        assert_eq!(instead_of_module("node:fs"), Some(NO_FILES));
        assert_eq!(instead_of_module("fs"), Some(NO_FILES));
        assert_eq!(instead_of_module("host:fs"), None);
        for file in ["./lib.js", "../lib.js", "/srv/lib.js", "file:///srv/lib.js"] {
            assert_eq!(instead_of_module(file), Some(ONE_FILE));
        }
    }
}
