//! Takes images and sounds out of a run's value, so that a model gets them as content of that kind. As text they would be long and of no use.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use crate::sandbox::Value;

/// The largest number of images and sounds of one value.
const MAX_MEDIA: usize = 10;
/// The largest size of one of them. Its base64 has 5 MB, which is what providers accept.
const MAX_MEDIA_BYTES: usize = 3_750_000;
/// The part of the budget that images and sounds may take.
const MEDIA_SHARE: (usize, usize) = (3, 4);
/// The number of tokens of an image: one for each 750 pixels, within these limits, as providers scale larger images.
const IMAGE_TOKENS: (usize, usize) = (85, 1_600);
const PIXELS_PER_TOKEN: u64 = 750;
/// The number of bytes of a sound for each token.
const AUDIO_BYTES_PER_TOKEN: usize = 500;

/// Content that is not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    Image,
    Audio,
}

/// An image or a sound of a run's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    pub kind: MediaKind,
    pub mime_type: String,
    pub data: Vec<u8>,
    /// The estimated number of a model's tokens.
    pub tokens: usize,
}

impl Media {
    /// Returns the content block of MCP: `{ type, mimeType, data }`, with `data` as base64.
    #[must_use]
    pub fn block(&self) -> Json {
        json!({ "type": self.kind.name(), "mimeType": self.mime_type, "data": STANDARD.encode(&self.data) })
    }
}

impl MediaKind {
    fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
        }
    }
}

/// Takes the images and sounds out of a value, as many as fit into their share of the budget. Each is a record with the fields `mimeType` and
/// `data`, which are bytes or their base64. A mark replaces `data` and says which image or sound it was. A record stays in the value if its
/// bytes do not have the format of its `mimeType`, because a provider would refuse them.
#[must_use]
pub fn take_media(value: Value, budget: usize) -> (Value, Vec<Media>) {
    let mut taken = Taken { media: Vec::new(), left: budget / MEDIA_SHARE.1 * MEDIA_SHARE.0 };
    let value = taken.without_media(value);
    (value, taken.media)
}

struct Taken {
    media: Vec<Media>,
    /// The number of tokens that may still be used.
    left: usize,
}

impl Taken {
    /// The recursion is bounded, because values from a guest have a limited depth.
    fn without_media(&mut self, value: Value) -> Value {
        match value {
            Value::List(items) => Value::List(items.into_iter().map(|item| self.without_media(item)).collect()),
            Value::Record(fields) => Value::Record(self.record(fields)),
            other => other,
        }
    }

    fn record(&mut self, mut fields: Vec<(String, Value)>) -> Vec<(String, Value)> {
        if let Some(mark) = media_in(&fields).and_then(|media| self.take(media)) {
            fields.iter_mut().filter(|(key, _)| key == "data").for_each(|(_, data)| *data = Value::Text(mark.clone()));
            return fields;
        }
        fields.into_iter().map(|(key, value)| (key, self.without_media(value))).collect()
    }

    /// Takes one, and returns the mark in its place. Returns `None` if it does not fit.
    fn take(&mut self, media: Media) -> Option<String> {
        if self.media.len() >= MAX_MEDIA || media.data.len() > MAX_MEDIA_BYTES {
            return None;
        }
        self.left = self.left.checked_sub(media.tokens)?;
        let number = self.media.iter().filter(|known| known.kind == media.kind).count() + 1;
        let mark = format!("[{} {number}, {} bytes: beside this text]", media.kind.name(), media.data.len());
        self.media.push(media);
        Some(mark)
    }
}

/// Returns the image or sound that a record holds.
fn media_in(fields: &[(String, Value)]) -> Option<Media> {
    let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let Some(Value::Text(claimed)) = field("mimeType") else { return None };
    let kind = match claimed.split('/').next() {
        Some("image") => MediaKind::Image,
        Some("audio") => MediaKind::Audio,
        _ => return None,
    };
    let data = match field("data")? {
        Value::Bytes(bytes) => bytes.clone(),
        Value::Text(text) => STANDARD.decode(text).ok()?,
        _ => return None,
    };
    let mime_type = format_of(kind, &data)?.to_owned();
    let tokens = match kind {
        MediaKind::Image => image_tokens(&data),
        MediaKind::Audio => data.len() / AUDIO_BYTES_PER_TOKEN + 1,
    };
    Some(Media { kind, mime_type, data, tokens })
}

/// Returns the MIME type of bytes by their beginning, among those formats that providers accept.
fn format_of(kind: MediaKind, data: &[u8]) -> Option<&'static str> {
    let is_riff = |name: &[u8]| data.starts_with(b"RIFF") && data.get(8..12) == Some(name);
    match kind {
        MediaKind::Image if data.starts_with(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        MediaKind::Image if data.starts_with(b"\xff\xd8\xff") => Some("image/jpeg"),
        MediaKind::Image if data.starts_with(b"GIF8") => Some("image/gif"),
        MediaKind::Image if is_riff(b"WEBP") => Some("image/webp"),
        MediaKind::Audio if is_riff(b"WAVE") => Some("audio/wav"),
        MediaKind::Audio if data.starts_with(b"ID3") || matches!(data, [0xff, second, ..] if second & 0xe0 == 0xe0) => Some("audio/mpeg"),
        MediaKind::Audio if data.starts_with(b"OggS") => Some("audio/ogg"),
        MediaKind::Audio if data.starts_with(b"fLaC") => Some("audio/flac"),
        _ => None,
    }
}

