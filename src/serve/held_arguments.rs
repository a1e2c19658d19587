//! Limits the memory for the arguments of calls in progress, including calls that wait for an answer. A short text can contain a large
//! number of values, and each value takes far more memory than its text.

use serde_json::Value as Json;

use crate::caller_memory::{CallerMemory, HeldMemory, MemoryLimits};
use crate::error::{Error, Result};
use crate::text::json::{parts, text_bytes};

/// The maximum memory in bytes for the arguments of one caller's calls.
const MAX_OF_CALLER: usize = 128 * MIB;
/// The maximum memory in bytes for the arguments of all calls.
const MAX_OF_ALL: usize = 512 * MIB;
/// The part of [`MAX_OF_ALL`] that only callers may use whose calls take at most [`LEAST_OF_CALLER`]. This prevents a few callers from
/// using all of the memory.
const RESERVED: usize = 128 * MIB;
/// The memory in bytes up to which the calls of a caller may use the reserved part.
const LEAST_OF_CALLER: usize = 8 * MIB;
const MIB: usize = 1024 * 1024;
/// The memory of one value in bytes. A call stores its arguments twice: as received, and as its code gets them.
const VALUE_BYTES: usize = 2 * size_of::<Json>();

/// The memory that the arguments of all calls in progress use. Clones are cheap.
#[derive(Clone)]
pub(super) struct ArgumentMemory(CallerMemory);

/// The memory that the arguments of one call use, until this value is dropped.
pub(super) type HeldArguments = HeldMemory;

impl Default for ArgumentMemory {
    fn default() -> Self {
        Self(CallerMemory::new(MemoryLimits {
            of_caller: MAX_OF_CALLER,
            of_all: MAX_OF_ALL,
            reserved: RESERVED,
            least_of_caller: LEAST_OF_CALLER,
            what_of_caller: "bytes of arguments in this caller's calls (the limit can be reached a little earlier)",
            what_of_all: "bytes of arguments in all calls (the limit can be reached up to a quarter earlier)",
        }))
    }
}

impl ArgumentMemory {
    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.0.is_free()
    }

    /// Reserves the memory for the arguments of one call.
    ///
    /// # Errors
    /// `ERR_BUSY` if the calls of the caller, or all calls, already use too much.
    pub(super) fn hold(&self, caller: &str, arguments: &Json) -> Result<HeldArguments> {
        self.0.hold(caller, text_bytes(arguments).saturating_add(parts(arguments).saturating_mul(VALUE_BYTES)))
    }
}

/// Checks the number of values in the arguments of a call, before the arguments are used.
///
/// # Errors
/// `ERR_INVALID_ARGUMENTS` for more than `most` values.
pub(super) fn check_parts(tool: &str, arguments: Option<&serde_json::Map<String, Json>>, most: usize) -> Result<()> {
    let count: usize = arguments.into_iter().flat_map(|arguments| arguments.values()).map(parts).sum();
    if count <= most {
        return Ok(());
    }
    let problem = format!(
        "they have {count} values, and the limit maxValueParts is {most}: pass fewer, or pass them as one text with JSON.stringify"
    );
    Err(Error::InvalidArguments { what: format!("\"{tool}\"").into(), problem: problem.into() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::redact::Redactor;

    fn zeros(count: usize) -> Json {
        json!({ "pad": vec![0; count] })
    }

    #[test]
    fn arguments_of_very_many_values_are_refused_however_few_bytes_they_have() {
        let Json::Object(arguments) = zeros(1000) else { unreachable!("arguments are an object") };
        assert!(check_parts("t", Some(&arguments), 1001).is_ok() && check_parts("t", None, 0).is_ok());
        let refused = check_parts("t", Some(&arguments), 1000).unwrap_err();
        assert_eq!(refused.code(), "ERR_INVALID_ARGUMENTS");
        let told = refused.redacted(&Redactor::new(None, None)).for_model();
        assert!(told.contains("1001 values") && told.contains("maxValueParts"), "{told}");
        assert_eq!(parts(&json!({ "a": [[], {}, "x", null], "b": 1 })), 7);
    }

    #[test]
    fn however_much_some_callers_have_under_way_another_may_call() {
        let memory = ArgumentMemory::default();
        let mebibyte = json!("x".repeat(MIB));
        let held: Vec<_> = ["a", "b", "c", "d", "e"]
            .iter()
            .flat_map(|caller| std::iter::from_fn(|| memory.hold(caller, &mebibyte).ok()).take(MAX_OF_CALLER / MIB).collect::<Vec<_>>())
            .collect();
        assert!(held.len() * MIB <= MAX_OF_ALL - RESERVED + 2 * LEAST_OF_CALLER, "{}", held.len());
        assert!(memory.hold("another", &mebibyte).is_ok());
    }

    #[test]
    fn a_caller_with_much_under_way_is_refused_and_others_are_not() {
        let memory = ArgumentMemory::default();
        let arguments = zeros(100_000);
        let bytes = parts(&arguments) * VALUE_BYTES + "pad".len();
        let loud: Vec<_> = (0..MAX_OF_CALLER / bytes).map(|_| memory.hold("loud", &arguments).unwrap()).collect();
        let refused = memory.hold("loud", &arguments).err().unwrap();
        assert_eq!(refused.code(), "ERR_BUSY");
        assert!(refused.for_model().contains("arguments in this caller's calls"), "{}", refused.for_model());
        let quiet = memory.hold("quiet", &arguments).unwrap();
        drop(loud);
        assert!(memory.hold("loud", &arguments).is_ok());
        drop(quiet);
        assert!(memory.is_free(), "no caller is kept that has no call");
    }
}
