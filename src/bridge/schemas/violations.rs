//! Describes violations in such a way that the caller can correct the arguments. A description contains the location, what is expected,
//! the value that was found, and the name that was probably meant.

use std::cell::Cell;
use std::collections::HashSet;

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::{Map, Value as Json};

use super::expected::{LISTED, any_of, choices, expectation, listed, literal, one_of, quoted, summary, typed};
use super::line;
use super::names::{known_names, own_names, path, steps};
use crate::text::nearest;

/// Maximum number of violations that a message describes.
const MAX_DESCRIBED: usize = 3;
/// Maximum number of violations that are examined in order to choose the violations for the message.
const READ: usize = 20;
/// Maximum nesting depth of `anyOf` and `oneOf` inside other `anyOf` and `oneOf`.
const MAX_LEVELS: usize = 8;
/// Maximum number of subschemas of an `anyOf` or `oneOf` in a message.
const ALTERNATIVES: usize = 5;
/// Maximum number of given names that are examined for spelling mistakes.
const MAX_GIVEN: usize = 200;
/// Maximum number of unknown names in a message. For each of them, the message also contains the name that was probably meant.
const UNKNOWN: usize = 5;
/// Maximum number of searches for the name that was probably meant. Each search takes up to a few milliseconds.
const SEARCHES: usize = MAX_DESCRIBED * UNKNOWN;
const MAX_TEXT_CHARS: usize = 1_000;

