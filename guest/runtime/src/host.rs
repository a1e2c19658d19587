//! Makes the object through which the guest calls the host. Only the prelude has this object: it is not a module, so agent code cannot
//! import it. The host still checks every request, because it does not trust the guest.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use hyperlight_guest_bin::error::Result as HostResult;
use hyperlight_guest_bin::{GUEST_HANDLE, host_function};
use hyperlight_js_common::{decode_binaries, encode_binaries};
use hyperlight_js_runtime::rquickjs::{self, Array, Ctx, Exception, Function, Module, Object, Result, String as JsString, TypedArray};

#[host_function("HostCall")]
fn host_call(module: String, function: String, frame: Vec<u8>) -> HostResult<Vec<u8>>;

#[host_function("HostExchange")]
fn host_exchange(frame: Vec<u8>) -> HostResult<Vec<u8>>;

#[host_function("HostLog")]
fn host_log(level: String, text: String) -> HostResult<()>;

#[host_function("HostInput")]
fn host_input() -> HostResult<Vec<u8>>;

#[host_function("HostFinish")]
fn host_finish(frame: Vec<u8>) -> HostResult<()>;

/// The bytes that a host call adds around its payload: names, lengths and FlatBuffers tables.
const FRAME_OVERHEAD: usize = 16 * 1024;

/// Returns the largest payload that fits into the output buffer to the host. A write past the end of this buffer would stop the guest.
fn payload_limit() -> usize {
    // SAFETY: GUEST_HANDLE is written once, before any guest code runs, and the guest has one thread. The pointer to
    // the process environment block that it holds is mapped and never changes.
    let size = unsafe { (*(&raw const GUEST_HANDLE)).peb().map_or(0, |peb| (*peb).output_stack.size) };
    usize::try_from(size).unwrap_or(0).saturating_sub(FRAME_OVERHEAD)
}

fn throw(ctx: &Ctx<'_>, message: &str) -> rquickjs::Error {
    Exception::throw_message(ctx, message)
}

/// Encodes a list of byte strings: the JSON first, then the blobs. If they do not fit, it encodes only their size, and the host answers
/// with an error.
fn frame(ctx: &Ctx<'_>, json: &str, blobs: &[TypedArray<'_, u8>]) -> Result<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::with_capacity(blobs.len() + 1);
    parts.push(json.as_bytes());
    for blob in blobs {
        parts.push(blob.as_bytes().ok_or_else(|| throw(ctx, "a Uint8Array was detached"))?);
    }
    let size: usize = parts.iter().map(|part| part.len() + 4).sum();
    let encoded = if size > payload_limit() { encode_binaries(&[format!("{{\"oversize\":{size}}}")]) } else { encode_binaries(&parts) };
    encoded.map_err(|error| throw(ctx, &error.to_string()))
}

/// Splits an encoded list into its parts, without a copy.
fn parts_in<'a>(ctx: &Ctx<'_>, bytes: &'a [u8]) -> Result<Vec<&'a [u8]>> {
    let malformed = || throw(ctx, "the host's answer is malformed");
    let word = |bytes: &'a [u8]| {
        let (word, rest) = bytes.split_first_chunk::<4>()?;
        Some((usize::try_from(u32::from_le_bytes(*word)).ok()?, rest))
    };
    let (count, mut rest) = word(bytes).ok_or_else(malformed)?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let (length, after) = word(rest).ok_or_else(malformed)?;
        let (part, after) = after.split_at_checked(length).ok_or_else(malformed)?;
        parts.push(part);
        rest = after;
    }
    Ok(parts)
}

fn text<'a>(ctx: &Ctx<'_>, bytes: &'a [u8]) -> Result<&'a str> {
    core::str::from_utf8(bytes).map_err(|_| throw(ctx, "the host's answer is not UTF-8"))
}

/// The JSON text before the index of a part that is a text.
const TEXT_MARK: &str = "{\"$bytes\":\"";

