//! Tests of the other globals, for behaviour that the data of the web platform tests does not cover.

use std::collections::HashSet;

use hyperlight_mcp::redact::Redactor;
use serde_json::json;

use crate::guest::{assert_in_guest, evaluate, request, sandboxes};

#[test]
fn globals_are_as_the_platforms_own() {
    assert_in_guest(
        r#"
        const names = ["TextEncoder", "TextDecoder", "URL", "URLSearchParams", "structuredClone", "crypto", "performance", "setTimeout", "clearTimeout",
            "setInterval", "clearInterval", "setImmediate", "clearImmediate", "Event", "CustomEvent", "EventTarget", "AbortController", "AbortSignal",
            "queueMicrotask", "atob", "btoa", "DOMException"];
        for (const name of names) {
            const property = Object.getOwnPropertyDescriptor(globalThis, name);
            assert(property !== undefined && !property.enumerable || name === "performance", name);
        }
        equal(Object.keys(globalThis).filter((name) => names.includes(name)), []);
        equal([new TextDecoder(), new URL("a:b"), new AbortController(), crypto].map(String), ["[object TextDecoder]", "a:b", "[object AbortController]", "[object Crypto]"]);
        globalThis.URL = 1;
        equal(URL, 1);
        assert(thrown(() => { "use strict"; console.log = 1 }) instanceof TypeError, "console is frozen");
        equal(["fetch", "process", "Buffer", "Intl", "window"].map((name) => typeof globalThis[name]), Array(5).fill("undefined"));
        "#,
    );
    // A change of a global ends with its run.
    assert_eq!(evaluate("export const handler = () => typeof URL"), json!("function"));
}

#[test]
fn no_two_runs_have_the_same_entropy() {
    let code = "export const handler = () => [crypto.randomUUID(), crypto.getRandomValues(new Uint8Array(16)).toHex(), String(Math.random()), String(Math.random())]";
    let mut seen = HashSet::new();
    for _ in 0..20 {
        for drawn in evaluate(code).as_array().unwrap() {
            assert!(seen.insert(drawn.as_str().unwrap().to_owned()), "{drawn} twice");
        }
    }
}

#[test]
fn entropy_comes_as_it_is_asked_for() {
    assert_in_guest(
        r#"
        assert(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), "a UUID");
        equal(new Set(Array.from({ length: 1000 }, () => crypto.randomUUID())).size, 1000);
        const words = new Uint32Array(8);
        assert(crypto.getRandomValues(words) === words && words.some((word) => word > 0xffff), "filled where it is");
        const part = new Uint8Array(100);
        crypto.getRandomValues(part.subarray(10, 90));
        assert(part.subarray(0, 10).every((byte) => byte === 0) && part.subarray(90).every((byte) => byte === 0) && part.some((byte) => byte !== 0), "a part");
        crypto.getRandomValues(new Uint8Array(0)); crypto.getRandomValues(new BigInt64Array(1));
        crypto.getRandomValues(new Uint8Array(65536));
        const quota = thrown(() => crypto.getRandomValues(new Uint8Array(65537)));
        equal([quota instanceof DOMException, quota.name, quota.code], [true, "QuotaExceededError", 22]);
        for (const wrong of [new Float32Array(1), [1], new DataView(new ArrayBuffer(1)), undefined])
            equal(thrown(() => crypto.getRandomValues(wrong)).name, "TypeMismatchError");
        const numbers = Array.from({ length: 10_000 }, Math.random);
        assert(numbers.every((number) => number >= 0 && number < 1), "between 0 and 1");
        assert(Math.abs(numbers.reduce((sum, number) => sum + number, 0) / 10_000 - 0.5) < 0.02, "even");
        equal(new Set(numbers).size, 10_000);
        equal([Math.random.name, Math.random.length], ["random", 0]);
        "#,
    );
}

