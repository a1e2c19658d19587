//! Values that are exchanged with the guest: JSON, extended by byte arrays.
//!
//! A [`Wire`] is one JSON text and a list of byte arrays ("blobs"). In the JSON, `{"$bytes": index}` represents a blob. An object that
//! itself has the key `$bytes` is written as `{"$bytes": [[key, value], …]}`, so that no data of a server or an agent can look like a blob.
//! `guest/runtime/src/codec.js` uses the same form in the guest.

use serde_json::{Map, Number, Value as Json};

use super::frame::{Writer, parts_of};
use crate::error::{Error, ErrorText, Result};
use crate::limits::MAX_BLOBS;
use crate::text::json::Counter;

pub(super) const MARK: &str = "$bytes";

/// A JSON value, extended by byte arrays. Objects keep the order of their keys.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    /// A `Uint8Array` in the guest and in Node.
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Record(Vec<(String, Value)>),
}

/// A value in the form that is exchanged with the VM: one JSON text, and the blobs to which the text refers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wire {
    pub json: String,
    pub blobs: Vec<Vec<u8>>,
}

impl Value {
    /// Returns a record with the given named fields.
    ///
    /// ```
    /// use hyperlight_mcp::sandbox::Value;
    /// let error = Value::record([("error", Value::from("no such city"))]);
    /// assert_eq!(error.to_wire().json, r#"{"error":"no such city"}"#);
    /// ```
    pub fn record<const N: usize>(fields: [(&str, Self); N]) -> Self {
        Self::Record(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Converts the value to the form that is exchanged with the VM.
    #[must_use]
    pub fn to_wire(&self) -> Wire {
        let mut writer = Writer::new(Vec::new());
        writer.value(self);
        let blobs = writer.blobs.into_iter().map(<[u8]>::to_vec).collect();
        // The writer has only written JSON, which is valid UTF-8.
        Wire { json: String::from_utf8(writer.sink).unwrap_or_default(), blobs }
    }

    /// Returns the size in bytes that counts against a limit when the value is exchanged with the VM: the bytes of the JSON and of the
    /// blobs.
    #[must_use]
    pub fn wire_size(&self) -> usize {
        let mut writer = Writer::new(Counter::default());
        writer.value(self);
        writer.sink.0 + writer.blobs.iter().map(|blob| blob.len()).sum::<usize>()
    }

    /// Parses a value that was received from the VM.
    ///
    /// # Errors
    /// `ERR_INVALID_VALUE` if the JSON cannot be parsed (for example because it has lone surrogates or more than 128 nesting levels), if
    /// the JSON refers to a blob that does not exist or refers to one blob twice, or if there are more than [`MAX_BLOBS`] blobs.
    pub fn from_wire(wire: Wire) -> Result<Self> {
        check_blobs(wire.blobs.len())?;
        let json: Json = serde_json::from_str(&wire.json).map_err(|error| invalid(&error.to_string()))?;
        let mut blobs: Vec<Option<Vec<u8>>> = wire.blobs.into_iter().map(Some).collect();
        read(json, &mut |index| blobs.get_mut(index)?.take())
    }

    /// Converts the value to plain JSON, which an MCP server can read. Bytes become a base64 text.
    #[must_use]
    pub fn into_json(self) -> Json {
        use base64::Engine as _;
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(value),
            Self::Number(value) => Json::Number(value),
            Self::Text(value) => Json::String(value),
            Self::Bytes(bytes) => Json::String(base64::engine::general_purpose::STANDARD.encode(bytes)),
            Self::List(items) => Json::Array(items.into_iter().map(Self::into_json).collect()),
            Self::Record(fields) => Json::Object(fields.into_iter().map(|(key, value)| (key, value.into_json())).collect()),
        }
    }
}

impl From<Json> for Value {
    fn from(json: Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(value),
            Json::Number(value) => Self::Number(value),
            Json::String(value) => Self::Text(value),
            Json::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Json::Object(fields) => Self::Record(fields.into_iter().map(|(key, value)| (key, Self::from(value))).collect()),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Wire {
    /// Returns the wire form of `null`.
    #[must_use]
    pub fn null() -> Self {
        Self { json: "null".to_owned(), blobs: Vec::new() }
    }

    /// Returns the size in bytes that counts against a limit: the bytes of the JSON and of the blobs.
    #[must_use]
    pub fn size(&self) -> usize {
        self.json.len() + self.blobs.iter().map(Vec::len).sum::<usize>()
    }

    /// Encodes the value as one frame of byte strings. The JSON comes first.
    pub(crate) fn to_frame(&self) -> Result<Vec<u8>> {
        let mut parts: Vec<&[u8]> = Vec::with_capacity(self.blobs.len() + 1);
        parts.push(self.json.as_bytes());
        parts.extend(self.blobs.iter().map(Vec::as_slice));
        hyperlight_js_common::encode_binaries(&parts).map_err(|error| Error::Internal(error.to_string().into()))
    }

    pub(crate) fn from_frame(frame: &[u8]) -> Result<Self> {
        let (json, blobs) = parts_of(frame)?;
        Ok(Self { json: json.to_owned(), blobs: blobs.into_iter().map(<[u8]>::to_vec).collect() })
    }
}

/// Parses a value from the parts of its frame.
pub(super) fn read_parts(json: &str, blobs: &[&[u8]]) -> Result<Value> {
    check_blobs(blobs.len())?;
    let json: Json = serde_json::from_str(json).map_err(|error| invalid(&error.to_string()))?;
    let mut blobs: Vec<Option<&[u8]>> = blobs.iter().copied().map(Some).collect();
    read(json, &mut |index| blobs.get_mut(index)?.take().map(<[u8]>::to_vec))
}

/// Returns an error if a value has more than [`MAX_BLOBS`] blobs.
pub(super) fn check_blobs(count: usize) -> Result<()> {
    if count > MAX_BLOBS { Err(invalid(&format!("it has {count} Uint8Arrays, and at most {MAX_BLOBS} are allowed"))) } else { Ok(()) }
}

pub(super) fn invalid(problem: &str) -> Error {
    Error::InvalidValue { problem: ErrorText::own(problem) }
}

/// A function that removes and returns a blob by its index. Each blob can be taken only once.
type Blobs<'a> = dyn FnMut(usize) -> Option<Vec<u8>> + 'a;

fn read(json: Json, blobs: &mut Blobs<'_>) -> Result<Value> {
    Ok(match json {
        Json::Array(items) => Value::List(items.into_iter().map(|item| read(item, blobs)).collect::<Result<_>>()?),
        Json::Object(fields) => match fields.get(MARK) {
            Some(Json::Number(index)) if fields.len() == 1 => read_blob(index, blobs)?,
            Some(Json::Array(_)) if fields.len() == 1 => read_escaped(fields, blobs)?,
            Some(_) => return Err(invalid("a placeholder for bytes is malformed")),
            None => Value::Record(fields.into_iter().map(|(key, value)| Ok((key, read(value, blobs)?))).collect::<Result<_>>()?),
        },
        other => Value::from(other),
    })
}

fn read_blob(index: &Number, blobs: &mut Blobs<'_>) -> Result<Value> {
    let bytes = index.as_u64().and_then(|index| usize::try_from(index).ok()).and_then(blobs);
    bytes.map(Value::Bytes).ok_or_else(|| invalid(&format!("there is no blob {index}")))
}

fn read_escaped(mut fields: Map<String, Json>, blobs: &mut Blobs<'_>) -> Result<Value> {
    let Some(Json::Array(entries)) = fields.remove(MARK) else {
        return Err(invalid("an escaped object is malformed"));
    };
    let mut record = Vec::with_capacity(entries.len());
    for entry in entries {
        let Json::Array(pair) = entry else { return Err(invalid("an escaped object is malformed")) };
        let [Json::String(key), value] = <[Json; 2]>::try_from(pair).map_err(|_| invalid("an escaped object is malformed"))? else {
            return Err(invalid("an escaped object is malformed"));
        };
        record.push((key, read(value, blobs)?));
    }
    Ok(Value::Record(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(value: &Value) -> Value {
        let frame = value.to_wire().to_frame().unwrap();
        Value::from_wire(Wire::from_frame(&frame).unwrap()).unwrap()
    }

    #[test]
    fn every_kind_of_value_survives_the_crossing() {
        let value = Value::record([
            ("list", Value::List(vec![Value::Null, Value::Bool(true), Value::from("ß\u{1}\"")])),
            ("number", Value::Number(Number::from_f64(0.1).unwrap())),
            ("bytes", Value::Bytes(vec![0, 255, 7])),
            ("more", Value::Bytes(Vec::new())),
        ]);
        assert_eq!(round_trip(&value), value);
    }

    #[test]
    fn an_object_that_looks_like_bytes_stays_an_object() {
        let forged = Value::from(serde_json::json!({ "$bytes": 0, "x": { "$bytes": [["a", 1]] } }));
        let both = Value::List(vec![forged, Value::Bytes(vec![1])]);
        assert_eq!(round_trip(&both), both);
    }

    #[test]
    fn a_placeholder_for_a_blob_that_is_not_there_is_an_error() {
        for json in [r#"{"$bytes":0}"#, r#"{"$bytes":-1}"#, r#"{"$bytes":"x"}"#, r#"{"$bytes":[[1,2]]}"#, r#"{"$bytes":[1]}"#] {
            let error = Value::from_wire(Wire { json: json.into(), blobs: Vec::new() }).unwrap_err();
            assert_eq!(error.code(), "ERR_INVALID_VALUE", "{json}");
        }
    }

    #[test]
    fn a_blob_is_had_once_and_more_of_them_than_cross_together_are_refused() {
        let twice = Wire { json: r#"[{"$bytes":0},{"$bytes":0}]"#.into(), blobs: vec![vec![1]] };
        assert_eq!(Value::from_wire(twice).unwrap_err().code(), "ERR_INVALID_VALUE");
        let bytes = |count| Value::List(vec![Value::Bytes(Vec::new()); count]);
        assert_eq!(round_trip(&bytes(MAX_BLOBS)), bytes(MAX_BLOBS));
        let error = Value::from_wire(bytes(MAX_BLOBS + 1).to_wire()).unwrap_err().to_string();
        assert!(error.contains("10001 Uint8Arrays, and at most 10000"), "{error}");
    }

    #[test]
    fn bytes_become_base64_where_only_json_can_go() {
        assert_eq!(Value::Bytes(b"hello".to_vec()).into_json(), serde_json::json!("aGVsbG8="));
    }

    #[test]
    fn a_truncated_frame_is_an_error() {
        let frame = Value::Bytes(vec![9; 10]).to_wire().to_frame().unwrap();
        for end in 0..frame.len() {
            assert!(Wire::from_frame(&frame[..end]).is_err(), "{end}");
        }
    }
}
