//! Native functions behind the guest's globals: encodings, URLs, random bytes and the run's clock. They are native where JavaScript would
//! be slow, large or wrong. Only the JavaScript in `globals/` has this object; that code implements the interfaces of the web standards.

use alloc::string::String;
use alloc::vec::Vec;
use core::str;

use encoding_rs::{Decoder as TextDecoder, DecoderResult, Encoding};
use hyperlight_guest_bin::error::Result as HostResult;
use hyperlight_guest_bin::host_function;
use hyperlight_js_runtime::rquickjs::{
    self, Array, Class, Ctx, Exception, Function, Object, Result, String as JsString, TypedArray, Value, qjs,
};
use url::{Url, quirks};

#[host_function("HostRandom")]
fn host_random(count: u64) -> HostResult<Vec<u8>>;

#[host_function("HostElapsed")]
fn host_elapsed() -> HostResult<u64>;

#[host_function("HostStarted")]
fn host_started() -> HostResult<u64>;

#[host_function("HostSleep")]
fn host_sleep(micros: u64) -> HostResult<()>;

fn throw(ctx: &Ctx<'_>, message: &str) -> rquickjs::Error {
    Exception::throw_message(ctx, message)
}

/// Converts microseconds to milliseconds, the unit of JavaScript. The result is exact for 285 years.
#[allow(clippy::cast_precision_loss)]
fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// Random bytes that were read ahead, because a call to the host takes longer than most requests. Empty in the snapshot.
static FETCHED: spin::Mutex<Vec<u8>> = spin::Mutex::new(Vec::new());
const FETCH: usize = 1024;

/// Returns random bytes from the host. No bytes are returned twice.
fn entropy(ctx: &Ctx<'_>, count: usize) -> Result<Vec<u8>> {
    if count > FETCH / 4 {
        return fetch(ctx, count);
    }
    let mut fetched = FETCHED.lock();
    if fetched.len() < count {
        *fetched = fetch(ctx, FETCH)?;
    }
    let rest = fetched.len() - count;
    Ok(fetched.split_off(rest))
}

fn fetch(ctx: &Ctx<'_>, count: usize) -> Result<Vec<u8>> {
    let bytes = host_random(count as u64).map_err(|error| throw(ctx, &error.message))?;
    if bytes.len() == count { Ok(bytes) } else { Err(throw(ctx, "the host returned fewer random bytes than requested")) }
}

/// Decodes `bytes`. At the last part, it also reports a character that is incomplete. The buffer grows with the text: room for the worst
/// case would take three times as many bytes.
fn decode(ctx: &Ctx<'_>, decoder: &mut TextDecoder, bytes: &[u8], last: bool, fatal: bool) -> Result<String> {
    /// Room for the largest result of one character, and some more.
    const STEP: usize = 1024;
    let mut text = String::with_capacity(bytes.len() + STEP);
    let mut rest = bytes;
    loop {
        let read = if fatal {
            let (result, read) = decoder.decode_to_string_without_replacement(rest, &mut text, last);
            match result {
                DecoderResult::InputEmpty => return Ok(text),
                DecoderResult::OutputFull => read,
                DecoderResult::Malformed(..) => return Err(Exception::throw_type(ctx, "The encoded data was not valid")),
            }
        } else {
            match decoder.decode_to_string(rest, &mut text, last) {
                (encoding_rs::CoderResult::InputEmpty, ..) => return Ok(text),
                (encoding_rs::CoderResult::OutputFull, read, _) => read,
            }
        };
        rest = &rest[read..];
        text.reserve(rest.len() + STEP);
    }
}

fn decoder(ctx: &Ctx<'_>, label: &str, keep_mark: bool) -> Result<TextDecoder> {
    let encoding = Encoding::for_label_no_replacement(label.as_bytes()).ok_or_else(|| throw(ctx, "no such encoding"))?;
    Ok(if keep_mark { encoding.new_decoder_without_bom_handling() } else { encoding.new_decoder_with_bom_removal() })
}

/// Returns the origin as the current URL standard defines it: a `blob:` URL has an origin only if it contains an `http` or `https` URL.
fn origin(url: &Url) -> String {
    if url.scheme() != "blob" {
        return quirks::origin(url);
    }
    let within = Url::parse(url.path()).ok().filter(|within| matches!(within.scheme(), "http" | "https"));
    within.map_or_else(|| String::from("null"), |within| quirks::origin(&within))
}

/// Returns the parts of a URL, in the order in which `globals/url.js` reads them.
fn parts(url: &Url) -> Vec<String> {
    [
        quirks::href(url),
        &origin(url),
        quirks::protocol(url),
        quirks::username(url),
        quirks::password(url),
        quirks::host(url),
        quirks::hostname(url),
        quirks::port(url),
        quirks::pathname(url),
        quirks::search(url),
        quirks::hash(url),
    ]
    .map(String::from)
    .to_vec()
}