#[test]
fn a_clone_is_deep_keeps_what_is_shared_and_its_kinds() {
    assert_in_guest(
        r#"
        const buffer = new Uint8Array([1, 2, 3, 4]).buffer;
        const value = {
            date: new Date(5), pattern: /a+/giu, map: new Map([[{ k: 1 }, new Set([1, "x"])]]), big: 5n, list: [1, , 3], nothing: undefined, nan: NaN, minus: -0,
            bytes: new Uint8Array(buffer, 1, 2), view: new DataView(buffer, 2), words: new Float64Array([0.5]), boxed: Object("text"),
            error: Object.assign(new RangeError("far", { cause: { deep: 1 } }), { extra: 1 }),
        };
        value.self = value; value.map.set("self", value); value.again = value.date;
        const copy = structuredClone(value);
        assert(copy !== value && copy.self === copy && copy.map.get("self") === copy && copy.again === copy.date && copy.date !== value.date, "cycles");
        equal([copy.date.getTime(), String(copy.pattern), copy.pattern.lastIndex, copy.big, 1 in copy.list, copy.list.length, "nothing" in copy], [5, "/a+/giu", 0, 5n, false, 3, true]);
        assert(Object.is(copy.nan, NaN) && Object.is(copy.minus, -0), "numbers");
        const [key, set] = [...copy.map][0];
        assert(key.k === 1 && set instanceof Set && set.has("x"), "maps and sets");
        assert(copy.bytes.buffer === copy.view.buffer && copy.bytes.buffer !== buffer, "one buffer");
        equal([[...copy.bytes], copy.view.getUint8(0), copy.words[0], copy.boxed instanceof String], [[2, 3], 3, 0.5, true]);
        const { error } = copy;
        equal([error instanceof RangeError, error.message, error.cause, error.stack === value.error.stack, "extra" in error], [true, "far", { deep: 1 }, true, false]);
        class Point { x = 1; get y() { return 2 } }
        const point = structuredClone(new Point());
        equal([point, Object.getPrototypeOf(point) === Object.prototype], [{ x: 1 }, true]);
        equal(structuredClone(Object.create({ inherited: 1 }, { own: { value: 1, enumerable: true }, hidden: { value: 1 } })), { own: 1 });
        equal(structuredClone({ get a() { return 7 } }), { a: 7 });
        equal(structuredClone(JSON.parse('{"__proto__":1}')), JSON.parse('{"__proto__":1}'));
        const moved = new ArrayBuffer(8);
        const received = structuredClone({ moved }, { transfer: [moved] });
        equal([moved.detached, received.moved.byteLength], [true, 8]);
        for (const wrong of [() => {}, Symbol("s"), Promise.resolve(), new WeakMap(), new URL("a:b"), new AbortController(), { deep: [class {}] }, new Proxy({}, {}), moved]) {
            const refused = thrown(() => structuredClone(wrong));
            equal([refused instanceof DOMException, refused.name, refused.code], [true, "DataCloneError", 25]);
        }
        assert(thrown(() => structuredClone()) instanceof TypeError, "nothing to clone");
        let deep = []; for (let level = 0; level < 100_000; level += 1) deep = [deep];
        assert(thrown(() => structuredClone(deep)) instanceof RangeError, "too deep");
        "#,
    );
}

#[test]
fn search_parameters_and_their_url_are_one() {
    assert_in_guest(
        r#"
        const url = new URL("https://user:pw@Example.com:443/a/../b?x=1&y=2#h");
        equal(String(url), "https://user:pw@example.com/b?x=1&y=2#h");
        const { searchParams: params } = url;
        assert(params === url.searchParams, "the same object");
        params.append("z", "ä &");
        equal(url.href, "https://user:pw@example.com/b?x=1&y=2&z=%C3%A4+%26#h");
        url.search = "?q=1";
        equal([...params], [["q", "1"]]);
        url.href = "http://other/?a=b";
        equal(params.get("a"), "b");
        params.delete("a");
        equal(url.href, "http://other/");
        equal(JSON.stringify({ url }), '{"url":"http://other/"}');
        const invalid = thrown(() => new URL("nowhere"));
        equal([invalid instanceof TypeError, invalid.code, invalid.message], [true, "ERR_INVALID_URL", "Invalid URL: nowhere"]);
        assert(thrown(() => { url.href = "nowhere" }) instanceof TypeError && url.href === "http://other/", "unchanged");
        equal([URL.canParse("nowhere"), URL.canParse("/a", "b:/c"), URL.parse("nowhere"), URL.parse("/a", "b:/c").href], [false, true, null, "b:/a"]);
        assert(thrown(() => { "use strict"; url.origin = "x" }) instanceof TypeError, "origin is read only");
        equal(new URL("https://x/\ud800").href, "https://x/%EF%BF%BD");
        "#,
    );
}

