//! Asks a model to write the code of each tool, checks the code, and asks once more if the code cannot be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::Value as Json;

use super::model::{Answer, Asking, ask, joined};
use crate::blocking::blocking;
use crate::boot::generate::GenerateRequest;
use crate::boot::handlers::{Handler, HandlerMaterial, HandlerTrial, ParsedCode, example_of, generated_tool, handler_request, parse_code};
use crate::boot::plan::{Plan, PlannedTool};
use crate::boot::progress::Progress;
use crate::config::CodeProblem;
use crate::error::{Error, ErrorText, Result};

/// The number of tools whose code is written at the same time. Providers limit the rate of requests.
const PARALLEL_TOOLS: usize = 4;
/// The end of a problem's description, if the code throws an error for valid arguments. Only the model knows whether this is intended.
const IF_RIGHT: &str = "If the code is right to refuse these arguments, answer with the same code";

/// A handler that can be kept.
pub(super) struct Written {
    pub(super) handler: Handler,
    /// A problem that a person should know about before they approve the handler.
    pub(super) doubt: Option<String>,
}

/// Returns the handlers in the order of the plan. If no code can be written for a tool, the work on all tools ends.
pub(super) async fn write_handlers(asking: Asking<'_>, plan: &Plan) -> Result<Vec<Written>> {
    let tools = plan.tools.len();
    (asking.parts.progress)(Progress::Compiling { tools });
    let done = &AtomicUsize::new(0);
    let write = |tool| {
        let writing = async move {
            let start = asking.parts.clock.now_ms();
            let written = write_handler(asking, tool).await?;
            let handler = &written.handler;
            let ms = asking.parts.clock.now_ms().saturating_sub(start);
            let (lines, done) = (handler.body.lines().count(), done.fetch_add(1, Ordering::Relaxed) + 1);
            (asking.parts.progress)(Progress::Written { tool: handler.tool.clone(), done, tools, lines, ms });
            Ok::<_, Error>(written)
        };
        // The compiler cannot prove that the future of such a closure is `Send` unless it is boxed.
        writing.boxed()
    };
    let writing: Vec<_> = plan.tools.iter().map(write).collect();
    stream::iter(writing).buffered(PARALLEL_TOOLS).try_collect().await
}

async fn write_handler(asking: Asking<'_>, tool: &PlannedTool) -> Result<Written> {
    let parts = asking.parts;
    let (first, example) = begin(asking, tool).await?;
    let mut request = first.clone();
    let untried =
        |reason| format!("the code of \"{}\" was not tried: no arguments could be made that its schema allows ({reason})", tool.name);
    let written = |body, doubt| Ok(Written { handler: Handler { tool: tool.name.clone(), body }, doubt });
    for attempt in 1..=2 {
        (parts.progress)(Progress::Writing { tool: tool.name.clone(), attempt, request_bytes: request.bytes() });
        let Answer { text, ms } = ask(asking, &request).await?;
        (parts.progress)(Progress::Answered { tool: Some(tool.name.clone()), attempt, answer_bytes: text.len(), ms });
        let problems = match judge(asking, tool, &text, example.as_ref().ok()).await? {
            Judged::Kept(body) => return written(body, example.err().map(untried)),
            // The model was told about the problem once, and has decided that the code is right.
            Judged::Doubted(body, problem) if attempt == 2 => {
                return written(
                    body,
                    Some(format!("the tool \"{}\" is kept, because the model has written such code twice: {problem}", tool.name)),
                );
            }
            Judged::Doubted(_, problem) => vec![format!("{problem}. {IF_RIGHT}")],
            Judged::Unusable(problems) => problems,
        };
        if attempt == 2 {
            return Err(Error::BootHandler { tool: ErrorText::own(&tool.name), problem: joined(&problems) });
        }
        (parts.progress)(Progress::CodeRefused { tool: tool.name.clone(), problems: problems.clone() });
        request = first.again(&text, &problems);
    }
    Err(Error::Internal("the model was asked for the code more than twice".into()))
}

/// Makes the request for the code of a tool, and the arguments for its trial. Both can take long for a hostile plan, so a thread for blocking
/// work makes them.
async fn begin(asking: Asking<'_>, tool: &PlannedTool) -> Result<(GenerateRequest, std::result::Result<Json, String>)> {
    let Asking { prompt, material, options, parts: _ } = asking;
    let (prompt, material, secrets, tool) = (prompt.to_owned(), Arc::clone(material), options.secrets.clone(), tool.clone());
    blocking(move || {
        let request = handler_request(HandlerMaterial { prompt: &prompt, pages: &material.pages, secrets: &secrets, tool: &tool });
        Ok((request, example_of(&tool.input_schema)))
    })
    .await
}

/// The result of checking an answer.
enum Judged {
    Kept(String),
    /// The body throws an error for a value that the tool's schema allows.
    Doubted(String, String),
    Unusable(Vec<String>),
}

async fn judge(asking: Asking<'_>, tool: &PlannedTool, answer: &str, arguments: Option<&Json>) -> Result<Judged> {
    let body = match parse_code(answer, tool.needs_network) {
        ParsedCode::Body(body) => body,
        ParsedCode::Refused(reason) => {
            let what = ErrorText::own(format!("write the tool \"{}\"", tool.name));
            return Err(Error::BootRefused { what, reason: reason.into() });
        }
        ParsedCode::Unusable(problems) => return Ok(Judged::Unusable(problems)),
    };
    let generated = generated_tool(tool, &body);
    // The gateway refuses such code, so it must not reach the cache.
    if let Some(problem) = generated.hidden_line_end() {
        return Ok(Judged::Unusable(vec![problem]));
    }
    let module = generated.module();
    let trial = HandlerTrial { tool, body: &body, module: &module, secrets: &asking.options.secrets, arguments };
    Ok(match asking.parts.check.check(trial).await? {
        None => Judged::Kept(body),
        Some(CodeProblem::Refuses(problem)) => Judged::Doubted(body, problem),
        Some(CodeProblem::Defects(problems)) => Judged::Unusable(problems),
    })
}
