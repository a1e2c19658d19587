//! All documented limits. The keys are those of `limits` in `Gateway.open`.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Bytes of one message from a server at most: 16 MiB. A call with a larger answer fails.
pub const MAX_WIRE_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Bytes that the incomplete messages of one HTTP server may have together, beside one of them: 48 MiB. Beyond that they wait unread.
pub const MAX_UNFINISHED_BYTES: usize = 48 * 1024 * 1024;

/// Memory that one parsed message may take: 40 MiB. That is enough for a result of one mebibyte of the smallest values. A call with a
/// larger answer fails.
pub const MAX_MESSAGE_MEMORY_BYTES: usize = 40 * 1024 * 1024;

/// `Uint8Array`s that one value may have: a run's input, arguments, a result, a run's value. Node creates an object for each of them on its
/// main thread, however small it is.
pub const MAX_BLOBS: usize = 10_000;

/// Nested lists and records in a run's value, and in one argument, at most.
pub const MAX_LEVELS: usize = 126;

/// Milliseconds that the first start of a package runner (`npx`, `uvx`, `docker`, …) may take.
pub const PACKAGE_RUNNER_CONNECT_TIMEOUT_MS: u64 = 120_000;

/// The upper bound of `maxParallelCalls`, here and in a server's entry.
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
    /// Time from the start of a server's process to its complete list of tools.
    pub connect_timeout_ms: u64,
    /// Time of one tool call; less if less is left of the run.
    pub call_timeout_ms: u64,
    /// Time of one tool call whose server reports progress: each report restarts `call_timeout_ms`, up to this total.
    pub max_call_timeout_ms: u64,
    /// Time of one run, from its start.
    pub run_timeout_ms: u64,
    /// Failed reconnects of a server in a row.
    pub max_reconnects: u32,
    /// Concurrent calls of one server, from all callers; further calls wait.
    pub max_parallel_calls: usize,
    /// Questions of one run to a person or a model: before calls, and of servers.
    pub max_questions: usize,
    /// Bytes of a tool's result as the guest gets it.
    pub max_response_bytes: usize,
    /// Bytes of a call's arguments: JSON and blobs.
    pub max_argument_bytes: usize,
    /// Bytes of a run's input.
    pub max_input_bytes: usize,
    /// Bytes of a run's value.
    pub max_value_bytes: usize,
    /// Bytes of a run's code.
    pub max_code_bytes: usize,
    /// Bytes of a run's log, all entries together.
    pub max_log_bytes: usize,
    /// Bytes of all values that a sandbox keeps for its later runs.
    pub max_saved_bytes: usize,
    /// Time for which it keeps them.
    pub max_saved_age_ms: u64,
    /// Bytes of the guest's heap.
    pub guest_heap_bytes: u64,
    /// Characters of a description that a model may read.
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
    /// Checks that each limit is within its range.
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
                return Err(Error::InvalidOption { method: "Gateway.open", problem: problem.into() });
            }
        }
        Ok(())
    }

    fn ranges(&self) -> [Range; 19] {
        const DAY: u64 = 24 * 60 * 60 * 1000;
        // The largest sensible buffer of the guest.
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
