//! The validator for JSON Schemas of others, with an upper bound for its work.
//!
//! The crate jsonschema compares the items of `uniqueItems` in pairs if their hashes are equal, which a caller can arrange, and divides large
//! numbers for `multipleOf` with all their digits. So these keywords have implementations of their own. The time for matching a pattern is linear in the length of the text, but a byte can take a thousand times
//! longer with one pattern than with another. So each pattern has a weight.

use std::collections::HashSet;

use jsonschema::{Draft, Keyword, PatternOptions, ValidationError, Validator};
use serde_json::{Number, Value as Json, json};

/// Maximum size in bytes of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 256 * 1024;
/// The sizes of compiled patterns whose weights differ. The last one is [`MAX_PATTERN_BYTES`]. There are few, as each of them takes a compilation.
const SIZES: [usize; 3] = [4 * 1024, 32 * 1024, MAX_PATTERN_BYTES];
/// The number of bytes of a compiled pattern that take as long, for each byte of a text, as one comparison of a value with a subschema: about
/// 0.15 µs. A compiled pattern of 256 KiB takes 60 µs.
const BYTES_A_COMPARISON: usize = 600;

/// Compiles a schema without network access, so that a schema cannot fetch anything. `draft` is the version of JSON Schema; by default, the
/// schema names it.
///
/// # Errors
/// Fails if the schema is not valid, or if a pattern of it is too large.
pub(crate) fn compile(schema: &Json, draft: Option<Draft>) -> Result<Validator, ValidationError<'static>> {
    compile_within(schema, draft, MAX_PATTERN_BYTES)
}

/// Returns the number of comparisons that take as long as matching one byte of a text with this pattern. Returns `None` if the validator does
/// not support the pattern, or if it is too large.
pub(crate) fn pattern_weight(pattern: &str) -> Option<u64> {
    let schema = json!({ "pattern": pattern });
    let size = SIZES.into_iter().find(|size| compile_within(&schema, None, *size).is_ok())?;
    u64::try_from(size.div_ceil(BYTES_A_COMPARISON)).ok()
}

fn compile_within(schema: &Json, draft: Option<Draft>, pattern_bytes: usize) -> Result<Validator, ValidationError<'static>> {
    let patterns = PatternOptions::regex().size_limit(pattern_bytes).dfa_size_limit(MAX_PATTERN_BYTES);
    let options = jsonschema::options().offline().should_validate_formats(false).with_pattern_options(patterns);
    let options =
        options.with_keyword("uniqueItems", |_, wanted, _| Ok(Box::new(UniqueItems { is_wanted: wanted.as_bool() == Some(true) })));
    let options = options.with_keyword("multipleOf", |_, divisor, _| Ok(Box::new(MultipleOf::new(divisor))));
    let options = if let Some(draft) = draft { options.with_draft(draft) } else { options };
    options.build(schema)
}

/// The keyword `multipleOf`.
struct MultipleOf {
    /// `None` for a schema that is not valid. It refuses nothing here.
    divisor: Option<Number>,
}

impl MultipleOf {
    fn new(divisor: &Json) -> Self {
        Self { divisor: divisor.as_number().filter(|divisor| divisor.as_f64().is_some_and(|divisor| divisor > 0.0)).cloned() }
    }
}