/// Describes the first violations of the schema by the arguments. `errors` is empty if finding the violations would have cost too much.
pub(super) fn describe(schema: &Json, arguments: &Json, errors: &[ValidationError<'_>]) -> String {
    let reader = Reader { schema, arguments, searches: Cell::new(0) };
    let mut found = Vec::new();
    for error in errors.iter().take(READ) {
        reader.read(error, 0, &mut found);
    }
    let meant: HashSet<(String, String)> = found.iter().filter_map(Violation::mistaken).collect();
    let mut seen = HashSet::new();
    let texts: Vec<_> = found.iter().filter_map(|violation| violation.text(&meant)).filter(|text| seen.insert(text.clone())).collect();
    let more = texts.len().saturating_sub(MAX_DESCRIBED) + errors.len().saturating_sub(READ);
    let described = texts[..texts.len().min(MAX_DESCRIBED)].join("; ");
    match (texts.is_empty(), more) {
        (true, _) => "they do not fit the tool's inputSchema".to_owned(),
        (false, 0) => line(&described, MAX_TEXT_CHARS),
        (false, more) => format!("{}; and {more} more", line(&described, MAX_TEXT_CHARS)),
    }
}

/// A violation.
enum Violation {
    Missing {
        /// Path to the object, as the function `path` returns it.
        at: String,
        name: String,
        /// An unknown name that was given, and that is similar to `name`. It was probably a mistake for `name`.
        mistaken: Option<String>,
        /// The name of another parameter that was given. `name` is required because this parameter is given.
        needed_with: Option<String>,
    },
    Unknown {
        at: String,
        /// The unknown names. With each: the known name that was probably meant, if there is one.
        names: Vec<(String, Option<String>)>,
        valid: Vec<String>,
    },
    Other(String),
}

impl Violation {
    /// Returns the given name that this violation's message already explains, and the path to the object that contains this name.
    fn mistaken(&self) -> Option<(String, String)> {
        match self {
            Self::Missing { at, mistaken: Some(given), .. } => Some((at.clone(), given.clone())),
            _ => None,
        }
    }

    fn text(&self, explained: &HashSet<(String, String)>) -> Option<String> {
        match self {
            Self::Other(text) => Some(text.clone()),
            Self::Missing { at, name, mistaken, needed_with } => {
                let place = if at.is_empty() { String::new() } else { format!(" in {at}") };
                let with = needed_with.as_ref().map(|other| format!(" (needed with {})", quoted(other))).unwrap_or_default();
                let given = mistaken.as_ref().map(|given| format!(" (you gave {})", quoted(given))).unwrap_or_default();
                Some(format!("missing required parameter {}{place}{with}{given}", quoted(name)))
            }
            Self::Unknown { at, names, valid } => {
                let names: Vec<_> = names.iter().filter(|(name, _)| !explained.contains(&(at.clone(), name.clone()))).collect();
                (!names.is_empty()).then(|| unknown(at, &names, valid))
            }
        }
    }
}

/// Returns the message for unknown names. It contains either the names that were probably meant or the known names.
fn unknown(at: &str, names: &[&(String, Option<String>)], valid: &[String]) -> String {
    let place = if at.is_empty() { "at the top level".to_owned() } else { format!("in {at}") };
    if let [(name, Some(meant))] = names {
        return format!("unknown parameter {} {place}; did you mean {}?", quoted(name), quoted(meant));
    }
    let named = names.iter().take(UNKNOWN).map(|(name, meant)| match meant {
        Some(meant) => format!("{} (did you mean {}?)", quoted(name), quoted(meant)),
        None => quoted(name),
    });
    let more = names.len().saturating_sub(UNKNOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let noun = if names.len() == 1 { "parameter" } else { "parameters" };
    let there_are = match names.iter().any(|(_, meant)| meant.is_none()) {
        true if valid.is_empty() => "; there are none".to_owned(),
        true => format!("; there are: {}", listed(valid)),
        false => String::new(),
    };
    format!("unknown {noun} {}{more} {place}{there_are}", named.collect::<Vec<_>>().join(", "))
}

struct Reader<'a> {
    schema: &'a Json,
    arguments: &'a Json,
    /// The number of searches for a name that was probably meant.
    searches: Cell<usize>,
}

impl Reader<'_> {
    fn read(&self, error: &ValidationError<'_>, level: usize, found: &mut Vec<Violation>) {
        match error.kind() {
            Kind::Required { property } => found.push(self.missing(error, property.as_str().unwrap_or_default())),
            Kind::AdditionalProperties { unexpected } => {
                let holder = error.schema_path().as_str().rsplit_once('/').and_then(|(parent, _)| self.schema.pointer(parent));
                found.push(self.unknown(error, unexpected, holder.map(own_names).into_iter().flatten().collect()));
            }
            // If the schema allows no other names, the validator reports only the first unknown value.
            Kind::FalseSchema if self.whole_of(error).is_some() => {
                let unexpected: Vec<String> = self.whole_of(error).into_iter().flat_map(Map::keys).cloned().collect();
                found.push(self.unknown(error, &unexpected, Vec::new()));
            }
            Kind::UnevaluatedProperties { unexpected } => {
                let valid = known_names(self.schema, &steps(self.arguments, error.instance_path().as_str()));
                found.push(self.unknown(error, unexpected, valid));
            }
            Kind::PropertyNames { error: inner } => {
                let name = literal(inner.instance());
                let (expected, _) = expectation(self.schema, inner);
                let place = self.place(error);
                let place = if place.is_empty() { "at the top level".to_owned() } else { format!("in {place}") };
                found.push(Violation::Other(format!("the name {name} {place} is not allowed: expected {expected}")));
            }
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => self.alternatives(error, context, level, found),
            Kind::OneOfMultipleValid { .. } => {
                let got = literal(error.instance());
                found.push(self.other(error, &format!("exactly one of {}", self.summaries(error)), &format!("{got}, which fits several")));
            }
            _ => {
                let (expected, got) = expectation(self.schema, error);
                found.push(self.other(error, &expected, &got));
            }
        }
    }

    /// Returns the object to which the reported value belongs, if the schema allows no further names in this object.
    fn whole_of(&self, error: &ValidationError<'_>) -> Option<&Map<String, Json>> {
        let whole = self.arguments.pointer(error.instance_path().as_str())?;
        let of_names = error.schema_path().as_str().ends_with("/additionalProperties");
        whole.as_object().filter(|_| of_names && whole != error.instance().as_ref())
    }

    fn place(&self, error: &ValidationError<'_>) -> String {
        path(&steps(self.arguments, error.instance_path().as_str()))
    }

    fn other(&self, error: &ValidationError<'_>, expected: &str, got: &str) -> Violation {
        let place = self.place(error);
        let place = if place.is_empty() { place } else { format!("{place}: ") };
        Violation::Other(format!("{place}expected {expected}, got {got}"))
    }

    fn nearest<'a>(&self, name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let searches = self.searches.replace(self.searches.get() + 1);
        if searches < SEARCHES { nearest(name, known) } else { None }
    }

    fn missing(&self, error: &ValidationError<'_>, name: &str) -> Violation {
        let steps = steps(self.arguments, error.instance_path().as_str());
        let known: HashSet<&str> = known_names(self.schema, &steps).into_iter().collect();
        let given = error.instance().as_object();
        let unknown = given.into_iter().flat_map(|given| given.keys().take(MAX_GIVEN)).map(String::as_str);
        let mistaken = self.nearest(name, unknown.filter(|given| !known.contains(given)));
        // The value of `required` is a list. The value of `dependentRequired` maps a name to the names that are required if this name is
        // given.
        let rules = self.schema.pointer(error.schema_path().as_str()).and_then(Json::as_object);
        let makes_necessary = |(other, names): &(&String, &Json)| {
            let listed = names.as_array().is_some_and(|names| names.iter().any(|needed| needed.as_str() == Some(name)));
            listed && given.is_some_and(|given| given.contains_key(*other))
        };
        Violation::Missing {
            at: path(&steps),
            name: name.to_owned(),
            mistaken: mistaken.map(ToOwned::to_owned),
            needed_with: rules.and_then(|rules| rules.iter().find(makes_necessary)).map(|(other, _)| other.clone()),
        }
    }

    fn unknown(&self, error: &ValidationError<'_>, unexpected: &[String], valid: Vec<&str>) -> Violation {
        let meant = |(index, name): (usize, &String)| {
            let near = if index < UNKNOWN { self.nearest(name, valid.iter().copied()) } else { None };
            (name.clone(), near.map(ToOwned::to_owned))
        };
        Violation::Unknown {
            at: self.place(error),
            names: unexpected.iter().enumerate().map(meant).collect(),
            // Names beyond the limit are only counted and not shown, so they need not be quoted.
            valid: valid.into_iter().enumerate().map(|(index, name)| if index < LISTED { quoted(name) } else { String::new() }).collect(),
        }
    }

    /// Describes why a value does not match any subschema of an `anyOf` or `oneOf`. If the caller probably meant one of the subschemas,
    /// describes the violations of this subschema. Otherwise lists the subschemas.
    fn alternatives(
        &self,
        error: &ValidationError<'_>,
        branches: &[Vec<ValidationError<'static>>],
        level: usize,
        found: &mut Vec<Violation>,
    ) {
        let here = error.instance_path().as_str();
        let about_itself = |branch: &&Vec<ValidationError<'static>>| branch.iter().any(|inner| is_about(inner, here));
        let all: Vec<_> = branches.iter().collect();
        if let Some(violation) = self.combined(&all, |inner| is_about(inner, here)) {
            found.push(violation);
            return;
        }
        let near: Vec<_> = branches.iter().filter(|branch| !branch.is_empty() && !about_itself(branch)).collect();
        // The subschemas usually differ in a field with a constant value. A caller who gave this value probably meant the subschema that
        // has it.
        let same_tag: Vec<_> = near.iter().copied().filter(|branch| !branch.iter().any(|inner| is_tag(inner, here))).collect();
        let nearest = match (near.as_slice(), same_tag.as_slice()) {
            ([only], _) | (_, [only]) => Some(*only),
            _ => None,
        };
        if let Some(branch) = nearest
            && level < MAX_LEVELS
        {
            branch.iter().take(READ).for_each(|inner| self.read(inner, level + 1, found));
            return;
        }
        let violation = self.missing_alternatives(error, &near).or_else(|| {
            let tag = near.first()?.iter().find(|inner| is_tag(inner, here))?.instance_path().as_str();
            self.combined(&near, |inner| is_tag(inner, here) && inner.instance_path().as_str() == tag)
        });
        found.push(violation.unwrap_or_else(|| self.other(error, &self.summaries(error), &typed(error.instance()))));
    }

    /// Returns a single violation for all subschemas, if the value violates each of them in such a way that there is a list of accepted
    /// values.
    fn combined(&self, branches: &[&Vec<ValidationError<'static>>], fits: impl Fn(&ValidationError<'_>) -> bool) -> Option<Violation> {
        let violations: Option<Vec<_>> = branches.iter().map(|branch| branch.iter().find(|inner| fits(inner))).collect();
        let violations = violations?;
        let first = violations.first()?;
        let mut seen = HashSet::new();
        let all = violations.iter().filter_map(|inner| choices(inner.kind())).flatten();
        let all: Vec<_> = all.filter(|choice| seen.insert(choice.clone())).collect();
        let is_type = violations.iter().any(|inner| matches!(inner.kind(), Kind::Type { .. }));
        let value = first.instance();
        Some(if is_type { self.other(first, &any_of(&all), &typed(value)) } else { self.other(first, &one_of(&all), &literal(value)) })
    }

    /// If the value would match each subschema with one more parameter, returns a violation which says that `a` or `b` must be given.
    fn missing_alternatives(&self, error: &ValidationError<'_>, branches: &[&Vec<ValidationError<'static>>]) -> Option<Violation> {
        let name = |branch: &&Vec<ValidationError<'static>>| match branch.as_slice() {
            [only] if only.instance_path().as_str() == error.instance_path().as_str() => match only.kind() {
                Kind::Required { property } => Some(literal(property)),
                _ => None,
            },
            _ => None,
        };
        let names: Option<Vec<_>> = branches.iter().map(name).collect();
        let names = names.filter(|names| !names.is_empty())?;
        let place = self.place(error);
        let place = if place.is_empty() { place } else { format!(" in {place}") };
        Some(Violation::Other(format!("missing required parameter {}{place}", any_of(&names))))
    }

    fn summaries(&self, error: &ValidationError<'_>) -> String {
        let parts = self.schema.pointer(error.schema_path().as_str()).and_then(Json::as_array);
        let parts = parts.map_or(&[][..], Vec::as_slice);
        let mut all: Vec<_> = parts.iter().take(ALTERNATIVES).map(|part| summary(self.schema, part)).collect();
        all.dedup();
        match parts.len().saturating_sub(ALTERNATIVES) {
            _ if all.is_empty() => "one of several alternatives".to_owned(),
            0 => any_of(&all),
            more => format!("{} and {more} more", all.join(", ")),
        }
    }
}

/// Returns whether a violation has a list of accepted values for the value at this location.
fn is_about(error: &ValidationError<'_>, here: &str) -> bool {
    matches!(error.kind(), Kind::Type { .. } | Kind::Enum { .. } | Kind::Constant { .. }) && error.instance_path().as_str() == here
}

/// Returns whether a violation is about a field with constant values that is directly in the value at this location.
fn is_tag(error: &ValidationError<'_>, here: &str) -> bool {
    let inside = error.instance_path().as_str().strip_prefix(here).and_then(|rest| rest.strip_prefix('/'));
    matches!(error.kind(), Kind::Enum { .. } | Kind::Constant { .. }) && inside.is_some_and(|name| !name.contains('/'))
}