/// Decodes a list to a JavaScript array: the JSON as a string, then one entry for each blob. A blob becomes a string if the JSON refers to
/// it as a text (`{"$bytes":"0"}`), otherwise a `Uint8Array`. A server's data cannot contain this JSON text by accident: an object with the
/// key `$bytes` is escaped, and quotes inside of a string are escaped too.
fn unframe<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Array<'js>> {
    let parts = parts_in(ctx, bytes)?;
    let Some((json, blobs)) = parts.split_first() else { return Err(throw(ctx, "the host's answer is malformed")) };
    let json = text(ctx, json)?;
    let list = Array::new(ctx.clone())?;
    list.set(0, JsString::from_str(ctx.clone(), json)?)?;
    let mut is_text = alloc::vec![false; blobs.len()];
    for (at, mark) in json.match_indices(TEXT_MARK) {
        let index = json[at + mark.len()..].split('"').next().and_then(|index| index.parse::<usize>().ok());
        if let Some(is_text) = index.and_then(|index| is_text.get_mut(index)) {
            *is_text = true;
        }
    }
    for (index, blob) in blobs.iter().enumerate() {
        if is_text[index] {
            list.set(index + 1, JsString::from_str(ctx.clone(), text(ctx, blob)?)?)?;
        } else {
            list.set(index + 1, TypedArray::<u8>::new_copy(ctx.clone(), blob)?)?;
        }
    }
    Ok(list)
}

/// One part of a call in an exchange.
enum Part<'js> {
    Text(String),
    Bytes(TypedArray<'js, u8>),
}

impl Part<'_> {
    fn bytes(&self, ctx: &Ctx<'_>) -> Result<&[u8]> {
        match self {
            Self::Text(text) => Ok(text.as_bytes()),
            Self::Bytes(blob) => blob.as_bytes().ok_or_else(|| throw(ctx, "a Uint8Array was detached")),
        }
    }
}

/// Returns the parts of a call without its number; `call` is `[number, module, function, json, ...blobs]`. Arguments that do not fit are
/// replaced by their size, as in [`frame`].
fn parts_of<'js>(ctx: &Ctx<'js>, call: &Array<'js>, limit: usize) -> Result<Vec<Part<'js>>> {
    const NAMES: usize = 2;
    let mut parts = Vec::with_capacity(call.len());
    for index in 1..=NAMES + 1 {
        parts.push(Part::Text(call.get(index)?));
    }
    for index in NAMES + 2..call.len() {
        parts.push(Part::Bytes(call.get(index)?));
    }
    let mut size = 0;
    for part in &parts[NAMES..] {
        size += part.bytes(ctx)?.len() + 4;
    }
    if size > limit {
        parts.truncate(NAMES);
        parts.push(Part::Text(format!("{{\"oversize\":{size}}}")));
    }
    Ok(parts)
}

/// Decodes the host's answer to an exchange: `{"left":number,"ended":[[number, parts], …]}`, then the parts of each ended call, which are
/// `[json, ...blobs]`. Returns `[left, [number, json, ...blobs], …]`.
fn replies<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Array<'js>> {
    let mut parts = decode_binaries(bytes).map_err(|error| throw(ctx, &error.to_string()))?.into_iter();
    let header: Object = ctx.json_parse(parts.next().unwrap_or_default())?.get()?;
    let ended: Vec<Vec<u32>> = header.get("ended")?;
    let replies = Array::new(ctx.clone())?;
    replies.set(0, header.get::<_, u32>("left")?)?;
    for (index, entry) in ended.into_iter().enumerate() {
        let &[number, count] = entry.as_slice() else { return Err(throw(ctx, "the host's answer is malformed")) };
        let reply = Array::new(ctx.clone())?;
        reply.set(0, number)?;
        for (place, part) in parts.by_ref().take(count as usize).enumerate() {
            if place == 0 {
                let json = core::str::from_utf8(&part).map_err(|_| throw(ctx, "the host's answer is not UTF-8"))?;
                reply.set(1, JsString::from_str(ctx.clone(), json)?)?;
            } else {
                reply.set(place + 1, TypedArray::<u8>::new(ctx.clone(), part)?)?;
            }
        }
        replies.set(index + 1, reply)?;
    }
    Ok(replies)
}

/// Cuts a text to at most `limit` bytes, at a character boundary.
fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|&index| text.is_char_boundary(index)).unwrap_or(0);
    &text[..end]
}

/// Calls `module.function`. `args` is a JSON array. Returns `[json, ...blobs]`.
#[rquickjs::function]
fn call<'js>(ctx: Ctx<'js>, module: String, function: String, args: String, blobs: Vec<TypedArray<'js, u8>>) -> Result<Array<'js>> {
    let request = frame(&ctx, &args, &blobs)?;
    let reply = host_call(module, function, request).map_err(|error| throw(&ctx, &error.message))?;
    unframe(&ctx, &reply)
}

