//! Validates a value that a guest returned, before the value is used. The value must be JSON that every parser reads in the same way, and
//! it must refer to each blob at most once. Node and this crate can read a valid value without an error.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::value::{MARK, check_blobs, invalid};
use crate::error::Result;
use crate::limits::MAX_LEVELS;

/// Checks the JSON text of one value and its references to `blobs` blobs.
///
/// # Errors
/// `ERR_INVALID_VALUE` for text that is not strict JSON (also for numbers beyond a double and lone surrogates), for more than
/// [`MAX_LEVELS`] levels, for malformed placeholders, and for a blob that does not exist or is referred to twice.
pub(super) fn check_value(json: &str, blobs: usize) -> Result<()> {
    check_blobs(blobs)?;
    let mut blobs = vec![Blob::Unnamed; blobs];
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let looked_at = Part { blobs: &mut blobs, level: 0 }.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    looked_at.map_err(|error| invalid(&error.to_string()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Blob {
    Unnamed,
    Named,
}

/// A part of the value, at a nesting level.
struct Part<'a> {
    blobs: &'a mut [Blob],
    level: usize,
}

impl Part<'_> {
    /// Returns the next level, for the items of this list or record.
    fn inner<E: serde::de::Error>(&mut self) -> std::result::Result<Part<'_>, E> {
        if self.level >= MAX_LEVELS {
            return Err(E::custom(format!("it has more than {MAX_LEVELS} levels")));
        }
        Ok(Part { blobs: self.blobs, level: self.level + 1 })
    }
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

    fn visit_str<E>(self, _: &str) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> std::result::Result<(), A::Error> {
        while items.next_element_seed(self.inner()?)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> std::result::Result<(), A::Error> {
        // An empty object counts as a level as well.
        self.inner::<A::Error>()?;
        let mut count = 0;
        while let Some(IsMark(is_mark)) = fields.next_key()? {
            count += 1;
            if !is_mark {
                fields.next_value_seed(self.inner()?)?;
                continue;
            }
            fields.next_value_seed(Placeholder(self.inner()?))?;
            if count > 1 || fields.next_key::<IsMark>()?.is_some() {
                return Err(A::Error::custom("a placeholder for bytes has other keys beside it"));
            }
            return Ok(());
        }
        Ok(())
    }
}

/// A key of an object. True if it is the key of placeholders.
struct IsMark(bool);

impl<'de> serde::Deserialize<'de> for IsMark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Key;
        impl Visitor<'_> for Key {
            type Value = IsMark;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> std::result::Result<IsMark, E> {
                Ok(IsMark(key == MARK))
            }
        }
        deserializer.deserialize_str(Key)
    }
}

/// The value of the placeholders' key: the index of a blob, or the escaped fields of a record that itself has this key.
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
        match usize::try_from(index).ok().and_then(|index| self.0.blobs.get_mut(index)) {
            None => Err(E::custom(format!("there is no blob {index}"))),
            Some(Blob::Named) => Err(E::custom(format!("blob {index} is named twice"))),
            Some(blob) => {
                *blob = Blob::Named;
                Ok(())
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut entries: A) -> std::result::Result<(), A::Error> {
        while entries.next_element_seed(Entry(self.0.inner()?))?.is_some() {}
        Ok(())
    }
}

/// One `[key, value]` pair of an escaped record.
struct Entry<'a>(Part<'a>);

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a key and its value")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut pair: A) -> std::result::Result<(), A::Error> {
        let malformed = || A::Error::custom("an escaped object is malformed");
        pair.next_element::<IsMark>()?.ok_or_else(malformed)?;
        pair.next_element_seed(self.0.inner()?)?.ok_or_else(malformed)?;
        if pair.next_element::<serde::de::IgnoredAny>()?.is_some() { Err(malformed()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Value, Wire};
    use proptest::prelude::*;

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
            // The value must also be readable inside its envelope.
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
