//! All documented limits of a gateway. The option `limits` of `Gateway.open` has the same keys.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::error::{Error, Result};

/// Maximum size in bytes of one message from a server: 16 MiB. A call with a larger answer fails.
pub const MAX_WIRE_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Maximum total size in bytes of the incomplete messages of one HTTP server: 48 MiB. One incomplete message is not counted. When the
/// limit is reached, further data stays unread until there is space.
pub const MAX_UNFINISHED_BYTES: usize = 48 * 1024 * 1024;

/// Maximum memory in bytes that one parsed message may take: 40 MiB. A call with a larger answer fails. A result of 1 MiB fits even if it
/// consists of the smallest JSON values.
pub const MAX_MESSAGE_MEMORY_BYTES: usize = 40 * 1024 * 1024;

/// Maximum number of entries in a list of a server, for example of its tools: 2,000. A longer list is refused as a whole.
pub const MAX_LIST_ENTRIES: usize = 2_000;

/// Maximum number of `Uint8Array`s in one value: a run's input, a call's arguments, a tool's result, or a run's value. The reason for the
/// limit is that Node creates an object on its main thread for each array, even for a small one.
pub const MAX_BLOBS: usize = 10_000;

/// Maximum nesting depth of lists and records in a run's value and in one argument.
pub const MAX_LEVELS: usize = 126;

/// Maximum nesting depth of lists and records in the arguments of a tool call. The object of the arguments itself counts as one level. Many
/// servers can only read JSON with fewer than 128 levels, and do not answer a message with more levels. The message adds two levels around
/// the arguments.
pub const MAX_ARGUMENT_LEVELS: usize = 125;

/// Maximum number of characters in a description that an approval request shows, or that `describe` of one tool returns: 64 Ki. If several
/// tools are described together, `max_description_chars` applies instead.
pub const MAX_WHOLE_DESCRIPTION_CHARS: usize = 64 * 1024;

/// Maximum number of bytes in a name that is passed to `describe`, such as `weather.get_forecast`: 512.
pub const MAX_DESCRIBED_NAME_BYTES: usize = 512;

/// Maximum time in milliseconds for the first start of a package runner (`npx`, `uvx`, `docker`, …).
pub const PACKAGE_RUNNER_CONNECT_TIMEOUT_MS: u64 = 120_000;

/// Upper bound of `maxParallelCalls`, both in the gateway's limits and in a server's config entry.
pub const MAX_PARALLEL_CALLS: u64 = 1000;

const MIB: usize = 1024 * 1024;
const DAY: u64 = 24 * 60 * 60 * 1000;

/// Limits of one gateway. Sizes are in bytes, and times are in milliseconds.
///
/// ```
/// let limits = hyperlight_mcp::Limits::default();
/// assert_eq!(limits.max_servers, 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum number of servers in the config.
    pub max_servers: usize,
    /// Maximum number of connections that are open at the same time.
    pub max_connections: usize,
    /// Longest time to connect to a server. The time is counted from the start of the server's process, or from the first HTTP request,
    /// until all lists (tools, resources, prompts) are read. Time in which a person is asked does not count.
    pub connect_timeout_ms: u64,
    /// Longest time of one tool call. A call ends earlier if the run has less time left.
    pub call_timeout_ms: u64,
    /// Longest total time of one tool call whose server reports progress. Each progress report restarts `call_timeout_ms`.
    pub max_call_timeout_ms: u64,
    /// Longest time of one run, counted from the start of the run.
    pub run_timeout_ms: u64,
    /// Maximum processor time of the guest of one run, measured on the guest's thread. The time of calls, timers and questions does not
    /// count. A guest that works for eight times this limit on the clock is always ended.
    pub compute_timeout_ms: u64,
    /// Maximum number of consecutive failed reconnects for a server.
    pub max_reconnects: u32,
    /// Maximum number of concurrent calls to one server. Calls of all callers are counted together. Calls above this number wait.
    pub max_parallel_calls: usize,
    /// Maximum number of questions to a person or a model that one run may cause. Approvals before calls and questions of servers are both
    /// counted.
    pub max_questions: usize,
    /// Maximum size of a tool's result, in the form that the guest receives. Also that of each answer of a server that `serve` passes on.
    pub max_response_bytes: usize,
    /// Maximum size of a call's arguments. The JSON and the `Uint8Array`s are counted together.
    pub max_argument_bytes: usize,
    /// Maximum size of a run's input.
    pub max_input_bytes: usize,
    /// Maximum size of a run's value.
    pub max_value_bytes: usize,
    /// Maximum number of parts in a run's value. Node reads the whole value in one event-loop turn on its main thread, and the number of
    /// parts determines how long that takes. A list, an object, and a text of at most 10 characters that is new in the value each count
    /// as 1 part. A key counts as 3 parts, unless an earlier object has the same key after the same preceding keys. Rows with the same
    /// keys therefore count their keys once.
    pub max_value_parts: usize,
    /// Maximum size of a run's code.
    pub max_code_bytes: usize,
    /// Maximum total size of all entries of a run's log.
    pub max_log_bytes: usize,
    /// Maximum total size of the values that a sandbox stores for later runs.
    pub max_saved_bytes: usize,
    /// Longest time for which a sandbox stores a value for later runs.
    pub max_saved_age_ms: u64,
    /// Size of the guest's heap.
    pub guest_heap_bytes: u64,
    /// Maximum number of characters in a description when several tools are described together. For `describe` of one tool, the limit is
    /// [`MAX_WHOLE_DESCRIPTION_CHARS`].
    pub max_description_chars: usize,
    /// Maximum total size of all rows of the audit. When it is exceeded, the oldest rows are removed.
    pub max_audit_bytes: u64,
    /// Maximum age of a row of the audit. Older rows are removed.
    pub max_audit_age_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_servers: 20,
            max_connections: 20,
            connect_timeout_ms: 10_000,
            call_timeout_ms: 30_000,
            max_call_timeout_ms: 300_000,
            run_timeout_ms: 60_000,
            compute_timeout_ms: 5_000,
            max_reconnects: 3,
            max_parallel_calls: 128,
            max_questions: 100,
            max_response_bytes: MIB,
            max_argument_bytes: MIB,
            max_input_bytes: 4 * MIB,
            max_value_bytes: 4 * MIB,
            max_value_parts: 400_000,
            max_code_bytes: MIB,
            max_log_bytes: 256 * 1024,
            max_saved_bytes: 16 * MIB,
            max_saved_age_ms: 3_600_000,
            guest_heap_bytes: 64 * MIB as u64,
            max_description_chars: 2_000,
            max_audit_bytes: 64 * MIB as u64,
            max_audit_age_ms: 90 * DAY,
        }
    }
}

