//! The frames that are exchanged with the VM. A frame contains one JSON text and the blobs to which the text refers, each preceded by its
//! length (the format of `hyperlight_js_common::encode_binaries`). Frames are written in one pass and read without copying.

use super::host::{Arguments, HostReply};
use super::outcome::GuestOutcome;
use super::value::{MARK, Value, Wire, check_blobs, invalid, read_parts};
use crate::error::{Error, ErrorText, Result};
use crate::text::json::Sink;

/// The maximum size in bytes of the message of an exception in the guest.
const MAX_THROWN_BYTES: usize = 32 * 1024;
/// The size in bytes of each integer in a frame. An integer is the number of parts, or the length of a part.
const WORD: usize = 4;
/// Additional capacity in bytes for the JSON syntax around texts and bytes.
const ENVELOPE_BYTES: usize = 64;

/// Writes values as JSON, and collects their blobs.
pub(super) struct Writer<'a, S> {
    pub(super) sink: S,
    pub(super) blobs: Vec<&'a [u8]>,
    texts: Texts,
}

/// The place of long texts in a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Texts {
    /// In the JSON, as quoted strings.
    Within,
    /// In separate parts, like bytes. The host then does not have to quote the texts, and the guest does not have to parse them. Only a
    /// guest can read this form (`host.rs`, `codec.js`).
    Apart,
}

/// The length in bytes from which a text is treated as long.
const LONG_TEXT_BYTES: usize = 4096;

impl<'a, S: Sink> Writer<'a, S> {
    pub(super) fn new(sink: S) -> Self {
        Self { sink, blobs: Vec::new(), texts: Texts::Within }
    }

    pub(super) fn value(&mut self, value: &'a Value) {
        match value {
            Value::Null => self.sink.put(b"null"),
            Value::Bool(true) => self.sink.put(b"true"),
            Value::Bool(false) => self.sink.put(b"false"),
            Value::Number(number) => self.sink.json(number),
            Value::Text(text) if self.texts == Texts::Apart && text.len() >= LONG_TEXT_BYTES => {
                let index = self.blobs.len();
                self.blobs.push(text.as_bytes());
                self.open_mark();
                self.sink.put(b"\"");
                self.sink.json(&index);
                self.sink.put(b"\"}");
            }
            Value::Text(text) => self.sink.json(text),
            Value::Bytes(bytes) => {
                let index = self.blobs.len();
                self.blobs.push(bytes);
                self.open_mark();
                self.sink.json(&index);
                self.sink.put(b"}");
            }
            Value::List(items) => {
                self.sink.put(b"[");
                for (index, item) in items.iter().enumerate() {
                    self.sink.separate(index);
                    self.value(item);
                }
                self.sink.put(b"]");
            }
            Value::Record(fields) if fields.iter().any(|(key, _)| key == MARK) => self.escaped(fields),
            Value::Record(fields) => {
                self.sink.put(b"{");
                for (index, (key, value)) in fields.iter().enumerate() {
                    self.sink.separate(index);
                    self.sink.json(key);
                    self.sink.put(b":");
                    self.value(value);
                }
                self.sink.put(b"}");
            }
        }
    }

    /// Writes `{"name":value}`.
    fn field(&mut self, name: &str, value: &'a Value) {
        self.sink.put(b"{");
        self.sink.json(name);
        self.sink.put(b":");
        self.value(value);
        self.sink.put(b"}");
    }

    fn escaped(&mut self, fields: &'a [(String, Value)]) {
        self.open_mark();
        self.sink.put(b"[");
        for (index, (key, value)) in fields.iter().enumerate() {
            self.sink.separate(index);
            self.sink.put(b"[");
            self.sink.json(key);
            self.sink.put(b",");
            self.value(value);
            self.sink.put(b"]");
        }
        self.sink.put(b"]}");
    }