/// The random number generator xoshiro256++ (Blackman and Vigna, public domain) behind `Math.random`. The host provides its seed.
struct Generator {
    state: [u64; 4],
    seeded: bool,
}

impl Generator {
    fn next(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }
}

/// The generator has no seed in the snapshot. Every run requests its own seed when it needs its first random number.
static GENERATOR: spin::Mutex<Generator> = spin::Mutex::new(Generator { state: [0; 4], seeded: false });

/// Returns the lower-case name of the encoding with this label. Returns null if there is none, or if it is the standard's `replacement`.
#[rquickjs::function]
fn encoding_name(label: String) -> Option<String> {
    Encoding::for_label_no_replacement(label.as_bytes()).map(|encoding| encoding.name().to_ascii_lowercase())
}

/// Encodes a text without lone surrogates as UTF-8.
#[rquickjs::function]
fn encode<'js>(ctx: Ctx<'js>, text: String) -> Result<TypedArray<'js, u8>> {
    TypedArray::new(ctx, text.into_bytes())
}

/// Encodes as many whole characters as fit into `room` bytes. Returns `[bytes, the number of UTF-16 units encoded]`.
#[rquickjs::function]
fn encode_within<'js>(ctx: Ctx<'js>, text: String, room: usize) -> Result<Array<'js>> {
    let end = text.floor_char_boundary(room);
    let units = text[..end].encode_utf16().count();
    let mut bytes = text.into_bytes();
    bytes.truncate(end);
    let pair = Array::new(ctx.clone())?;
    pair.set(0, TypedArray::new(ctx, bytes)?)?;
    pair.set(1, units)?;
    Ok(pair)
}

/// Decodes a text that is given as a whole.
#[rquickjs::function]
fn decode_whole<'js>(ctx: Ctx<'js>, label: String, bytes: TypedArray<'js, u8>, fatal: bool, keep_mark: bool) -> Result<JsString<'js>> {
    let bytes = bytes.as_bytes().unwrap_or_default();
    if label == "utf-8" {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let body = if keep_mark { bytes } else { bytes.strip_prefix(MARK).unwrap_or(bytes) };
        // Valid UTF-8 is the usual case and needs no replacement, so the text is not copied.
        if let Ok(text) = str::from_utf8(body) {
            return JsString::from_str(ctx, text);
        }
    }
    let text = decode(&ctx, &mut decoder(&ctx, &label, keep_mark)?, bytes, true, fatal)?;
    JsString::from_str(ctx, &text)
}

/// A decoder for a text that arrives in parts.
#[derive(rquickjs::class::Trace, rquickjs::JsLifetime)]
#[rquickjs::class(rename = "Decoding")]
pub struct Decoding {
    /// `None` after the last part and after an error, because a decoder must not be used after its end.
    #[qjs(skip_trace)]
    decoder: Option<TextDecoder>,
    #[qjs(skip_trace)]
    fatal: bool,
}

#[rquickjs::methods]
impl Decoding {
    #[qjs(constructor)]
    pub fn new(ctx: Ctx<'_>, label: String, fatal: bool, keep_mark: bool) -> Result<Self> {
        Ok(Self { decoder: Some(decoder(&ctx, &label, keep_mark)?), fatal })
    }

    pub fn decode<'js>(&mut self, ctx: Ctx<'js>, bytes: TypedArray<'js, u8>, last: bool) -> Result<JsString<'js>> {
        let mut decoder = self.decoder.take().ok_or_else(|| throw(&ctx, "this decoder has already decoded its last part"))?;
        let text = decode(&ctx, &mut decoder, bytes.as_bytes().unwrap_or_default(), last, self.fatal)?;
        if !last {
            self.decoder = Some(decoder);
        }
        JsString::from_str(ctx, &text)
    }
}

/// Returns the parts of a URL, or null if the text is not a valid URL.
#[rquickjs::function]
fn parse_url(text: String, base: Option<String>) -> Option<Vec<String>> {
    let base = match base {
        Some(base) => Some(Url::parse(&base).ok()?),
        None => None,
    };
    Url::options().base_url(base.as_ref()).parse(&text).ok().as_ref().map(parts)
}

/// Changes one part of a URL and returns all its parts. An invalid new value leaves the URL unchanged.
#[rquickjs::function]
fn change_url(href: String, part: String, value: String) -> Option<Vec<String>> {
    let mut url = Url::parse(&href).ok()?;
    // The URL standard says that setters ignore invalid values.
    let _ = match part.as_str() {
        "protocol" => quirks::set_protocol(&mut url, &value),
        "username" => quirks::set_username(&mut url, &value),
        "password" => quirks::set_password(&mut url, &value),
        "host" => quirks::set_host(&mut url, &value),
        "hostname" => quirks::set_hostname(&mut url, &value),
        "port" => quirks::set_port(&mut url, &value),
        "pathname" => Ok(quirks::set_pathname(&mut url, &value)),
        "search" => Ok(quirks::set_search(&mut url, &value)),
        _ => Ok(quirks::set_hash(&mut url, &value)),
    };
    Some(parts(&url))
}