/// Changes of some limits. The names are the same as in [`Limits`]. A limit that has no value here is not changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LimitChanges {
    pub max_servers: Option<usize>,
    pub max_connections: Option<usize>,
    pub connect_timeout_ms: Option<u64>,
    pub call_timeout_ms: Option<u64>,
    pub max_call_timeout_ms: Option<u64>,
    pub run_timeout_ms: Option<u64>,
    pub compute_timeout_ms: Option<u64>,
    pub max_reconnects: Option<u32>,
    pub max_parallel_calls: Option<usize>,
    pub max_questions: Option<usize>,
    pub max_response_bytes: Option<usize>,
    pub max_argument_bytes: Option<usize>,
    pub max_input_bytes: Option<usize>,
    pub max_value_bytes: Option<usize>,
    pub max_value_parts: Option<usize>,
    pub max_code_bytes: Option<usize>,
    pub max_log_bytes: Option<usize>,
    pub max_saved_bytes: Option<usize>,
    pub max_saved_age_ms: Option<u64>,
    pub guest_heap_bytes: Option<u64>,
    pub max_description_chars: Option<usize>,
    pub max_audit_bytes: Option<u64>,
    pub max_audit_age_ms: Option<u64>,
}

impl LimitChanges {
    /// Sets a limit by its name in the config.
    ///
    /// # Errors
    /// Returns a description of the problem with the name or the value. The text is the end of a sentence that begins with the position of
    /// the limit.
    ///
    /// ```
    /// let mut changes = hyperlight_mcp::LimitChanges::default();
    /// changes.set("maxServers", 50).unwrap();
    /// assert_eq!(changes.max_servers, Some(50));
    /// assert_eq!(changes.set("maxServers", 0).unwrap_err(), "must be from 1 to 1000, not 0");
    /// assert!(changes.set("maxServer", 1).unwrap_err().starts_with("this key is unknown; there are: maxServers, "));
    /// ```
    pub fn set(&mut self, name: &str, value: u64) -> std::result::Result<(), String> {
        let ranges = Limits::default().ranges();
        let Some((_, _, least, most)) = ranges.iter().find(|(known, ..)| *known == name) else {
            let known: Vec<_> = ranges.iter().map(|(known, ..)| *known).collect();
            return Err(format!("this key is unknown; there are: {}", known.join(", ")));
        };
        if !(least..=most).contains(&&value) {
            return Err(format!("must be from {least} to {most}, not {value}"));
        }
        let mut all = fields(self);
        all.insert(name.to_owned(), value.into());
        *self = serde_json::from_value(Json::Object(all)).map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// Sets all limits.
impl From<Limits> for LimitChanges {
    fn from(limits: Limits) -> Self {
        // Both types have the same keys, which a test checks.
        serde_json::from_value(Json::Object(fields(&limits))).unwrap_or_default()
    }
}

/// Returns the limits that are set. The keys are the names of the limits.
fn fields(limits: &impl Serialize) -> Map<String, Json> {
    let Ok(Json::Object(mut fields)) = serde_json::to_value(limits) else { return Map::new() };
    fields.retain(|_, value| !value.is_null());
    fields
}

/// A range of a limit: the name of the field, its value, its lowest permitted value, and its highest permitted value.
type Range = (&'static str, u64, u64, u64);

impl Limits {
    /// Checks that each limit is within its range.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for the first limit that is out of its range.
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

    /// Returns these limits with some changes.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for the first limit that is out of its range.
    ///
    /// ```
    /// use hyperlight_mcp::{LimitChanges, Limits};
    /// let changes = LimitChanges { max_servers: Some(50), ..LimitChanges::default() };
    /// assert_eq!(Limits::default().changed_by(&changes).unwrap(), Limits { max_servers: 50, ..Limits::default() });
    /// ```
    pub fn changed_by(&self, changes: &LimitChanges) -> Result<Self> {
        let mut all = fields(self);
        all.extend(fields(changes));
        let changed: Self = serde_json::from_value(Json::Object(all)).map_err(|error| Error::Internal(error.to_string().into()))?;
        changed.validate()?;
        Ok(changed)
    }

    fn ranges(&self) -> [Range; 23] {
        // Largest permitted size of a guest buffer.
        const BUFFER: u64 = 64 * MIB as u64;
        [
            ("maxServers", self.max_servers as u64, 1, 1000),
            ("maxConnections", self.max_connections as u64, 1, 1000),
            ("connectTimeoutMs", self.connect_timeout_ms, 1, DAY),
            ("callTimeoutMs", self.call_timeout_ms, 1, DAY),
            ("maxCallTimeoutMs", self.max_call_timeout_ms, 1, DAY),
            ("runTimeoutMs", self.run_timeout_ms, 1, DAY),
            ("computeTimeoutMs", self.compute_timeout_ms, 1, DAY),
            ("maxReconnects", u64::from(self.max_reconnects), 0, 1000),
            ("maxParallelCalls", self.max_parallel_calls as u64, 1, MAX_PARALLEL_CALLS),
            ("maxQuestions", self.max_questions as u64, 0, 10_000),
            ("maxResponseBytes", self.max_response_bytes as u64, 256, MAX_WIRE_MESSAGE_BYTES as u64),
            ("maxArgumentBytes", self.max_argument_bytes as u64, 256, MAX_WIRE_MESSAGE_BYTES as u64),
            ("maxInputBytes", self.max_input_bytes as u64, 256, BUFFER),
            ("maxValueBytes", self.max_value_bytes as u64, 256, BUFFER),
            ("maxValueParts", self.max_value_parts as u64, 256, BUFFER),
            ("maxCodeBytes", self.max_code_bytes as u64, 256, BUFFER),
            ("maxLogBytes", self.max_log_bytes as u64, 256, BUFFER),
            ("maxSavedBytes", self.max_saved_bytes as u64, 0, 1024 * MIB as u64),
            ("maxSavedAgeMs", self.max_saved_age_ms, 1, DAY),
            // With less than 8 MiB, Hyperlight and the JavaScript engine would not have enough memory to start.
            ("guestHeapBytes", self.guest_heap_bytes, 8 * MIB as u64, 4096 * MIB as u64),
            ("maxDescriptionChars", self.max_description_chars as u64, 16, 1_000_000),
            // An audit row of a call has about 300 bytes.
            ("maxAuditBytes", self.max_audit_bytes, 64 * 1024, 16 * 1024 * MIB as u64),
            ("maxAuditAgeMs", self.max_audit_age_ms, 1000, 3650 * DAY),
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

    #[test]
    fn changes_have_the_keys_of_the_limits_and_leave_the_others() {
        let all = LimitChanges::from(Limits::default());
        let keys = |fields: Map<String, Json>| fields.keys().cloned().collect::<Vec<_>>();
        let ranges: Vec<_> = Limits::default().ranges().iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(keys(fields(&all)), keys(fields(&Limits::default())));
        assert_eq!(keys(fields(&all)), ranges);
        assert_eq!(fields(&LimitChanges::default()), Map::new());
        let low = LimitChanges { guest_heap_bytes: Some(1), ..LimitChanges::default() };
        assert_eq!(Limits::default().changed_by(&low).unwrap_err().code(), "ERR_INVALID_OPTION");
    }
}
