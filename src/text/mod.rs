//! Pure functions on text. They sanitise texts, compare names, and write JSON. This module uses no other module of the crate.

pub(crate) mod json;
mod nearest;
mod next_command;
mod pattern_cost;
mod problem;
mod sanitise;
mod server_name;
mod shown_arguments;
mod word_text;

#[cfg(test)]
pub(crate) use nearest::comparisons;
pub use nearest::nearest;
pub use next_command::NextCommand;
pub(crate) use next_command::shell_word;
pub(crate) use pattern_cost::{is_quick_pattern, parsed_bytes};
pub use problem::Problem;
pub(crate) use problem::{Position, displayed, displayed_within, sort_problems};
pub(crate) use sanitise::{MAX_LEVELS, hidden, is_stray_jamo, is_tag, is_unseen, visible};
pub use sanitise::{escape_comment_end, has_invisible, sanitise_json, sanitise_line, sanitise_text};
pub use server_name::{NameMark, is_server_name, marked_name, variant_of};
pub(crate) use server_name::{PROFILE_SIGN, TASK_MARK, check_server_name, is_registry_name, server_name_for, server_name_of, with_mark};
pub(crate) use shown_arguments::{arguments_text, escaped, whole_arguments_text};
pub use word_text::WordText;
