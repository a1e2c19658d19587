//! Commands that a person types in an agent (`gateway.command`) or in a shell (`hyperlight-mcp`). Parses them, carries them out, and
//! returns data and text.
//!
//! A model may have written the line, so a line must not approve by accident. `approve` shows the request and its digest. The command
//! approves only if the digest is its argument. A line from a model never approves anything.

mod args;
mod complete;
mod execute;
mod parse;
mod providers;
mod render;
mod request;
mod text;
mod words;

pub use args::{Approve, Command, Line, Logs, Providers, Search, Server};
pub use complete::complete;
pub use execute::{CommandOptions, Outcome, Speaker, execute, perform, perform_as};
pub(crate) use providers::{provider_approved_text, provider_list_text, provider_request_text};
pub use render::{logs_text, problem_text};
pub(crate) use request::{LOOKALIKE, bordered, quoted};
pub use request::{request_text, stage_of};
pub use text::{DEFAULT_WIDTH, MIN_WIDTH, Style, Tone, date_time, printable};
pub(crate) use text::{MARK, columns_in, joined, one_line};
pub use words::{MAX_LINE_BYTES, Words, split};
