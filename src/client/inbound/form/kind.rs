//! The type of one field of a form, and its limits.

use std::cmp::Ordering;
use std::collections::HashSet;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Number, Value as Json};

use super::formats::Format;
use super::{check_structure, quoted};

const MAX_CHOICES: usize = 2_000;
const MAX_PATTERN_BYTES: usize = 1_024;
/// Maximum memory in bytes of a compiled pattern. The time to match a text is linear in the length of the text.
const MAX_COMPILED_BYTES: usize = 256 * 1024;
/// Number of choices that an error message lists.
const NAMED_CHOICES: usize = 10;

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Text { lengths: Bounds, format: Option<Format>, pattern: Option<Regex> },
    Number { integer: bool, minimum: Option<Number>, maximum: Option<Number> },
    Flag,
    Choice(Choices),
    Choices { choices: Choices, counts: Bounds },
}

/// Limits of a number of characters or list items.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    least: Option<u64>,
    most: Option<u64>,
}

/// The values from which a person can choose.
#[derive(Debug, Clone)]
pub(super) struct Choices(Vec<String>);

type Fields = Map<String, Json>;

impl Kind {
    pub(super) fn parse(property: &Fields) -> Result<Self, String> {
        let kind = property.get("type").map(|kind| kind.as_str().ok_or("has a \"type\" that is not a string")).transpose()?;
        if matches!(kind, None | Some("string"))
            && let Some(choices) = Choices::parse(property, "oneOf")?
        {
            return Ok(Self::Choice(choices));
        }
        check_structure(property, "")?;
        match kind {
            Some("string") => Ok(Self::Text {
                lengths: Bounds::parse(property, "minLength", "maxLength")?,
                format: property.get("format").and_then(Json::as_str).and_then(Format::named),
                pattern: pattern(property)?,
            }),
            Some("number") => Self::number(property, false),
            Some("integer") => Self::number(property, true),
            Some("boolean") => Ok(Self::Flag),
            Some("array") => {
                let items = property.get("items").and_then(Json::as_object).ok_or("is a list without \"items\"")?;
                let choices = Choices::parse(items, "anyOf")?.ok_or("is a list whose \"items\" have neither \"enum\" nor \"anyOf\"")?;
                Ok(Self::Choices { choices, counts: Bounds::parse(property, "minItems", "maxItems")? })
            }
            Some("object") => Err("is an object, but the fields of a form must have primitive types".to_owned()),
            _ => Err("must have the type string, number, integer, boolean, or list of choices".to_owned()),
        }
    }

    /// Checks a value. If the value does not fit the field, returns a description of the problem.
    pub(super) fn check(&self, value: &Json) -> Result<(), String> {
        match (self, value) {
            (Self::Text { lengths, format, pattern }, Json::String(text)) => {
                lengths.check(text.chars().count(), "characters")?;
                if let Some(format) = format.filter(|format| !format.fits(text)) {
                    return Err(format!("must be {}", format.described()));
                }
                match pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
                    Some(pattern) => Err(format!("must match the pattern {}", quoted(pattern.as_str()))),
                    None => Ok(()),
                }
            }
            (Self::Number { integer, minimum, maximum }, Json::Number(number)) => {
                if *integer && !is_integer(number) {
                    return Err("must be a whole number".to_owned());
                }
                if let Some(least) = minimum.as_ref().filter(|least| compare(number, least) == Ordering::Less) {
                    return Err(format!("must be at least {least}"));
                }
                match maximum.as_ref().filter(|most| compare(number, most) == Ordering::Greater) {
                    Some(most) => Err(format!("must be at most {most}")),
                    None => Ok(()),
                }
            }
            (Self::Flag, Json::Bool(_)) => Ok(()),
            (Self::Choice(choices), Json::String(text)) => choices.check(text),
            (Self::Choices { choices, counts }, Json::Array(chosen)) => {
                counts.check(chosen.len(), "choices")?;
                let mut seen = HashSet::new();
                chosen.iter().try_for_each(|item| {
                    let text = item.as_str().ok_or_else(|| choices.expected())?;
                    choices.check(text)?;
                    if seen.insert(text) { Ok(()) } else { Err(format!("contains {} twice", quoted(text))) }
                })
            }
            (expected, _) => Err(format!("must be {}", expected.described())),
        }
    }

    fn number(property: &Fields, integer: bool) -> Result<Self, String> {
        let bound = |key: &str| match property.get(key) {
            None => Ok(None),
            Some(Json::Number(number)) => Ok(Some(number.clone())),
            Some(_) => Err(format!("has a \"{key}\" that is not a number")),
        };
        Ok(Self::Number { integer, minimum: bound("minimum")?, maximum: bound("maximum")? })
    }

    fn described(&self) -> &'static str {
        match self {
            Self::Text { .. } | Self::Choice(_) => "a string",
            Self::Number { integer: false, .. } => "a number",
            Self::Number { integer: true, .. } => "a whole number",
            Self::Flag => "true or false",
            Self::Choices { .. } => "a list of strings",
        }
    }
}

