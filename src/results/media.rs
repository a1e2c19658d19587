//! Takes images and sounds out of a run's value, so that a model gets them as content blocks. As text, their base64 would be long and
//! useless.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde_json::{Value as Json, json};

use crate::sandbox::Value;

/// The largest number of images and sounds of one value.
const MAX_MEDIA: usize = 10;
/// The largest size of one image or sound in bytes. The base64 text of this size has 5 MB, which is the maximum that providers accept.
const MAX_MEDIA_BYTES: usize = 3_750_000;
/// The largest width and height of an image in pixels, which is the maximum that providers accept.
const MAX_SIDE_PIXELS: usize = 8_000;
/// The smallest size of a sound in bytes: the length of the header of a WAV file.
const MIN_AUDIO_BYTES: usize = 44;
/// The part of the budget that images and sounds may take, as a fraction.
const MEDIA_SHARE: (usize, usize) = (3, 4);
/// The smallest and the largest number of tokens of an image. Providers scale larger images down.
const IMAGE_TOKENS: (usize, usize) = (85, 1_600);
/// The number of pixels of an image that count as one token.
const PIXELS_PER_TOKEN: u64 = 750;
/// The number of bytes of a sound that count as one token.
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

/// Takes the images and sounds out of a value, as many as fit into their share of the budget. An image or a sound is a record with the
/// fields `mimeType` and `data`, where `data` are bytes or their base64 text. A mark replaces `data` and says which image or sound it was.
/// A record stays in the value if its bytes do not have the format of its `mimeType`, because a provider would refuse them.
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
    /// Takes the images and sounds out of a value and its parts. The recursion is bounded, because values from a guest have a limited
    /// depth.
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

    /// Takes an image or a sound, and returns the mark that replaces it. Returns `None` if the image or sound does not fit into the limits.
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
        MediaKind::Image => image_tokens(size_of(&data)?),
        MediaKind::Audio if data.len() < MIN_AUDIO_BYTES => return None,
        MediaKind::Audio => data.len() / AUDIO_BYTES_PER_TOKEN + 1,
    };
    Some(Media { kind, mime_type, data, tokens })
}

/// Returns the MIME type of an image or a sound, which is recognised by its first bytes. Knows only formats that providers accept.
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

/// Returns the width and height of an image that a provider can be expected to accept: both are within the limits, and the image has the
/// end marker of its format, so it was not cut. Returns `None` if a provider would refuse the image. The provider would then also refuse
/// each later request of the conversation.
fn size_of(data: &[u8]) -> Option<(u64, u64)> {
    let size = imagesize::blob_size(data).ok()?;
    let is_accepted = |pixels: usize| (1..=MAX_SIDE_PIXELS).contains(&pixels);
    (is_accepted(size.width) && is_accepted(size.height) && has_end(data)).then_some((size.width as u64, size.height as u64))
}

/// Returns whether an image has the end marker of its format. Bytes after the end are allowed, because cameras and editors write such
/// bytes.
fn has_end(data: &[u8]) -> bool {
    match data {
        [0x89, ..] => memmem::rfind(data, b"IEND").is_some(),
        [0xff, ..] => memmem::rfind(data, b"\xff\xd9").is_some(),
        [b'G', ..] => data.last() == Some(&b';'),
        // The number after "RIFF" is the number of bytes that follow this number.
        [b'R', _, _, _, a, b, c, d, ..] => u32::from_le_bytes([*a, *b, *c, *d]) as usize <= data.len() - 8,
        _ => false,
    }
}

