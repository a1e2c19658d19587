//! The request for one handler.

use super::relevant::relevant;
use crate::boot::generate::GenerateRequest;
use crate::boot::material::{ABOUT_DATA, pages_as_data};
use crate::boot::pages::{Page, cut_text};
use crate::boot::plan::PlannedTool;
use crate::boot::secrets::{SecretName, about_secrets};

const SYSTEM: &str = r"You write the code of one tool of an MCP server. It runs in a JavaScript engine without Node and without a browser (ES2023, QuickJS), once for each call.

Answer with one block of JavaScript and nothing else: the BODY of an async function. Do not write the function around it.

```js
const city = args.city.trim();
return { city };
```

Rules:
- `args` has the tool's arguments, which its input schema allows. Return JSON: an object, a list, a text or a number.
- Throw an Error with a clear message if something is wrong. Catch no error only to hide it.
- No `import`, no `require`, no TypeScript, no comments about these rules.
- These globals exist: JSON, Math, String, Number, Boolean, Array, Object, Map, Set, Date, RegExp, Promise, parseInt, parseFloat, isNaN, isFinite, structuredClone, URL, URLSearchParams, TextEncoder, TextDecoder, console.log.
- Others do not exist: no process, no Buffer, no fs, no window, no setTimeout, no eval, no WebAssembly.
- The tool has 30 seconds.";

const NETWORK: &str = "`fetch` exists, as the standard has it, with Headers, Request and Response, and `secrets` exists. At most 100 requests a call, to the tool's endpoints. Check `response.ok`, \
and throw an Error with the status and the server's message if it is false.";
const READ_ONLY: &str = " Only GET and HEAD requests are possible.";
const NO_NETWORK: &str = "The tool has no network: `fetch` does not exist, and neither do Headers and Response.";
/// The largest number of characters of the prompt in a request for code. The request for the plan contains the whole prompt.
const MAX_PROMPT_CHARS: usize = 20_000;

/// The data from which a handler is made.
#[derive(Clone, Copy)]
pub(in crate::boot) struct HandlerMaterial<'a> {
    pub(in crate::boot) prompt: &'a str,
    pub(in crate::boot) pages: &'a [Page],
    pub(in crate::boot) secrets: &'a [SecretName],
    pub(in crate::boot) tool: &'a PlannedTool,
}

/// Returns the request for the handler of a tool.
pub(in crate::boot) fn handler_request(material: HandlerMaterial<'_>) -> GenerateRequest {
    let HandlerMaterial { prompt, pages, secrets, tool } = material;
    let plan = serde_json::to_string_pretty(tool).unwrap_or_default();
    let prompt = cut_text(prompt.trim().to_owned(), MAX_PROMPT_CHARS);
    let network = if tool.needs_network {
        let read_only = if tool.read_only_hint { READ_ONLY } else { "" };
        let parts = relevant(pages, tool);
        let parts = pages_as_data(parts.iter().map(|(page, text)| (*page, text.as_str())));
        format!("{NETWORK}{read_only}\n\n{}\n\n# Documentation\n\n{ABOUT_DATA}\n\n{parts}", about_secrets(secrets))
    } else {
        let parts = relevant(pages, tool);
        let parts = if parts.is_empty() {
            String::new()
        } else {
            let pages = pages_as_data(parts.iter().map(|(page, text)| (*page, text.as_str())));
            format!("\n\n# Documentation\n\n{ABOUT_DATA}\n\n{pages}")
        };
        format!("{NO_NETWORK}{parts}")
    };
    let user = format!("# Tool\n\n{plan}\n\n# The task that the tools are for\n\n{prompt}\n\n# Network\n\n{network}");
    GenerateRequest::new(SYSTEM.to_owned(), user)
}

/// Returns a warning if the requests for code contain only parts of the prompt.
pub(in crate::boot) fn cut_prompt(prompt: &str) -> Option<String> {
    let chars = prompt.chars().count();
    (chars > MAX_PROMPT_CHARS).then(|| {
        format!("the prompt has {chars} characters. The plan is made from all of it, but each request for code gets only its beginning and its end, together {MAX_PROMPT_CHARS} characters")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::boot::plan::Endpoint;

    fn tool() -> PlannedTool {
        PlannedTool {
            name: "get_forecast".to_owned(),
            description: "Gets it.".to_owned(),
            input_schema: json!({ "type": "object" }),
            endpoints: vec![Endpoint { method: "GET".to_owned(), url: "https://a.example/v1".to_owned() }],
            implementation_notes: "Read days.".to_owned(),
            needs_network: true,
            read_only_hint: true,
        }
    }

    #[test]
    fn of_a_long_prompt_the_beginning_and_the_end_stay_and_the_cut_is_told() {
        let prompt = format!("Weather tools. {}Return degrees.", "Many words. ".repeat(5_000));
        let tool = tool();
        let user = handler_request(HandlerMaterial { prompt: &prompt, pages: &[], secrets: &[], tool: &tool }).user;
        for part in ["Weather tools. Many", "left out", "Return degrees."] {
            assert!(user.contains(part), "{part}");
        }
        assert!(user.chars().count() < MAX_PROMPT_CHARS + 2_000);
        assert!(cut_prompt(&prompt).unwrap().starts_with("the prompt has 60030 characters"));
        assert_eq!(cut_prompt(&"x".repeat(MAX_PROMPT_CHARS)), None);
    }

    #[test]
    fn the_request_says_what_the_code_has_and_has_not() {
        let mut tool = tool();
        let secrets = [SecretName { name: "KEY".to_owned(), host: "a.example".to_owned(), in_body: false }];
        let text =
            |tool: &PlannedTool| handler_request(HandlerMaterial { prompt: "the weather", pages: &[], secrets: &secrets, tool }).user;
        let network = text(&tool);
        for part in ["\"get_forecast\"", "Read days.", "the weather", "`fetch` exists", "Only GET and HEAD", "secrets.KEY"] {
            assert!(network.contains(part), "{part}");
        }
        tool.needs_network = false;
        assert!(text(&tool).contains("`fetch` does not exist") && !text(&tool).contains("secrets.KEY"));
        assert!(!SYSTEM.contains("Headers") && network.contains("Headers, Request and Response"));
    }
}