#[test]
fn search_parameters_are_made_of_text_lists_records_and_themselves() {
    assert_in_guest(
        r#"
        for (const init of ["?a=1&b=2", [["a", "1"], ["b", 2]], { a: 1, b: 2 }, new Map([["a", 1], ["b", 2]]), new URLSearchParams("a=1&b=2"), [["a", 1].values(), new Set(["b", 2])]])
            equal(String(new URLSearchParams(init)), "a=1&b=2");
        equal([String(new URLSearchParams()), String(new URLSearchParams(null)), String(new URLSearchParams("??a"))], ["", "null=", "%3Fa="]);
        for (const wrong of [[["a"]], [["a", "b", "c"]], [1], ["ab"], { [Symbol("s")]: 1 }]) assert(thrown(() => new URLSearchParams(wrong)) instanceof TypeError, shown(wrong));
        const params = new URLSearchParams("a=1&b=2&a=3");
        equal([params.get("a"), params.get("c"), params.getAll("a"), params.has("b"), params.has("a", "3"), params.has("a", "2"), params.size], ["1", null, ["1", "3"], true, true, false, 3]);
        params.set("a", "4"); params.set("c", "5");
        equal(String(params), "a=4&b=2&c=5");
        params.delete("a", "no"); params.delete("b"); params.append("a", "0"); params.sort();
        equal([[...params.keys()], [...params.values()], [...params.entries()].length], [["a", "a", "c"], ["4", "0", "5"], 3]);
        const seen = []; params.forEach((value, name, all) => seen.push([name, value, all === params])); equal(seen[2], ["c", "5", true]);
        assert(thrown(() => params.append("a")) instanceof TypeError, "an argument is missing");
        equal(new URLSearchParams({ "\ud800": "x y~*" }).toString(), "%EF%BF%BD=x+y%7E*");
        "#,
    );
}

#[test]
fn text_becomes_bytes_and_back() {
    assert_in_guest(
        r#"
        equal([...new TextEncoder().encode("aß€😀\ud800\0")], [97, 195, 159, 226, 130, 172, 240, 159, 152, 128, 239, 191, 189, 0]);
        equal([new TextEncoder().encode().length, new TextEncoder().encode(undefined).length, new TextEncoder().encode(null).length], [0, 0, 4]);
        const text = "aß€😀".repeat(100_000);
        equal(new TextDecoder().decode(new TextEncoder().encode(text)) === text, true);
        equal(new TextDecoder("windows-1252").decode(new Uint8Array([0x80, 0xe4]).buffer), "€ä");
        equal(new TextDecoder("shift_jis").decode(new Uint8Array([0x93, 0xfa, 0x96, 0x7b])), "日本");
        equal(new TextDecoder("gb18030").decode(new Uint8Array([0xc4, 0xe3])), "你");
        equal(new TextDecoder().decode(new DataView(new Uint8Array([1, 65, 66]).buffer, 1)), "AB");
        const detached = new Uint8Array(4); detached.buffer.transfer();
        equal([new TextDecoder().decode(), new TextDecoder().decode(detached)], ["", ""]);
        for (const wrong of [null, 5, "text", [1]]) assert(thrown(() => new TextDecoder().decode(wrong)) instanceof TypeError, shown(wrong));
        const worst = new TextDecoder().decode(new Uint8Array(1 << 20).fill(0xff));
        equal([worst.length, worst[0]], [1 << 20, "\ufffd"]);
        const fatal = new TextDecoder("utf-8", { fatal: true });
        assert(thrown(() => fatal.decode(new Uint8Array([0xff]), { stream: true })) instanceof TypeError, "an error in a part");
        equal(fatal.decode(new Uint8Array([65])), "A");
        "#,
    );
}