impl<'i> Keyword<'i> for MultipleOf {
    fn validate(&self, instance: &'i Json) -> Result<(), ValidationError<'i>> {
        match &self.divisor {
            Some(divisor) if !self.is_valid(instance) => Err(ValidationError::custom(format!("the number is not a multiple of {divisor}"))),
            _ => Ok(()),
        }
    }

    fn is_valid(&self, instance: &'i Json) -> bool {
        let numbers = instance.as_number().zip(self.divisor.as_ref());
        numbers.is_none_or(|(number, divisor)| is_multiple(number, divisor))
    }
}

/// Returns whether a number is a multiple of another one: exactly, in decimal digits, if 128 bits have room for both, and otherwise as binary
/// numbers. So `0.3` is a multiple of `0.1`.
fn is_multiple(number: &Number, divisor: &Number) -> bool {
    if let (Some((number, tens)), Some((divisor, divisor_tens))) = (decimal(number), decimal(divisor)) {
        let least = tens.min(divisor_tens);
        let scaled = |digits: i128, tens: i32| 10_i128.checked_pow(tens.abs_diff(least))?.checked_mul(digits);
        if let (Some(number), Some(divisor)) = (scaled(number, tens), scaled(divisor, divisor_tens)) {
            return number.checked_rem(divisor) == Some(0);
        }
    }
    matches!((number.as_f64(), divisor.as_f64()), (Some(number), Some(divisor)) if number % divisor == 0.0)
}

/// Returns a number as digits and the power of ten by which they are multiplied. Returns `None` if there are too many digits.
fn decimal(number: &Number) -> Option<(i128, i32)> {
    let text = number.to_string();
    let (digits, tens) =
        text.split_once(['e', 'E']).map_or(Some((text.as_str(), 0)), |(digits, tens)| Some((digits, tens.parse().ok()?)))?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, i32::checked_sub(tens, fraction.len().try_into().ok()?)?))
}

/// The keyword `uniqueItems`.
struct UniqueItems {
    is_wanted: bool,
}

impl<'i> Keyword<'i> for UniqueItems {
    fn validate(&self, instance: &'i Json) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) { Ok(()) } else { Err(ValidationError::custom("the items are not all different")) }
    }

    fn is_valid(&self, instance: &'i Json) -> bool {
        !self.is_wanted || instance.as_array().is_none_or(|items| all_differ(items))
    }
}

/// Returns whether no two values are equal in JSON Schema: `1` equals `1.0`, and the order of an object's fields has no meaning (JSON Schema
/// 2020-12, Core 4.2.2). Reads each value once.
fn all_differ(items: &[Json]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().all(|item| {
        let mut bytes = Vec::new();
        write_canonical(item, &mut bytes);
        seen.insert(bytes)
    })
}

