//! Validates the value that a guest returned, before the value is used. The value must be JSON that every parser reads in the same way. It
//! may refer to each blob at most once. Node and this crate can read a valid value without errors, and Node needs only a short time for it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::value::{MARK, check_blobs, invalid};
use super::value_parts::{Parts, Shape, TooMany};
use crate::error::{Error, Result};
use crate::limits::MAX_LEVELS;

/// Checks the JSON text of one value and its references to `blobs` blobs.
///
/// # Errors
/// `ERR_INVALID_VALUE` for text that is not strict JSON, for numbers outside the range of a double, for lone surrogates, for more than
/// [`MAX_LEVELS`] nesting levels, for malformed placeholders, and for a blob that does not exist or is referred to twice.
/// `ERR_VALUE_TOO_LARGE` for more than `max_parts` parts (`limits.maxValueParts`).
pub(super) fn check_value(json: &str, blobs: usize, max_parts: usize) -> Result<()> {
    check_blobs(blobs)?;
    let mut seen = Seen { blobs: vec![Blob::Unnamed; blobs], placeholders: 0, parts: Parts::new(max_parts, json.len()) };
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let looked_at = Part { seen: &mut seen, level: 0 }.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    if seen.parts.is_exceeded() {
        return Err(Error::ValueTooManyParts { limit: max_parts });
    }
    looked_at.map_err(|error| invalid(&error.to_string()))?;
    // This text can only be the beginning of an object, because a quote within a string is escaped. A JSON parser also accepts a
    // placeholder with blanks or escaped letters. But a reader that searches for this text, such as the glue code in Node, would not find
    // such a placeholder.
    if json.matches(PLACEHOLDER).count() == seen.placeholders {
        Ok(())
    } else {
        Err(invalid("a placeholder for bytes has blanks or escapes: it must begin with {\"$bytes\":"))
    }
}

/// The text with which each placeholder must begin.
const PLACEHOLDER: &str = "{\"$bytes\":";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Blob {
    Unnamed,
    Named,
}

/// The parts of a value that have been read.
struct Seen {
    blobs: Vec<Blob>,
    /// The number of placeholders: those of blobs and those of escaped records.
    placeholders: usize,
    parts: Parts,
}

/// A part of the value, and its nesting level.
struct Part<'a> {
    seen: &'a mut Seen,
    level: usize,
}

impl Part<'_> {
    /// Returns a part at the next nesting level, for an item of this part. This part must be a list or a record.
    fn inner<E: serde::de::Error>(&mut self) -> std::result::Result<Part<'_>, E> {
        if self.level >= MAX_LEVELS {
            return Err(E::custom(format!("it has more than {MAX_LEVELS} levels")));
        }
        Ok(Part { seen: self.seen, level: self.level + 1 })
    }
}

/// Returns an error that stops the parser. `check_value` replaces this error by the real one.
fn ends<E: serde::de::Error>(_: TooMany) -> E {
    E::custom("it has too many parts")
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<(), E> {
        self.seen.parts.text(text).map_err(ends)
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> std::result::Result<(), A::Error> {
        self.seen.parts.container().map_err(ends)?;
        while items.next_element_seed(self.inner()?)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> std::result::Result<(), A::Error> {
        // An empty object counts as a level, too.
        self.inner::<A::Error>()?;
        self.seen.parts.container().map_err(ends)?;
        let (mut count, mut shape) = (0, Shape::default());
        while let Some(key) = fields.next_key_seed(Key { parts: &mut self.seen.parts, shape })? {
            count += 1;
            shape = key.shape;
            if !key.is_mark {
                fields.next_value_seed(self.inner()?)?;
                continue;
            }
            self.seen.placeholders += 1;
            fields.next_value_seed(Placeholder(self.inner()?))?;
            if count > 1 || fields.next_key::<serde::de::IgnoredAny>()?.is_some() {
                return Err(A::Error::custom("a placeholder for bytes has other keys beside it"));
            }
            return Ok(());
        }
        Ok(())
    }
}

/// The next key of an object. `shape` is the shape of the object before this key.
struct Key<'a> {
    parts: &'a mut Parts,
    shape: Shape,
}

struct KnownKey {
    /// True if this is the key that marks a placeholder.
    is_mark: bool,
    /// The shape of the object with this key.
    shape: Shape,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = KnownKey;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<KnownKey, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = KnownKey;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> std::result::Result<KnownKey, E> {
        let shape = self.parts.key(self.shape, key).map_err(ends)?;
        Ok(KnownKey { is_mark: key == MARK, shape })
    }
}

/// The value under the key of a placeholder. It is the index of a blob, or the fields of an escaped record. An escaped record is a record
/// that itself contains this key.
struct Placeholder<'a>(Part<'a>);