/// Submits calls, each `[number, module, function, json, ...blobs]`, and returns those that have ended, each `[number, json, ...blobs]`. It
/// returns once all calls have ended, or all calls in `until`, or after `wait` milliseconds (a negative number means no limit). The first
/// entry of the result is the number of calls at the end of `calls` that the host did not accept and that must be submitted again.
#[rquickjs::function]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn exchange<'js>(ctx: Ctx<'js>, calls: Vec<Array<'js>>, wait: f64, until: Vec<u32>) -> Result<Array<'js>> {
    let limit = payload_limit();
    let mut index = Vec::with_capacity(calls.len());
    let mut parts = Vec::with_capacity(calls.len() * 3);
    for call in &calls {
        let own = parts_of(&ctx, call, limit)?;
        index.push(format!("[{},{}]", call.get::<u32>(0)?, own.len()));
        parts.extend(own);
    }
    // Milliseconds become microseconds, as in `HostSleep`. The cast turns infinity into the largest integer.
    let wait = if wait < 0.0 { "null".to_string() } else { format!("{}", (wait * 1000.0) as u64) };
    let header = format!("{{\"wait\":{wait},\"until\":{until:?},\"calls\":[{}]}}", index.join(","));
    let mut all: Vec<&[u8]> = Vec::with_capacity(parts.len() + 1);
    all.push(header.as_bytes());
    for part in &parts {
        all.push(part.bytes(&ctx)?);
    }
    let request = encode_binaries(&all).map_err(|error| throw(&ctx, &error.to_string()))?;
    let ended = host_exchange(request).map_err(|error| throw(&ctx, &error.message))?;
    replies(&ctx, &ended)
}

/// Returns the number of bytes that fit into one payload to the host.
#[rquickjs::function]
fn capacity() -> usize {
    payload_limit()
}

/// Writes one entry to the run's log.
#[rquickjs::function]
fn log(ctx: Ctx<'_>, level: String, text: String) -> Result<()> {
    let text = cut(&text, payload_limit()).to_string();
    host_log(level, text).map_err(|error| throw(&ctx, &error.message))
}

/// Returns the run's input: `[json, ...blobs]`.
#[rquickjs::function]
fn input(ctx: Ctx<'_>) -> Result<Array<'_>> {
    let bytes = host_input().map_err(|error| throw(&ctx, &error.message))?;
    unframe(&ctx, &bytes)
}

/// Sends the run's outcome to the host.
#[rquickjs::function]
fn finish<'js>(ctx: Ctx<'js>, json: String, blobs: Vec<TypedArray<'js, u8>>) -> Result<()> {
    let outcome = frame(&ctx, &json, &blobs)?;
    host_finish(outcome).map_err(|error| throw(&ctx, &error.message))
}

/// Sends a value to the host as the run's outcome. The object around the JSON (`{"value":…}`) is added here. A JSON text that is too large
/// is sent without this object, because then only the size of the text matters.
#[rquickjs::function]
fn finish_value<'js>(ctx: Ctx<'js>, mut json: String, blobs: Vec<TypedArray<'js, u8>>) -> Result<()> {
    if json.len() < payload_limit() {
        json.insert_str(0, "{\"value\":");
        json.push('}');
    }
    let outcome = frame(&ctx, &json, &blobs)?;
    host_finish(outcome).map_err(|error| throw(&ctx, &error.message))
}

/// Implements `require(name)`: returns the module's namespace synchronously, or throws if the module cannot be loaded. The `require`
/// of `hyperlight-js-runtime` returns a promise for a module that does not exist.
#[rquickjs::function]
fn require<'js>(ctx: Ctx<'js>, name: String) -> Result<Object<'js>> {
    match Module::import(&ctx, name.clone())?.finish::<Object<'js>>() {
        Err(rquickjs::Error::WouldBlock) => Err(throw(&ctx, &format!("module \"{name}\" has a top-level await: use import, not require"))),
        other => other,
    }
}

/// Makes an object that has all these functions as methods.
pub fn natives<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let natives = Object::new(ctx.clone())?;
    natives.set("call", Function::new(ctx.clone(), js_call)?)?;
    natives.set("exchange", Function::new(ctx.clone(), js_exchange)?)?;
    natives.set("capacity", Function::new(ctx.clone(), js_capacity)?)?;
    natives.set("log", Function::new(ctx.clone(), js_log)?)?;
    natives.set("input", Function::new(ctx.clone(), js_input)?)?;
    natives.set("finish", Function::new(ctx.clone(), js_finish)?)?;
    natives.set("finishValue", Function::new(ctx.clone(), js_finish_value)?)?;
    natives.set("require", Function::new(ctx.clone(), js_require)?)?;
    Ok(natives)
}