fn image_tokens(data: &[u8]) -> usize {
    let (least, most) = IMAGE_TOKENS;
    let Some((width, height)) = size_of(data) else { return most };
    let tokens = u64::from(width).saturating_mul(u64::from(height)) / PIXELS_PER_TOKEN;
    usize::try_from(tokens).unwrap_or(most).clamp(least, most)
}

/// Returns the width and height of a PNG, GIF or JPEG image. Returns `None` for other formats.
fn size_of(data: &[u8]) -> Option<(u32, u32)> {
    let big = |at: usize| Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?));
    let little = |at: usize| Some(u32::from(u16::from_le_bytes(data.get(at..at + 2)?.try_into().ok()?)));
    if data.starts_with(b"\x89PNG") {
        return Some((big(16)?, big(20)?));
    }
    if data.starts_with(b"GIF8") {
        return Some((little(6)?, little(8)?));
    }
    if !data.starts_with(b"\xff\xd8") {
        return None;
    }
    let word = |at: usize| Some(u32::from(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?)));
    let mut at = 2;
    loop {
        let [0xff, marker] = *data.get(at..at + 2)? else { return None };
        // Frame headers are C0 to CF, except the tables C4, C8 and CC.
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            return Some((word(at + 7)?, word(at + 5)?));
        }
        at += 2 + usize::try_from(word(at + 2)?.max(2)).ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice(), &width.to_be_bytes(), &height.to_be_bytes(), b"rest"].concat()
    }

    fn held(mime_type: &str, data: Value) -> Value {
        Value::record([("mimeType", Value::from(mime_type)), ("data", data)])
    }

    #[test]
    fn images_and_sounds_leave_a_mark_in_their_place_wherever_they_are() {
        let wav = b"RIFF\0\0\0\0WAVEfmt ".to_vec();
        let value = Value::record([
            ("title", Value::from("a")),
            (
                "shots",
                Value::List(vec![
                    held("image/png", Value::Bytes(png(1, 1))),
                    held("image/jpg", Value::Bytes(b"\xff\xd8\xff\xe0".to_vec())),
                ]),
            ),
            ("sound", held("audio/x-wav", Value::Bytes(wav.clone()))),
            ("text", held("image/png", Value::Text(STANDARD.encode(png(2, 2))))),
        ]);
        let (left, media) = take_media(value, 8_000);
        let kinds: Vec<_> = media.iter().map(|one| (one.kind.name(), one.mime_type.as_str(), one.data.len())).collect();
        assert_eq!(kinds, [("image", "image/png", 28), ("image", "image/jpeg", 4), ("audio", "audio/wav", 16), ("image", "image/png", 28)]);
        assert_eq!(media[2].block(), json!({ "type": "audio", "mimeType": "audio/wav", "data": STANDARD.encode(wav) }));
        let left = left.into_json();
        assert_eq!(left["shots"][1], json!({ "mimeType": "image/jpg", "data": "[image 2, 4 bytes: beside this text]" }));
        assert_eq!(
            (&left["sound"]["data"], &left["text"]["data"]),
            (&json!("[audio 1, 16 bytes: beside this text]"), &json!("[image 3, 28 bytes: beside this text]"))
        );
    }

    #[test]
    fn what_a_provider_would_refuse_stays_in_the_value() {
        for value in [
            held("image/svg+xml", Value::from("<svg/>")),
            held("image/png", Value::Bytes(b"no image".to_vec())),
            held("image/png", Value::from("not base64!")),
            held("text/plain", Value::Bytes(png(1, 1))),
            held("audio/wav", Value::Bytes(png(1, 1))),
            Value::record([("mimeType", Value::from("image/png"))]),
            held("image/png", Value::Bytes([png(1, 1), vec![0; MAX_MEDIA_BYTES]].concat())),
        ] {
            assert_eq!(take_media(value.clone(), 8_000), (value, Vec::new()));
        }
    }

    #[test]
    fn they_count_by_their_size_and_fit_into_their_share_of_the_budget() {
        assert_eq!([(1, 1), (1_000, 600), (9_000, 9_000)].map(|(width, height)| image_tokens(&png(width, height))), [85, 800, 1_600]);
        let frame = [0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xc2, 0, 17, 8, 1, 0x2c, 1, 0x90];
        assert_eq!(size_of(&frame), Some((400, 300)));
        assert_eq!((size_of(&frame[..12]), size_of(b"\xff\xd8\xff"), size_of(b"\x89PNG")), (None, None, None));
        let many = Value::List(vec![held("image/png", Value::Bytes(png(9_000, 9_000))); 30]);
        for (budget, fits) in [(8_000, 3), (300, 0), (1_000_000, MAX_MEDIA)] {
            let (left, media) = take_media(many.clone(), budget);
            assert_eq!(media.len(), fits);
            assert!(media.iter().map(|one| one.tokens).sum::<usize>() <= budget * 3 / 4);
            assert_eq!(left.into_json().to_string().matches("beside this text").count(), fits);
        }
    }
}