fn image_tokens((width, height): (u64, u64)) -> usize {
    let (least, most) = IMAGE_TOKENS;
    usize::try_from(width * height / PIXELS_PER_TOKEN).unwrap_or(most).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice(), &width.to_be_bytes(), &height.to_be_bytes(), b"\x08\x02\0\0\0....IEND"].concat()
    }

    /// A JPEG of 400 to 300 pixels.
    const JPEG: [u8; 21] = [0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xc2, 0, 11, 8, 1, 0x2c, 1, 0x90, 1, 0, 0xff, 0xd9];
    const GIF: &[u8] = b"GIF89a\x10\0\x08\0\0\0\0;";
    const WEBP: &[u8] = b"RIFF\x16\0\0\0WEBPVP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a\x10\0\x08\0";

    fn wav() -> Vec<u8> {
        [b"RIFF\0\0\0\0WAVEfmt ".as_slice(), &[0; 28]].concat()
    }

    fn held(mime_type: &str, data: Value) -> Value {
        Value::record([("mimeType", Value::from(mime_type)), ("data", data)])
    }

    #[test]
    fn images_and_sounds_leave_a_mark_in_their_place_wherever_they_are() {
        let wav = wav();
        let value = Value::record([
            ("title", Value::from("a")),
            ("shots", Value::List(vec![held("image/png", Value::Bytes(png(1, 1))), held("image/jpg", Value::Bytes(JPEG.to_vec()))])),
            ("sound", held("audio/x-wav", Value::Bytes(wav.clone()))),
            ("text", held("image/png", Value::Text(STANDARD.encode(png(2, 2))))),
        ]);
        let (left, media) = take_media(value, 8_000);
        let kinds: Vec<_> = media.iter().map(|one| (one.kind.name(), one.mime_type.as_str(), one.data.len())).collect();
        let length = png(1, 1).len();
        let expected =
            [("image", "image/png", length), ("image", "image/jpeg", 21), ("audio", "audio/wav", 44), ("image", "image/png", length)];
        assert_eq!(kinds, expected);
        assert_eq!(media[2].block(), json!({ "type": "audio", "mimeType": "audio/wav", "data": STANDARD.encode(wav) }));
        let left = left.into_json();
        assert_eq!(left["shots"][1], json!({ "mimeType": "image/jpg", "data": "[image 2, 21 bytes: beside this text]" }));
        assert_eq!(left["sound"]["data"], json!("[audio 1, 44 bytes: beside this text]"));
        assert_eq!(left["text"]["data"], json!(format!("[image 3, {length} bytes: beside this text]")));
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
            held("image/jpeg", Value::from("/9j/")),
            held("image/gif", Value::from("R0lGOA==")),
            held("image/png", Value::Bytes(png(1, 1)[..8].to_vec())),
            held("image/png", Value::Bytes(png(0, 1))),
            held("image/png", Value::Bytes(png(99_999, 1))),
            held("image/png", Value::Bytes(png(8_001, 8_000))),
            held("image/png", Value::Bytes(png(2, 2)[..30].to_vec())),
            held("image/jpeg", Value::Bytes(JPEG[..19].to_vec())),
            held("image/gif", Value::Bytes(GIF[..13].to_vec())),
            held("image/webp", Value::Bytes(WEBP[..29].to_vec())),
            held("audio/wav", Value::Bytes(wav()[..43].to_vec())),
        ] {
            assert_eq!(take_media(value.clone(), 8_000), (value, Vec::new()));
        }
    }

    #[test]
    fn they_count_by_their_size_and_fit_into_their_share_of_the_budget() {
        assert_eq!([(1, 1), (1_000, 600), (8_000, 8_000)].map(image_tokens), [85, 800, 1_600]);
        assert_eq!([&png(7, 9), &JPEG[..], GIF, WEBP].map(size_of), [(7, 9), (400, 300), (16, 8), (16, 8)].map(Some));
        let many = Value::List(vec![held("image/png", Value::Bytes(png(8_000, 8_000))); 30]);
        for (budget, fits) in [(8_000, 3), (300, 0), (1_000_000, MAX_MEDIA)] {
            let (left, media) = take_media(many.clone(), budget);
            assert_eq!(media.len(), fits);
            assert!(media.iter().map(|one| one.tokens).sum::<usize>() <= budget * 3 / 4);
            assert_eq!(left.into_json().to_string().matches("beside this text").count(), fits);
        }
    }
}
