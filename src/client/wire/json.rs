//! Parses JSON from a server, and refuses a text whose parsed value would need too much memory. A parsed list of small numbers such as
//! `[0,0,…]` needs 36 times as much memory as its text. A message within the length limit could therefore need half a gigabyte.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;

use crate::limits::MAX_MESSAGE_MEMORY_BYTES;

/// Memory in bytes of one value. A key needs about the same amount.
const VALUE: usize = size_of::<Json>();
/// Additional memory in bytes of an object or a list that is not empty. Such a value allocates space for more entries than it has.
const CONTAINER: usize = 256;
/// Length in bytes up to which the parsed value of a text cannot exceed the memory limit.
const SMALL: usize = 256 * 1024;

/// The reason why a text cannot be parsed.
#[derive(Debug)]
pub(in crate::client) enum ParseFailure {
    Invalid(serde_json::Error),
    /// The parsed value would need more memory than one message may take.
    TooLarge,
}

impl fmt::Display for ParseFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(out),
            Self::TooLarge => write!(out, "it would take more than {MAX_MESSAGE_MEMORY_BYTES} bytes of memory"),
        }
    }
}

/// Parses exactly one value. Only whitespace may follow it.
pub(in crate::client) fn read(text: &[u8]) -> Result<Json, ParseFailure> {
    if text.len() > SMALL {
        // The memory is counted before any value is built, because memory that a thread has freed is seldom returned to the system by the
        // allocator.
        let left = Cell::new(Some(MAX_MESSAGE_MEMORY_BYTES));
        let counted = Count(&left).deserialize(&mut serde_json::Deserializer::from_slice(text));
        if counted.is_err() && left.get().is_none() {
            return Err(ParseFailure::TooLarge);
        }
    }
    serde_json::from_slice(text).map_err(ParseFailure::Invalid)
}

/// Counts the memory that a value needs, and subtracts it from the bytes left. The cell becomes `None` when too few bytes are left.
#[derive(Clone, Copy)]
struct Count<'a>(&'a Cell<Option<usize>>);

impl Count<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().and_then(|left| left.checked_sub(bytes));
        self.0.set(left);
        left.map(drop).ok_or_else(|| E::custom("too large"))
    }
}

impl<'de> DeserializeSeed<'de> for Count<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.take(VALUE)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Count<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.take(value.len())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if items.next_element_seed(self)?.is_some() {
            self.take(CONTAINER)?;
            while items.next_element_seed(self)?.is_some() {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        if entries.next_key_seed(self)?.is_some() {
            self.take(CONTAINER)?;
            entries.next_value_seed(self)?;
            while entries.next_key_seed(self)?.is_some() {
                entries.next_value_seed(self)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn what_may_be_read_is_read_as_ever_however_long_it_is() {
        let padding = "x".repeat(MIB);
        for text in [r#" {"b":1,"a":[true,false,null,-1,1e300,"ü\u0000\ud83d\ude00",{}],"b":2} "#, "[]", "3", "\"x\""] {
            let long = format!("[\"{padding}\", {text}]");
            for text in [text, &long] {
                assert_eq!(read(text.as_bytes()).unwrap(), serde_json::from_str::<Json>(text).unwrap());
            }
        }
    }

    #[test]
    fn what_is_no_json_is_refused_as_ever_however_long_it_is() {
        let deep = format!("{}{}", "[".repeat(MIB), "]".repeat(MIB));
        let cut = format!("[\"{}", "x".repeat(MIB));
        for text in [&b"{"[..], b"", b"[1,]", b"1 2", b"\"\xff\"", b"{\"a\"}", deep.as_bytes(), cut.as_bytes()] {
            let expected = serde_json::from_slice::<Json>(text).unwrap_err().to_string();
            assert_eq!(read(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_long_text_may_be_read_and_a_long_list_of_little_may_not() {
        let long = format!("\"{}\"", "x".repeat(16 * MIB - 2));
        assert!(read(long.as_bytes()).is_ok());
        // A result of the default maximum size for guests that consists of the smallest possible values.
        let many = |count: usize| format!("[{}0]", "0,".repeat(count));
        assert!(read(many(MIB / 2 - 10).as_bytes()).is_ok());
        let objects = |entry: &str| format!("[{}0]", format!("{entry},").repeat(4 * MIB / entry.len()));
        for large in [many(2 * MIB), objects("{\"a\":[[]]}"), objects("[[[[]]]]"), objects("{\"a\":1,\"b\":2}")] {
            assert!(matches!(read(large.as_bytes()), Err(ParseFailure::TooLarge)), "{}", &large[..32]);
        }
    }
}
