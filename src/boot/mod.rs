//! Makes tools from a prompt: reads the documentation that it names, lets a model plan the tools and write their code, and keeps the result.
//!
//! A model is asked only here, before any tool is served. This module runs no code and serves no tools. It uses the network only through
//! `fetch`, and the sandbox only as a [`CodeCheck`]. [`prepare`] does all steps; `docs/BOOT.md` describes them.

mod answer;
mod cache;
mod digest;
mod fences;
mod generate;
mod handlers;
mod material;
mod pages;
mod plan;
mod prepare;
mod progress;
mod prompt;
mod secrets;
mod whitelist;

pub use cache::{Cache, CacheEntry, EntryParts, Found, key_of, prompt_digest};
pub use digest::digest_of;
pub use generate::{Generate, GenerateRequest, MAX_OUTPUT_TOKENS};
pub use handlers::{CodeCheck, Handler, HandlerTrial, ParsedCode, example_of, generated_tool, parse_code};
pub use pages::html::main_text;
pub use pages::{
    FetchedPages, KnownPages, MAX_CHARS, MAX_PAGE_CHARS, PAGE_TIME, Page, PageAnswer, PageFacts, PageKind, PageProblem, PageResult,
    PageSource, cut_pages, read_pages,
};
pub use plan::{Endpoint, Parsed, Plan, PlannedTool, parse_plan, problems_of};
pub use prepare::{BootParts, Origin, PrepareOptions, Prepared, prepare};
pub use progress::{Clock, Progress, ProgressListener, SystemClock};
pub use prompt::{shown_url, urls_in};
pub use secrets::SecretName;
pub use whitelist::{Whitelist, whitelist};