impl Bounds {
    fn parse(fields: &Fields, least: &str, most: &str) -> Result<Self, String> {
        let bound = |key: &str| match fields.get(key) {
            None => Ok(None),
            // JSON Schema treats the number 3.0 as the integer 3.
            Some(number) => whole(number).map(Some).ok_or_else(|| format!("has a \"{key}\" that is not a whole number of at least 0")),
        };
        Ok(Self { least: bound(least)?, most: bound(most)? })
    }

    fn check(self, count: usize, of_what: &str) -> Result<(), String> {
        let count = count as u64;
        match self {
            Self { least: Some(least), .. } if count < least => Err(format!("must have at least {least} {of_what}, not {count}")),
            Self { most: Some(most), .. } if count > most => Err(format!("must have at most {most} {of_what}, not {count}")),
            _ => Ok(()),
        }
    }
}

impl Choices {
    /// Parses the choices from `enum`, or from the list of `{ const, title }` under the key `titled`. Titles (also `enumNames`) are
    /// ignored, because the check does not need them.
    fn parse(fields: &Fields, titled: &str) -> Result<Option<Self>, String> {
        let (key, list) = match (fields.get("enum"), fields.get(titled)) {
            (Some(list), None) => ("enum", list),
            (None, Some(list)) => (titled, list),
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err(format!("has both \"enum\" and \"{titled}\"")),
        };
        let list =
            list.as_array().filter(|list| !list.is_empty()).ok_or_else(|| format!("has an \"{key}\" that is not a list of choices"))?;
        if list.len() > MAX_CHOICES {
            return Err(format!("has {} choices; at most {MAX_CHOICES} are shown", list.len()));
        }
        let choice = |choice: &Json| {
            let value = if key == "enum" { Some(choice) } else { choice.get("const") };
            value.and_then(Json::as_str).map(ToOwned::to_owned)
        };
        let choices: Option<Vec<String>> = list.iter().map(choice).collect();
        choices.map(|choices| Some(Self(choices))).ok_or_else(|| format!("has choices in \"{key}\" that are not strings"))
    }

    fn check(&self, text: &str) -> Result<(), String> {
        if self.0.iter().any(|choice| choice == text) { Ok(()) } else { Err(self.expected()) }
    }

    fn expected(&self) -> String {
        let named: Vec<_> = self.0.iter().take(NAMED_CHOICES).map(|choice| quoted(choice)).collect();
        let more = self.0.len().saturating_sub(NAMED_CHOICES);
        let rest = if more > 0 { format!(" or one of {more} more") } else { String::new() };
        format!("must be one of {}{rest}", named.join(", "))
    }
}

/// Compiles a pattern. Returns `None` for a pattern that the regex engine does not support, for example one with look-around. The server
/// has to check such a pattern.
fn pattern(property: &Fields) -> Result<Option<Regex>, String> {
    let Some(pattern) = property.get("pattern") else { return Ok(None) };
    let pattern = pattern.as_str().ok_or("has a \"pattern\" that is not a string")?;
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!("has a \"pattern\" of {} bytes; the limit is {MAX_PATTERN_BYTES}", pattern.len()));
    }
    match RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES).build() {
        Ok(pattern) => Ok(Some(pattern)),
        Err(regex::Error::CompiledTooBig(_)) => Err("has a \"pattern\" whose compiled form takes too much memory".to_owned()),
        Err(_) => Ok(None),
    }
}

fn whole(json: &Json) -> Option<u64> {
    let float = |number: f64| (number >= 0.0 && number <= f64::from(u32::MAX) && number.fract() == 0.0).then_some(number);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number is whole and in the range of u32")]
    json.as_u64().or_else(|| json.as_f64().and_then(float).map(|number| number as u64))
}

/// Returns whether JSON Schema treats a number as an integer. For example, 1.0 is an integer.
fn is_integer(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// Compares two numbers. Integers are compared exactly, because `f64` cannot represent all of them.
fn compare(one: &Number, other: &Number) -> Ordering {
    let exact = |number: &Number| number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    if let (Some(one), Some(other)) = (exact(one), exact(other)) {
        return one.cmp(&other);
    }
    let float = |number: &Number| number.as_f64().unwrap_or(f64::NAN);
    float(one).partial_cmp(&float(other)).unwrap_or(Ordering::Equal)
}