/// Writes a value such that two values give the same bytes only if they are equal.
fn write_canonical(value: &Json, bytes: &mut Vec<u8>) {
    let mut start = |kind: u8, length: usize| {
        bytes.push(kind);
        bytes.extend_from_slice(&length.to_le_bytes());
    };
    match value {
        Json::Null => bytes.push(b'n'),
        Json::Bool(is_true) => bytes.push(if *is_true { b't' } else { b'f' }),
        Json::Number(number) => {
            let text = canonical_number(number);
            start(b'#', text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
        Json::String(text) => {
            start(b's', text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
        Json::Array(items) => {
            start(b'[', items.len());
            for item in items {
                write_canonical(item, bytes);
            }
        }
        Json::Object(fields) => {
            start(b'{', fields.len());
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, item) in fields {
                bytes.extend_from_slice(&name.len().to_le_bytes());
                bytes.extend_from_slice(name.as_bytes());
                write_canonical(item, bytes);
            }
        }
    }
}

/// Returns the same text for numbers that are equal.
fn canonical_number(number: &Number) -> String {
    /// The numbers below 2^63 in size, of which each without a fraction is an `i128` exactly.
    const MAX_EXACT: f64 = 9_223_372_036_854_775_808.0;
    match number.as_f64() {
        _ if number.is_i64() || number.is_u64() => number.to_string(),
        #[expect(clippy::cast_possible_truncation, reason = "the number has no fraction and is small enough")]
        Some(float) if float.fract() == 0.0 && float.abs() < MAX_EXACT => (float as i128).to_string(),
        Some(float) => format!("{float:e}"),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_as_json_schema_says() {
        let equal = [
            json!([1, 1.0]),
            json!([0, -0.0]),
            json!([{ "a": 1, "b": [2] }, { "b": [2.0], "a": 1 }]),
            json!([1e30, 1e30]),
            json!(["a", "a"]),
            json!([null, null]),
        ];
        for items in equal {
            assert!(!all_differ(items.as_array().unwrap()), "{items}");
        }
        let different = json!([
            null, true, false, 0, "0", "", [], [[]], [[], []], [[[]]], {}, { "a": 0 }, { "a": "0" }, { "a": [] }, [0], [0, 0], ["a", "b"], ["ab", ""],
            { "a": 1, "b": 2 }, { "ab": 12 }, 0.5, -1, 9_007_199_254_740_992_u64, 9_007_199_254_740_993_u64, u64::MAX, 1e300, 18_446_744_073_709_551_616.0
        ]);
        assert!(all_differ(different.as_array().unwrap()));
    }

    #[test]
    fn items_that_a_hash_cannot_tell_apart_take_no_longer_than_others() {
        // With one list more for each item, the values have equal hashes in the crate jsonschema.
        let nested = |depth: usize| (0..depth).fold(json!([]), |inner, _| json!([inner]));
        let items = json!(
            (0..120_usize).flat_map(|first| (0..100_usize).map(move |second| json!([nested(first), nested(second)]))).collect::<Vec<_>>()
        );
        let validator = compile(&json!({ "uniqueItems": true }), None).unwrap();
        assert!(validator.is_valid(&items));
        assert!(!validator.is_valid(&json!([1, 2, 1.0])) && validator.is_valid(&json!("text")));
        assert!(compile(&json!({ "uniqueItems": false }), None).unwrap().is_valid(&json!([1, 1])));
    }

    #[test]
    fn a_multiple_is_exact_where_there_is_room_and_never_takes_long() {
        let is_multiple = |number: Json, divisor: Json| is_multiple(number.as_number().unwrap(), divisor.as_number().unwrap());
        for (number, divisor) in [
            (json!(10), json!(5)),
            (json!(0), json!(7)),
            (json!(-9), json!(3)),
            (json!(0.3), json!(0.1)),
            (json!(19.99), json!(0.01)),
            (json!(4.0), json!(2)),
            (json!(1e20), json!(1)),
            (json!(u64::MAX), json!(5)),
            (json!(1.5e-5), json!(0.5e-5)),
            (json!(1.234_567_890_123_456_7e308), json!(0.5)),
        ] {
            assert!(is_multiple(number.clone(), divisor.clone()), "{number} {divisor}");
        }
        for (number, divisor) in
            [(json!(11), json!(5)), (json!(0.35), json!(0.1)), (json!(u64::MAX), json!(2)), (json!(1e-300), json!(1e300))]
        {
            assert!(!is_multiple(number.clone(), divisor.clone()), "{number} {divisor}");
        }
        let schema = json!({ "allOf": vec![json!({ "multipleOf": 0.5 }); 40] });
        let validator = compile(&json!({ "items": schema }), None).unwrap();
        assert!(validator.is_valid(&json!(vec![1.234_567_890_123_456_7e308; 1_000])));
        assert!(!validator.is_valid(&json!([0.7])) && validator.is_valid(&json!(["0.7"])));
    }

    #[test]
    fn a_pattern_weighs_as_much_as_its_automaton_is_large() {
        let weight = |pattern: &str| pattern_weight(pattern).unwrap_or_default();
        assert_eq!((weight("^[a-z]+$"), weight(r"^\d{4}-\d\d-\d\d$")), (7, 7));
        let heavy = "^(?:[ab]*a[ab]{3000}c|x)$";
        assert!(weight(heavy) > 100, "{}", weight(heavy));
        let weights = [weight("^[a-z]+$"), weight("^[a-z]{400}$"), weight(heavy)];
        assert!(weights.is_sorted() && weights[0] < weights[1] && weights[1] < weights[2], "{weights:?}");
        for unsupported in ["(", "(?=a)", "[ab]{9000}"] {
            assert_eq!(pattern_weight(unsupported), None, "{unsupported}");
        }
    }
}