impl<'de> DeserializeSeed<'de> for Placeholder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Placeholder<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a placeholder for bytes")
    }

    fn visit_u64<E: serde::de::Error>(self, index: u64) -> std::result::Result<(), E> {
        match usize::try_from(index).ok().and_then(|index| self.0.seen.blobs.get_mut(index)) {
            None => Err(E::custom(format!("there is no blob {index}"))),
            Some(Blob::Named) => Err(E::custom(format!("blob {index} is named twice"))),
            Some(blob) => {
                *blob = Blob::Named;
                Ok(())
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut entries: A) -> std::result::Result<(), A::Error> {
        self.0.seen.parts.escaped_record().map_err(ends)?;
        let mut shape = Shape::default();
        while let Some(next) = entries.next_element_seed(Entry { part: self.0.inner()?, shape })? {
            shape = next;
        }
        Ok(())
    }
}

/// One `[key, value]` pair of an escaped record. `shape` is the shape of the record before this key. The result is the shape with this key.
struct Entry<'a> {
    part: Part<'a>,
    shape: Shape,
}

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Shape, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = Shape;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a key and its value")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut pair: A) -> std::result::Result<Shape, A::Error> {
        let malformed = || A::Error::custom("an escaped object is malformed");
        self.part.seen.parts.entry().map_err(ends)?;
        let key = Key { parts: &mut self.part.seen.parts, shape: self.shape };
        let shape = pair.next_element_seed(key)?.ok_or_else(malformed)?.shape;
        pair.next_element_seed(self.part.inner()?)?.ok_or_else(malformed)?;
        if pair.next_element::<serde::de::IgnoredAny>()?.is_some() { Err(malformed()) } else { Ok(shape) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::sandbox::{Value, Wire};
    use proptest::prelude::*;

    fn check_value(json: &str, blobs: usize) -> Result<()> {
        super::check_value(json, blobs, Limits::default().max_value_parts)
    }

    fn problem(json: &str, blobs: usize) -> String {
        let error = check_value(json, blobs).unwrap_err();
        assert_eq!(error.code(), "ERR_INVALID_VALUE");
        error.to_string()
    }

    #[test]
    fn what_is_not_strict_json_is_refused() {
        for text in
            ["", "{", "1 2", "[1,]", "{a:1}", "NaN", "01", "1e999", "-1e400", r#""\ud800""#, r#""\x""#, "\"\n\"", "[]]", "\u{feff}1"]
        {
            problem(text, 0);
        }
        for text in ["1", " [1.5, -0, 1e-400, null] ", r#"{"a":{"b":"\ud83d\ude00"},"a":1}"#, "18446744073709551616"] {
            check_value(text, 0).unwrap();
        }
    }

    #[test]
    fn as_many_levels_as_are_promised_are_taken_and_no_more() {
        let lists = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        let records = |levels: usize| r#"{"a":"#.repeat(levels - 1) + "{}" + &"}".repeat(levels - 1);
        for nested in [lists, records] {
            check_value(&nested(MAX_LEVELS), 0).unwrap();
            // The value must also be readable when it is inside its envelope.
            let wire = Wire { json: format!("{{\"value\":{}}}", nested(MAX_LEVELS)), blobs: Vec::new() };
            Value::from_wire(wire).unwrap();
            for levels in [MAX_LEVELS + 1, 1_000_000] {
                assert!(problem(&nested(levels), 0).contains("more than 126 levels"));
            }
        }
    }

    #[test]
    fn each_blob_is_there_and_named_once() {
        check_value(r#"[{"$bytes":1},{"a":{"$bytes":0}}]"#, 2).unwrap();
        assert!(problem(r#"[{"$bytes":0},{"$bytes":0}]"#, 1).contains("blob 0 is named twice"));
        assert!(problem(r#"{"$bytes":7}"#, 1).contains("there is no blob 7"));
        let many = format!("[{}]", vec![r#"{"$bytes":0}"#; 320_000].join(","));
        assert!(problem(&many, 1).contains("named twice"));
        assert!(problem("[]", 10_001).contains("10001 Uint8Arrays"));
    }

    #[test]
    fn a_placeholder_is_one_that_a_codec_writes() {
        for json in [
            r#"{"$bytes":"0"}"#,
            r#"{"$bytes":-1}"#,
            r#"{"$bytes":0.0}"#,
            r#"{"$bytes":null}"#,
            r#"{"$bytes":{}}"#,
            r#"{"$bytes":0,"a":1}"#,
            r#"{"a":1,"$bytes":0}"#,
            r#"{"$bytes":0,"$bytes":1}"#,
            r#"{"$bytes":[1]}"#,
            r#"{"$bytes":[["a"]]}"#,
            r#"{"$bytes":[[1,2]]}"#,
            r#"{"$bytes":[["a",1,2]]}"#,
            r#"{"$bytes":[["a",{"$bytes":"constructor"}]]}"#,
        ] {
            problem(json, 2);
        }
        check_value(r#"{"$bytes":[["$bytes",{"$bytes":0}],["b",[1]]]}"#, 1).unwrap();
    }

    #[test]
    fn a_placeholder_is_written_so_that_a_reader_of_the_text_finds_it_too() {
        for json in [
            r#"{ "$bytes":0}"#,
            r#"{"$bytes" :0}"#,
            "{\"$bytes\"\n:0}",
            r#"{"\u0024bytes":0}"#,
            r#"[{"$bytes":0},{"$byte\u0073":1}]"#,
            r#"{ "$bytes":[["a",1]]}"#,
            r#"{"$bytes":[["$bytes",{"\u0024bytes":0}]]}"#,
        ] {
            assert!(problem(json, 2).contains("blanks or escapes"), "{json}");
        }
        for json in [r#"["{\"$bytes\":0}",{"$bytes":0}]"#, r#"{"a{":"$bytes","b":{"$bytes":[["a","{\"$bytes\":"]]}}"#] {
            check_value(json, 1).unwrap();
        }
    }

    fn has_too_many_parts(json: &str, limit: usize) -> bool {
        match super::check_value(json, 0, limit) {
            Ok(()) => false,
            Err(Error::ValueTooManyParts { limit: named }) => named == limit,
            Err(error) => panic!("{error}"),
        }
    }

    fn list(items: impl Iterator<Item = String>) -> String {
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    }

    #[test]
    fn a_value_of_more_parts_than_node_reads_in_time_is_refused() {
        let limit = Limits::default().max_value_parts;
        let nested = "[".repeat(100) + &"]".repeat(100);
        let (repeated, numbered) = (|text: &str, count| list((0..count).map(|_| text.to_owned())), |count| 0..count);
        for json in [
            repeated(&nested, 20_000),
            repeated("{}", 1_150_000),
            list(numbered(110_000).map(|key| format!("{{\"k{key}\":1}}"))),
            format!("{{{}}}", numbered(200_000).map(|key| format!("\"k{key}\":1")).collect::<Vec<_>>().join(",")),
            list(numbered(500_000).map(|text| format!("\"{text}\""))),
            repeated(r#"{"$bytes":[["$bytes",1]]}"#, 150_000),
        ] {
            assert!(has_too_many_parts(&json, limit), "{}", &json[..50]);
        }
        // These are values within `maxValueBytes` that a run can be expected to return.
        for json in [
            list(
                numbered(70_000)
                    .map(|row| format!(r#"{{"id":{row},"name":"user {row}","kind":"a","on":true,"mail":"{row}@example.com"}}"#)),
            ),
            repeated("1", 2_000_000),
            repeated("\"yes\"", 690_000),
            format!("\"{}\"", "x".repeat(4_000_000)),
        ] {
            assert!(!has_too_many_parts(&json, limit), "{}", &json[..50]);
        }
    }

    #[test]
    fn each_part_is_counted_by_its_cost() {
        let long = "x".repeat(200);
        for (part, cost) in [
            ("[]", 1),
            ("{}", 1),
            ("[[],{}]", 3),
            (r#""a""#, 1),
            (r#""a text of more characters""#, 0),
            (r#"["a","a"]"#, 2),
            (r#"{"a":1}"#, 4),
            (r#"[{"a":1},{"a":1}]"#, 6),
            (r#"[{"a":1,"b":1},{"b":1,"a":1}]"#, 15),
            // The costs are: the object and its key, the list and the object that is created from it, and two entries with their keys.
            (r#"{"$bytes":[["a",1],["b",2]]}"#, 4 + 2 + 2 * 5),
            ("1", 0),
        ] {
            // The list and its text cost one part. The text makes the value long enough that its parts are counted.
            let json = format!("[\"{long}\",{part}]");
            assert!(!has_too_many_parts(&json, cost + 1), "{part}");
            assert!(has_too_many_parts(&json, cost), "{part}");
        }
    }

    #[test]
    fn no_value_has_more_parts_than_its_text_has_bytes() {
        for json in [
            r#"{"a":1}"#,
            "[[[]]]",
            r#"["","a",{}]"#,
            r#"{"":{"":{"":{}}}}"#,
            r#"{"$bytes":[["",1]]}"#,
            r#"{"$bytes":[["",{"":1}],["a",[]]]}"#,
        ] {
            assert!(!has_too_many_parts(json, json.len() - 1), "{json}");
        }
    }

    proptest! {
        #[test]
        fn what_passes_is_read_without_an_error(
            parts in prop::collection::vec(r#"\{"\$bytes":(0|1|"0"|\[\["a",1\]\]|\[\])\}|\{"a":(1|1e9|1e999)\}|\[\]|"x""#, 0..4),
            closed in any::<bool>(),
        ) {
            let json = format!("[{}{}", parts.join(","), if closed { "]" } else { "" });
            let wire = Wire { json: json.clone(), blobs: vec![vec![1]; 2] };
            prop_assert_eq!(check_value(&json, 2).is_ok(), Value::from_wire(wire).is_ok(), "{}", json);
        }
    }
}
