//! Every limit that is promised, in one place. The keys are those of `limits` in `Gateway.open`.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What one message on a server's wire may have: 16 MiB. Beyond it the call fails.
pub const MAX_WIRE_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// What the unfinished messages of one HTTP server may have together, beside one of them: 48 MiB. Beyond it they wait unread.
pub const MAX_UNFINISHED_BYTES: usize = 48 * 1024 * 1024;

/// What one message may take in memory: 40 MiB. That is a result of a mebibyte of the smallest values there are. Beyond it the call fails.
pub const MAX_MESSAGE_MEMORY_BYTES: usize = 40 * 1024 * 1024;

/// How many `Uint8Array`s one value may have, wherever it crosses: input, arguments, a result, a run's value. Each of them is an object that
/// Node makes on its main thread, however few bytes it has.
pub const MAX_BLOBS: usize = 10_000;

/// How many lists and records may lie within one another in a run's value, and in one argument.
pub const MAX_LEVELS: usize = 126;

/// How long the first start of a package runner (`npx`, `uvx`, `docker`, …) may take, in milliseconds.
pub const PACKAGE_RUNNER_CONNECT_TIMEOUT_MS: u64 = 120_000;

/// The most that `maxParallelCalls` can be, here and in a server's entry.
pub const MAX_PARALLEL_CALLS: u64 = 1000;

const MIB: usize = 1024 * 1024;

/// Limits of one gateway. Sizes in bytes, times in milliseconds.
///
/// ```
/// let limits = hyperlight_mcp::Limits::default();
/// assert_eq!(limits.max_servers, 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Servers in the config.
    pub max_servers: usize,
    /// Connections open at once.
    pub max_connections: usize,
    /// From the start of a server's process to its complete list of tools.
    pub connect_timeout_ms: u64,
    /// One tool call; less where less is left of the run.
    pub call_timeout_ms: u64,
    /// One tool call whose server reports progress: each report gives it `call_timeout_ms` anew, up to this.
    pub max_call_timeout_ms: u64,
    /// One run, from its own start.
    pub run_timeout_ms: u64,
    /// Failed reconnects in a row, a server.
    pub max_reconnects: u32,
    /// Calls of one server that are under way at once, whoever makes them; others wait for their turn.
    pub max_parallel_calls: usize,
    /// Questions of one run to a person or a model: before calls, and of servers.
    pub max_questions: usize,
    /// A tool's result as the guest gets it.
    pub max_response_bytes: usize,
    /// A call's arguments, as JSON and bytes.
    pub max_argument_bytes: usize,
    /// A run's input.
    pub max_input_bytes: usize,
    /// A run's value.
    pub max_value_bytes: usize,
    /// A run's code.
    pub max_code_bytes: usize,
    /// A run's log, all entries together.
    pub max_log_bytes: usize,
    /// The values that a sandbox keeps for its later runs, all together.
    pub max_saved_bytes: usize,
    /// How long it keeps them.
    pub max_saved_age_ms: u64,
    /// The guest's heap.
    pub guest_heap_bytes: u64,
    /// A description that a model may read, in characters.
    pub max_description_chars: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_servers: 20,
            max_connections: 5,
            connect_timeout_ms: 10_000,
            call_timeout_ms: 30_000,
            max_call_timeout_ms: 300_000,
            run_timeout_ms: 60_000,
            max_reconnects: 3,
            max_parallel_calls: 128,
            max_questions: 100,
            max_response_bytes: MIB,
            max_argument_bytes: MIB,
            max_input_bytes: 4 * MIB,
            max_value_bytes: 4 * MIB,
            max_code_bytes: MIB,
            max_log_bytes: 256 * 1024,
            max_saved_bytes: 16 * MIB,
            max_saved_age_ms: 3_600_000,
            guest_heap_bytes: 64 * MIB as u64,
            max_description_chars: 2_000,
        }
    }
}

/// A field's name, its value, and the range it must be in.
type Range = (&'static str, u64, u64, u64);

impl Limits {
    /// Refuses what cannot work, naming the limit and its range.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for the first limit out of its range.
    ///
    /// ```
    /// let mut limits = hyperlight_mcp::Limits::default();
    /// limits.guest_heap_bytes = 1024;
    /// assert_eq!(limits.validate().unwrap_err().code(), "ERR_INVALID_OPTION");
    /// ```
    pub fn validate(&self) -> Result<()> {
        for (name, value, least, most) in self.ranges() {
            if !(least..=most).contains(&value) {
                let problem = format!("limits.{name} must be from {least} to {most}, not {value}");
                return Err(Error::InvalidOption { method: "Gateway.open", problem });
            }
        }
        Ok(())
    }

    fn ranges(&self) -> [Range; 19] {
        const DAY: u64 = 24 * 60 * 60 * 1000;
        // Sizes end where a buffer of the guest would no longer be sensible.
        const BUFFER: u64 = 64 * MIB as u64;
        [
            ("maxServers", self.max_servers as u64, 1, 1000),
            ("maxConnections", self.max_connections as u64, 1, 1000),
            ("connectTimeoutMs", self.connect_timeout_ms, 1, DAY),
            ("callTimeoutMs", self.call_timeout_ms, 1, DAY),
            ("maxCallTimeoutMs", self.max_call_timeout_ms, 1, DAY),
            ("runTimeoutMs", self.run_timeout_ms, 1, DAY),
            ("maxReconnects", u64::from(self.max_reconnects), 0, 1000),
            ("maxParallelCalls", self.max_parallel_calls as u64, 1, MAX_PARALLEL_CALLS),
            ("maxQuestions", self.max_questions as u64, 0, 10_000),
            ("maxResponseBytes", self.max_response_bytes as u64, 256, MAX_WIRE_MESSAGE_BYTES as u64),
            ("maxArgumentBytes", self.max_argument_bytes as u64, 256, MAX_WIRE_MESSAGE_BYTES as u64),
            ("maxInputBytes", self.max_input_bytes as u64, 256, BUFFER),
            ("maxValueBytes", self.max_value_bytes as u64, 256, BUFFER),
            ("maxCodeBytes", self.max_code_bytes as u64, 256, BUFFER),
            ("maxLogBytes", self.max_log_bytes as u64, 256, BUFFER),
            ("maxSavedBytes", self.max_saved_bytes as u64, 0, 1024 * MIB as u64),
            ("maxSavedAgeMs", self.max_saved_age_ms, 1, DAY),
            // Below 8 MiB, Hyperlight and the JavaScript engine have too little room to start.
            ("guestHeapBytes", self.guest_heap_bytes, 8 * MIB as u64, 4096 * MIB as u64),
            ("maxDescriptionChars", self.max_description_chars as u64, 16, 1_000_000),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        Limits::default().validate().unwrap();
    }

    #[test]
    fn a_limit_out_of_range_is_named_with_its_range() {
        let limits = Limits { max_connections: 0, ..Limits::default() };
        let message = limits.validate().unwrap_err().to_string();
        assert!(message.contains("limits.maxConnections must be from 1 to 1000, not 0"), "{message}");
    }
}