#[test]
fn bytes_become_base64_and_hex_and_back() {
    assert_in_guest(
        r#"
        const bytes = new Uint8Array([0, 1, 254, 255]);
        equal([bytes.toBase64(), bytes.toBase64({ alphabet: "base64url", omitPadding: true }), bytes.toHex()], ["AAH+/w==", "AAH-_w", "0001feff"]);
        equal([[...Uint8Array.fromBase64("AAH+/w==")], [...Uint8Array.fromBase64("AAH-_w", { alphabet: "base64url" })], [...Uint8Array.fromHex("0001FEff")]], [[...bytes], [...bytes], [...bytes]]);
        const into = new Uint8Array(3);
        equal([into.setFromHex("010203"), [...into], into.setFromBase64("////")], [{ read: 6, written: 3 }, [1, 2, 3], { read: 4, written: 3 }]);
        assert(thrown(() => Uint8Array.fromHex("0")) instanceof SyntaxError && thrown(() => Uint8Array.fromBase64("*")) instanceof SyntaxError, "no hex, no base64");
        equal([btoa("\xff\0a"), atob("/wBh")], ["/wBh", "\xff\0a"]);
        const wide = thrown(() => btoa("€")); equal([wide instanceof DOMException, wide.name], [true, "InvalidCharacterError"]);
        "#,
    );
}

#[test]
fn what_is_aborted_tells_its_listeners_once() {
    assert_in_guest(
        r#"
        const controller = new AbortController();
        const { signal } = controller;
        const heard = [];
        signal.onabort = (event) => heard.push(["on", event.type, event.target === signal]);
        const removed = () => heard.push("removed");
        signal.addEventListener("abort", removed); signal.removeEventListener("abort", removed);
        signal.addEventListener("abort", { handleEvent() { heard.push("object") } }, { once: true });
        controller.abort(); controller.abort("again");
        equal(heard, [["on", "abort", true], "object"]);
        equal([signal.aborted, signal.reason.name, thrown(() => signal.throwIfAborted()) === signal.reason], [true, "AbortError", true]);
        equal([AbortSignal.abort("why").reason, AbortSignal.any([AbortSignal.abort(1), signal]).reason], ["why", 1]);
        const late = new AbortController(); const any = AbortSignal.any([new AbortController().signal, late.signal]);
        late.abort("late"); equal(any.reason, "late");
        const timed = AbortSignal.timeout(10);
        await Promise.race([sleep(5_000), new Promise((resolve) => timed.addEventListener("abort", resolve))]);
        equal(timed.reason.name, "TimeoutError");
        assert(thrown(() => new AbortSignal()) instanceof TypeError, "no constructor");
        class Own extends EventTarget {}
        const own = new Own(); let detail;
        own.addEventListener("told", (event) => { detail = event.detail; event.preventDefault() });
        equal([own.dispatchEvent(new CustomEvent("told", { detail: { a: 1 }, cancelable: true })), detail, own.dispatchEvent(new Event("other"))], [false, { a: 1 }, true]);
        "#,
    );
}