    fn open_mark(&mut self) {
        self.sink.put(b"{\"");
        self.sink.put(MARK.as_bytes());
        self.sink.put(b"\":");
    }
}

/// Returns a frame with the JSON that `write` writes, followed by the blobs that `write` collects.
fn frame_of<'a>(value: &Value, texts: Texts, write: impl FnOnce(&mut Writer<'a, Vec<u8>>)) -> Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(roughly(value) + ENVELOPE_BYTES);
    frame.resize(2 * WORD, 0);
    let mut writer = Writer { texts, ..Writer::new(frame) };
    write(&mut writer);
    let Writer { sink: mut frame, blobs, .. } = writer;
    let json_bytes = frame.len() - 2 * WORD;
    frame[..WORD].copy_from_slice(&word(blobs.len() + 1)?);
    frame[WORD..2 * WORD].copy_from_slice(&word(json_bytes)?);
    frame.reserve(blobs.iter().map(|blob| WORD + blob.len()).sum());
    for blob in blobs {
        frame.extend_from_slice(&word(blob.len())?);
        frame.extend_from_slice(blob);
    }
    Ok(frame)
}

/// Estimates the length of a value's frame, so that a long text is not moved while the frame grows.
fn roughly(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len() + text.len() / 16,
        Value::Bytes(bytes) => bytes.len() + ENVELOPE_BYTES,
        Value::List(items) => items.iter().map(roughly).sum(),
        Value::Record(fields) => fields.iter().map(|(key, value)| key.len() + roughly(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn word(number: usize) -> Result<[u8; WORD]> {
    u32::try_from(number).map(u32::to_le_bytes).map_err(|_| Error::Internal("a frame has more than 4 GiB".into()))
}

/// Splits a frame into its JSON and its blobs.
pub(super) fn parts_of(frame: &[u8]) -> Result<(&str, Vec<&[u8]>)> {
    let (count, mut rest) = take_word(frame)?;
    check_blobs(count.saturating_sub(1))?;
    // Each part has a length word, so the size of the frame limits this capacity.
    let mut blobs = Vec::with_capacity(count.min(rest.len() / WORD));
    for _ in 0..count {
        let (length, after) = take_word(rest)?;
        let (part, after) = after.split_at_checked(length).ok_or_else(|| invalid("the frame is incomplete"))?;
        blobs.push(part);
        rest = after;
    }
    if blobs.is_empty() {
        return Err(invalid("the frame is empty"));
    }
    let json = std::str::from_utf8(blobs.remove(0)).map_err(|error| invalid(&error.to_string()))?;
    Ok((json, blobs))
}

fn take_word(bytes: &[u8]) -> Result<(usize, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<WORD>().ok_or_else(|| invalid("the frame is incomplete"))?;
    Ok((usize::try_from(u32::from_le_bytes(*word)).unwrap_or(usize::MAX), rest))
}

/// Returns the frame of one value, in the form in which a guest writes it.
///
/// # Errors
/// `ERR_INTERNAL` above 4 GiB.
#[doc(hidden)]
pub fn value_frame(value: &Value) -> Result<Vec<u8>> {
    frame_of(value, Texts::Within, |writer| writer.value(value))
}

/// Parses the arguments of a call from the guest's frame.
#[doc(hidden)]
#[must_use]
pub fn parse_arguments(frame: &[u8]) -> Arguments {
    given(parts_of(frame).and_then(|(json, blobs)| arguments_in(json, &blobs)))
}

fn given(read: Result<Arguments>) -> Arguments {
    match read {
        Ok(arguments) => arguments,
        Err(Error::InvalidValue { problem }) => Arguments::Invalid(problem.shown().to_owned()),
        Err(error) => Arguments::Invalid(error.to_string()),
    }
}

/// Parses the arguments of a call that was submitted in an exchange.
pub(super) fn arguments_of_wire(wire: &Wire) -> Arguments {
    let blobs: Vec<&[u8]> = wire.blobs.iter().map(Vec::as_slice).collect();
    given(arguments_in(&wire.json, &blobs))
}

fn arguments_in(json: &str, blobs: &[&[u8]]) -> Result<Arguments> {
    // Arguments are a list. If the arguments were too large, the guest sends an object with their size instead.
    if json.trim_start().starts_with('{')
        && let Ok(GuestOutcome::Oversize(size)) = serde_json::from_str(json)
    {
        return Ok(Arguments::Oversize(size));
    }
    match read_parts(json, blobs)? {
        Value::List(arguments) => Ok(Arguments::Given(arguments)),
        _ => Err(invalid("the arguments are not a list")),
    }
}

/// Encodes a reply as a frame for the guest.
#[doc(hidden)]
#[must_use]
pub fn encode_reply(reply: HostReply) -> Vec<u8> {
    let frame = match reply_frame(reply) {
        ReplyFrame::Field(name, value) => frame_of(&value, Texts::Apart, |writer| writer.field(name, &value)),
        ReplyFrame::Written(wire) => wire.to_frame(),
    };
    // Encoding fails only for more than 4 GiB. The bridge limits replies to a much smaller size.
    frame.unwrap_or_default()
}

/// Encodes a reply. If the reply does not fit into the guest's buffer, encodes an error instead. Writing past the end of the buffer would
/// stop the guest.
pub(super) fn fitting_frame(reply: HostReply, capacity: usize) -> Vec<u8> {
    let frame = encode_reply(reply);
    if frame.len() <= capacity { frame } else { encode_reply(too_large(frame.len(), capacity)) }
}

/// Encodes a reply that is one of several replies in an answer. If it does not fit into the guest's buffer, encodes an error instead.
pub(super) fn fitting(reply: HostReply, capacity: usize) -> Wire {
    let wire = to_wire(reply);
    let size = frame_size(&wire);
    if size <= capacity { wire } else { to_wire(too_large(size, capacity)) }
}

/// Returns the size in bytes that a value has in a frame. The length word of each part is included.
pub(super) fn frame_size(wire: &Wire) -> usize {
    wire.size() + WORD * (1 + wire.blobs.len())
}

fn to_wire(reply: HostReply) -> Wire {
    match reply_frame(reply) {
        ReplyFrame::Field(name, value) => Value::Record(vec![(name.to_owned(), value)]).to_wire(),
        ReplyFrame::Written(wire) => wire,
    }
}

fn too_large(size: usize, capacity: usize) -> HostReply {
    let (what, size) = ("an answer to the guest".to_owned(), size.to_string());
    thrown_by(&Error::ResponseTooLarge { what: ErrorText::own(what), size: size.into(), limit: capacity, limit_name: "the guest's buffer" })
}

/// Converts an error to the exception that the guest gets.
pub(super) fn thrown_by(error: &Error) -> HostReply {
    HostReply::Throw { name: None, message: error.to_string(), code: Some(error.code().to_owned()) }
}

/// A reply in the form that the guest reads: `{ value }` or `{ thrown }`.
enum ReplyFrame {
    Field(&'static str, Value),
    Written(Wire),
}

fn reply_frame(reply: HostReply) -> ReplyFrame {
    match reply {
        HostReply::Value(value) => ReplyFrame::Field("value", value),
        HostReply::Written(wire) => ReplyFrame::Written(wire),
        HostReply::Throw { name, message, code } => ReplyFrame::Field("thrown", thrown(name, message, code)),
    }
}

fn thrown(name: Option<String>, message: String, code: Option<String>) -> Value {
    let end = message.floor_char_boundary(MAX_THROWN_BYTES);
    let message = if end < message.len() { format!("{}… [cut]", &message[..end]) } else { message };
    let texts = [("message", Some(message)), ("name", name), ("code", code)];
    Value::Record(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), Value::Text(text?)))).collect())
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
