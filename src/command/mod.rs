//! Commands that a person types in an agent (`gateway.command`) or in a shell (`hyperlight-mcp`): parses them, carries them out, and
//! returns data and text.
//!
//! A line that a model may have written approves nothing. `approve` shows the request and its digest; it approves only with that digest
//! as its argument.

mod args;
mod complete;
mod execute;
mod parse;
mod render;
mod request;
mod text;
mod words;

pub use args::{Approve, Command, Line, Logs, Search, Server};
pub use complete::complete;
pub use execute::{CommandOptions, Outcome, Speaker, execute, perform};
pub use render::{logs_text, problem_text};
pub(crate) use request::{bordered, quoted};
pub use request::{request_text, stage_of};
pub(crate) use text::one_line;
pub use text::{DEFAULT_WIDTH, Style, Tone, date_time, printable};
pub use words::{MAX_LINE_BYTES, Words, split};
