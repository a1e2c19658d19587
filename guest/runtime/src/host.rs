//! What the guest can ask of the host: four host functions, as one native module. `prelude.js` is its only reader
//! that matters; agent code can import it as well, which is why the host checks every request again.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use hyperlight_guest_bin::error::Result as HostResult;
use hyperlight_guest_bin::{GUEST_HANDLE, host_function};
use hyperlight_js_common::{decode_binaries, encode_binaries};
use hyperlight_js_runtime::rquickjs::{self, Array, Ctx, Exception, Module, Object, Result, String as JsString, TypedArray};

#[host_function("HostCall")]
fn host_call(module: String, function: String, frame: Vec<u8>) -> HostResult<Vec<u8>>;

#[host_function("HostLog")]
fn host_log(level: String, text: String) -> HostResult<()>;

#[host_function("HostInput")]
fn host_input() -> HostResult<Vec<u8>>;

#[host_function("HostFinish")]
fn host_finish(frame: Vec<u8>) -> HostResult<()>;

/// Room for the frame of a host call around its payload: names, lengths, FlatBuffers' own tables.
const FRAME_OVERHEAD: usize = 16 * 1024;

/// The largest payload that fits into the buffer towards the host. Writing past it would end the guest.
fn payload_limit() -> usize {
    // SAFETY: GUEST_HANDLE is written once, before any guest code runs, and the guest has one thread. The pointer to
    // the process environment block that it holds is mapped and never changes.
    let size = unsafe { (*(&raw const GUEST_HANDLE)).peb().map_or(0, |peb| (*peb).output_stack.size) };
    usize::try_from(size).unwrap_or(0).saturating_sub(FRAME_OVERHEAD)
}

fn throw(ctx: &Ctx<'_>, message: &str) -> rquickjs::Error {
    Exception::throw_message(ctx, message)
}

/// One list of byte strings: the JSON first, the blobs behind it. Where they do not fit, the host is told their size
/// instead, and answers with its own error.
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

/// The same list, as a JavaScript array: a string, then a `Uint8Array` for each blob.
fn unframe<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Array<'js>> {
    let parts = decode_binaries(bytes).map_err(|error| throw(ctx, &error.to_string()))?;
    let list = Array::new(ctx.clone())?;
    for (index, part) in parts.into_iter().enumerate() {
        if index == 0 {
            let json = core::str::from_utf8(&part).map_err(|_| throw(ctx, "the host's answer is not UTF-8"))?;
            list.set(index, JsString::from_str(ctx.clone(), json)?)?;
        } else {
            list.set(index, TypedArray::<u8>::new(ctx.clone(), part)?)?;
        }
    }
    Ok(list)
}

/// Cuts on a character boundary.
fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|&index| text.is_char_boundary(index)).unwrap_or(0);
    &text[..end]
}

#[rquickjs::module(rename_vars = "camelCase", rename_types = "camelCase")]
#[allow(clippy::module_inception, clippy::needless_pass_by_value, missing_docs)]
pub mod host {
    use super::*;

    /// Calls `module.function`; `args` is a JSON array. Returns [json, ...blobs].
    #[rquickjs::function]
    pub fn call<'js>(ctx: Ctx<'js>, module: String, function: String, args: String, blobs: Vec<TypedArray<'js, u8>>) -> Result<Array<'js>> {
        let request = frame(&ctx, &args, &blobs)?;
        let reply = host_call(module, function, request).map_err(|error| throw(&ctx, &error.message))?;
        unframe(&ctx, &reply)
    }

    /// Writes one entry of the run's log.
    #[rquickjs::function]
    pub fn log(ctx: Ctx<'_>, level: String, text: String) -> Result<()> {
        let text = cut(&text, payload_limit()).to_string();
        host_log(level, text).map_err(|error| throw(&ctx, &error.message))
    }

    /// The run's input: [json, ...blobs].
    #[rquickjs::function]
    pub fn input(ctx: Ctx<'_>) -> Result<Array<'_>> {
        let bytes = host_input().map_err(|error| throw(&ctx, &error.message))?;
        unframe(&ctx, &bytes)
    }

    /// Hands over the run's outcome.
    #[rquickjs::function]
    pub fn finish<'js>(ctx: Ctx<'js>, json: String, blobs: Vec<TypedArray<'js, u8>>) -> Result<()> {
        let outcome = frame(&ctx, &json, &blobs)?;
        host_finish(outcome).map_err(|error| throw(&ctx, &error.message))
    }

    /// `require(name)`: the module's namespace, synchronously; a failure to load is thrown. The runtime's own gives a
    /// promise for a module that is not there.
    #[rquickjs::function]
    pub fn require<'js>(ctx: Ctx<'js>, name: String) -> Result<Object<'js>> {
        match Module::import(&ctx, name.clone())?.finish::<Object<'js>>() {
            Err(rquickjs::Error::WouldBlock) => Err(throw(&ctx, &format!("module \"{name}\" awaits at its top level: import it instead"))),
            other => other,
        }
    }
}