/// Parses `a=1&b=2` into `["a", "1", "b", "2"]`.
#[rquickjs::function]
fn parse_form(text: String) -> Vec<String> {
    form_urlencoded::parse(text.as_bytes()).flat_map(|(name, value)| [name.into_owned(), value.into_owned()]).collect()
}

/// Writes `["a", "1", "b", "2"]` as `a=1&b=2`.
#[rquickjs::function]
fn write_form(pairs: Vec<String>) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    for pair in pairs.chunks_exact(2) {
        form.append_pair(&pair[0], &pair[1]);
    }
    form.finish()
}

/// Returns `count` unpredictable bytes, which differ in every run.
#[rquickjs::function]
fn random_bytes<'js>(ctx: Ctx<'js>, count: usize) -> Result<TypedArray<'js, u8>> {
    let bytes = entropy(&ctx, count)?;
    TypedArray::new(ctx, bytes)
}

/// Implements `Math.random`.
#[rquickjs::function]
#[allow(clippy::cast_precision_loss)]
fn random(ctx: Ctx<'_>) -> Result<f64> {
    let mut generator = GENERATOR.lock();
    if !generator.seeded {
        let seed = entropy(&ctx, size_of::<[u64; 4]>())?;
        for (word, bytes) in generator.state.iter_mut().zip(seed.chunks_exact(8)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        generator.seeded = true;
    }
    // A double between 0 and 1 has 53 significant bits.
    Ok((generator.next() >> 11) as f64 / (1_u64 << 53) as f64)
}

/// Returns the milliseconds since the run's start. This clock never goes backward.
#[rquickjs::function]
fn elapsed(ctx: Ctx<'_>) -> Result<f64> {
    host_elapsed().map(milliseconds).map_err(|error| throw(&ctx, &error.message))
}

/// Returns the time at which the run started, in milliseconds since 1970.
#[rquickjs::function]
fn started(ctx: Ctx<'_>) -> Result<f64> {
    host_started().map(milliseconds).map_err(|error| throw(&ctx, &error.message))
}

/// Leaves the VM for `milliseconds`, or until the run ends.
#[rquickjs::function]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn wait(ctx: Ctx<'_>, milliseconds: f64) -> Result<()> {
    // The cast saturates, and turns NaN into 0.
    host_sleep((milliseconds * 1000.0) as u64).map_err(|error| throw(&ctx, &error.message))
}

/// Tells if the engine has pending jobs, which must run before the guest waits.
#[rquickjs::function]
fn is_busy(ctx: Ctx<'_>) -> bool {
    // SAFETY: the context is alive for the length of this call, and with it its runtime; the guest has one thread.
    unsafe { qjs::JS_IsJobPending(qjs::JS_GetRuntime(ctx.as_raw().as_ptr())) }
}

/// Returns the engine's class number of a value. A script cannot change this number.
#[rquickjs::function]
fn kind(value: Value<'_>) -> u32 {
    // SAFETY: the value is alive for the length of this call, and the engine checks its tag before it reads the object.
    unsafe { qjs::JS_GetClassID(value.as_raw()) }
}

/// Makes an object that has all these functions as methods.
pub fn natives<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let natives = Object::new(ctx.clone())?;
    natives.set("encodingName", Function::new(ctx.clone(), js_encoding_name)?)?;
    natives.set("encode", Function::new(ctx.clone(), js_encode)?)?;
    natives.set("encodeWithin", Function::new(ctx.clone(), js_encode_within)?)?;
    natives.set("decodeWhole", Function::new(ctx.clone(), js_decode_whole)?)?;
    natives.set("parseUrl", Function::new(ctx.clone(), js_parse_url)?)?;
    natives.set("changeUrl", Function::new(ctx.clone(), js_change_url)?)?;
    natives.set("parseForm", Function::new(ctx.clone(), js_parse_form)?)?;
    natives.set("writeForm", Function::new(ctx.clone(), js_write_form)?)?;
    natives.set("randomBytes", Function::new(ctx.clone(), js_random_bytes)?)?;
    natives.set("random", Function::new(ctx.clone(), js_random)?)?;
    natives.set("elapsed", Function::new(ctx.clone(), js_elapsed)?)?;
    natives.set("started", Function::new(ctx.clone(), js_started)?)?;
    natives.set("wait", Function::new(ctx.clone(), js_wait)?)?;
    natives.set("isBusy", Function::new(ctx.clone(), js_is_busy)?)?;
    natives.set("kind", Function::new(ctx.clone(), js_kind)?)?;
    natives.set("Decoding", Class::<Decoding>::create_constructor(ctx)?)?;
    Ok(natives)
}