#[test]
fn dates_and_numbers_are_written_for_people_without_intl() {
    assert_in_guest(
        r#"
        const date = new Date(Date.UTC(2024, 0, 5, 15, 4, 9, 7));
        equal([date.toLocaleString(), date.toLocaleDateString(), date.toLocaleTimeString(), date.toLocaleString("de-DE")],
            ["1/5/2024, 3:04:09 PM", "1/5/2024", "3:04:09 PM", "1/5/2024, 3:04:09 PM"]);
        const long = { weekday: "long", year: "numeric", month: "long", day: "numeric" };
        equal([date.toLocaleDateString("en-US", long), date.toLocaleDateString(undefined, { month: "short", day: "2-digit" }), date.toLocaleDateString("en-US", { year: "numeric", month: "2-digit", day: "2-digit" })],
            ["Friday, January 5, 2024", "Jan 05", "01/05/2024"]);
        equal([date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }), date.toLocaleTimeString("en-US", { hour12: false }), date.toLocaleString("en-US", { dateStyle: "medium", timeStyle: "short" })],
            ["03:04 PM", "15:04:09", "Jan 5, 2024, 3:04 PM"]);
        equal([date.toLocaleString("en-US", { timeZone: "UTC" }), date.toLocaleString("en-US", { timeZone: "Europe/Berlin" })], ["1/5/2024, 3:04:09 PM", "1/5/2024, 3:04:09 PM UTC"]);
        equal([date.toLocaleString("en-US", { month: "long" }), date.toLocaleDateString("en-US", { month: "long", year: "numeric" }), date.toLocaleDateString("en-US", { weekday: "short" })], ["January", "January 2024", "Fri"]);
        equal([new Date(NaN).toLocaleString(), date.toLocaleDateString(null, null), new Date(0).getTimezoneOffset(), date.getHours()], ["Invalid Date", "1/5/2024", 0, 15]);
        for (const wrong of [{ month: "odd" }, { timeZone: 5 }, { dateStyle: {} }, 7]) equal(typeof date.toLocaleString("xx", wrong), "string");
        equal([1234567.891, -1234.5, 0.1 + 0.2, 1e21, NaN, -Infinity, -0].map((number) => number.toLocaleString()), ["1,234,567.891", "-1,234.5", "0.3", "1,000,000,000,000,000,000,000", "NaN", "-∞", "0"]);
        const as = (number, options) => number.toLocaleString("en-US", options);
        equal([as(5, { minimumFractionDigits: 2 }), as(5.678, { maximumFractionDigits: 1 }), as(0.256, { style: "percent" }), as(-1234.5, { style: "currency", currency: "USD" }), as(5, { style: "currency", currency: "EUR" }), as(5, { style: "currency", currency: "JPY" }), as(5, { style: "currency", currency: "CHF" }), as(1234, { useGrouping: false })],
            ["5.00", "5.7", "26%", "-$1,234.50", "€5.00", "¥5", "CHF 5.00", "1234"]);
        equal([12345678901234567890n.toLocaleString(), [1234, 5].toLocaleString(), "ä".localeCompare("b") !== 0], ["12,345,678,901,234,567,890", "1,234,5", true]);
        assert(thrown(() => Date.prototype.toLocaleString.call({})) instanceof TypeError, "no date");
        "#,
    );
}

/// Returns the error of a run that fails.
fn failure(code: &str) -> (String, String) {
    let error = sandboxes().run(request(code)).value.unwrap_err();
    (error.code().to_owned(), error.redacted(&Redactor::new(None, None)).to_string())
}

#[test]
fn what_is_not_here_says_what_to_do_instead() {
    for (code, instead) in [
        ("export const handler = () => fetch('https://x/')", "no network"),
        ("export const handler = () => Buffer.from('x')", "Uint8Array.fromBase64"),
        ("export const handler = () => process.env.HOME", "the run's input"),
        ("export const handler = async () => { await sleep(5) }", "import { sleep } from \"host:mcp\""),
        ("module.exports = { handler: () => 1 }", "export function handler"),
        ("import fs from 'node:fs'; export const handler = () => 1", "no files"),
        ("import { setTimeout } from 'timers/promises'; export const handler = () => 1", "import sleep from"),
    ] {
        let (_, message) = failure(code);
        assert!(message.contains(instead), "{code}: {message}");
    }
    let (code, message) = failure("export const handler = () => fetched()");
    assert_eq!(code, "ERR_GUEST_THREW");
    assert!(!message.contains("network"), "{message}");
}

#[test]
fn the_native_half_is_no_module() {
    let (code, message) = failure("import * as web from \"hyperlight-mcp:web\"; export const handler = () => typeof web.wait");
    assert_eq!(code, "ERR_CODE_SYNTAX", "{message}");
}
