//! The cases of the web platform tests for encodings, URLs and base64, in the guest. The cases that are expected to fail are listed by
//! name, each with its reason. If a listed case passes, the test fails too, so that the list stays correct.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::guest::{evaluate, evaluate_on};

/// Runs a handler that returns `{ cases, failed: [name, …] }`, and compares the failed cases with the expected ones.
fn hold(code: &str, data: &str, least: u64, expected: &str) {
    let result = evaluate_on(code, data);
    assert!(result["cases"].as_u64().unwrap() >= least, "only {} cases", result["cases"]);
    let failed: BTreeSet<&str> = result["failed"].as_array().unwrap().iter().filter_map(Json::as_str).collect();
    let known: BTreeSet<&str> = expected.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let failing: Vec<_> = failed.difference(&known).collect();
    let passing: Vec<_> = known.difference(&failed).collect();
    assert!(
        failing.is_empty() && passing.is_empty(),
        "fail and are not expected to: {failing:#?}\nare expected to fail and do not: {passing:#?}"
    );
}

const URLS: &str = r#"
    const PARTS = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
    export function handler(all) {
        const failed = [];
        let cases = 0;
        for (const test of all) {
            if (typeof test === "string") continue;
            cases += 1;
            const name = JSON.stringify(test.base === null ? [test.input] : [test.input, test.base]);
            try {
                const url = new URL(test.input, test.base ?? undefined);
                const right = !test.failure && PARTS.every((part) => !(part in test) || url[part] === test[part])
                    && (!("searchParams" in test) || url.searchParams.toString() === test.searchParams)
                    && new URL(url.href).href === url.href;
                if (!right) failed.push(name);
            } catch (error) {
                if (!test.failure || !(error instanceof TypeError)) failed.push(name);
            }
            if (URL.canParse(test.input, test.base ?? undefined) === Boolean(test.failure)) failed.push(name);
        }
        return { cases, failed };
    }"#;

#[test]
fn urls_are_parsed_as_the_standard_says() {
    hold(URLS, include_str!("../web-platform/urltestdata.json"), 800, include_str!("../web-platform/expected-failures/urls.txt"));
}

const SETTERS: &str = r#"
    export function handler(all) {
        const failed = [];
        let cases = 0;
        for (const [part, tests] of Object.entries(all)) {
            if (part === "comment") continue;
            for (const test of tests) {
                cases += 1;
                const url = new URL(test.href);
                try { url[part] = test.new_value } catch (error) { if (part !== "href") throw error }
                if (Object.entries(test.expected).some(([name, value]) => url[name] !== value)) failed.push(JSON.stringify([test.href, part, test.new_value]));
            }
        }
        return { cases, failed };
    }"#;

#[test]
fn parts_of_a_url_are_set_as_the_standard_says() {
    hold(SETTERS, include_str!("../web-platform/setters_tests.json"), 250, include_str!("../web-platform/expected-failures/setters.txt"));
}

const HOSTS: &str = r#"
    export function handler(all) {
        const host = (input) => { try { return new URL(`https://${input}/x`).host } catch { return null } };
        const set = (input) => { const url = new URL("https://x/"); url.host = input; return url.host };
        const failed = all.filter(({ input, output }) => host(input) !== output || set(input) !== (output ?? "x"));
        return { cases: all.length, failed: failed.map(({ input }) => JSON.stringify(input)) };
    }"#;

#[test]
fn names_of_hosts_become_ascii_as_the_standard_says() {
    hold(HOSTS, include_str!("../web-platform/toascii.json"), 43, include_str!("../web-platform/expected-failures/hosts.txt"));
}

const FORMS: &str = r"
    export function handler(all) {
        const failed = all.filter(({ input, output }) => JSON.stringify([...new URLSearchParams(input)]) !== JSON.stringify(output));
        return { cases: all.length, failed: failed.map(({ input }) => input) };
    }";

#[test]
fn search_parameters_are_read_as_the_standard_says() {
    hold(FORMS, include_str!("../web-platform/urlencoded-parser-data.json"), 35, "");
}

const BASE64: &str = r#"
    export function handler(all) {
        const decode = (text) => {
            try { return Array.from(atob(text), (character) => character.charCodeAt(0)) }
            catch (error) { return error instanceof DOMException && error.name === "InvalidCharacterError" && error.code === 5 ? null : error.name }
        };
        const failed = all.filter(([text, bytes]) => JSON.stringify(decode(text)) !== JSON.stringify(bytes)
            // What was decoded becomes the same text, but for white space and how many ends there are.
            || bytes !== null && atob(btoa(String.fromCharCode(...bytes))) !== String.fromCharCode(...bytes));
        return { cases: all.length, failed: failed.map(([text]) => JSON.stringify(text)) };
    }"#;

#[test]
fn base64_is_read_as_forgivingly_as_the_standard_says() {
    hold(BASE64, include_str!("../web-platform/base64.json"), 70, "");
}

const ENCODINGS: &str = r#"
    const SPACES = ["\t", "\n", "\f", "\r", " ", "\t\n\f\r "];
    const NOT_SPACES = ["\0", "\v", "\u00a0", "\u2028", "\u2029"];
    const failed = [];
    let cases = 0;
    function check(name, held) { cases += 1; let right; try { right = held() } catch (error) { right = false } if (!right) failed.push(name) }
    const refuses = (work, type) => { try { work() } catch (error) { return error instanceof type } return false };
    const bytes = (list) => new Uint8Array(list);

    function labels(table) {
        for (const [name, all] of Object.entries(table)) for (const label of all) {
            if (name === "replacement") {
                check(`label ${label}`, () => refuses(() => new TextDecoder(label), RangeError));
                continue;
            }
            for (const given of [label, label.toUpperCase(), ...SPACES.flatMap((space) => [space + label, label + space, space + label + space])])
                check(`label ${JSON.stringify(given)}`, () => new TextDecoder(given).encoding === name);
            for (const space of NOT_SPACES)
                check(`label ${JSON.stringify(space + label)}`, () => [space + label, label + space].every((given) => refuses(() => new TextDecoder(given), RangeError)));
            check(`encoder of ${label}`, () => new TextEncoder(label).encoding === "utf-8");
        }
        check("label replacement", () => refuses(() => new TextDecoder("replacement"), RangeError));
    }

    export function handler(data) {
        labels(data.labels);
        for (const [name, input] of data.fatal) {
            check(`fatal ${name}`, () => refuses(() => new TextDecoder("utf-8", { fatal: true }).decode(bytes(input)), TypeError));
            check(`replaced ${name}`, () => new TextDecoder().decode(bytes(input)).includes("\ufffd"));
        }
        check("fatal utf-16le", () => refuses(() => new TextDecoder("utf-16le", { fatal: true }).decode(bytes([0])), TypeError));
        for (const [encoding, none] of Object.entries(data.singleByteWithoutACharacter)) for (let byte = 0; byte < 256; byte += 1)
            check(`${encoding} ${byte}`, () => {
                const decode = () => new TextDecoder(encoding, { fatal: true }).decode(bytes([byte]));
                return none.includes(byte) ? refuses(decode, TypeError) : decode().length === 1;
            });
        data.whole.forEach(([encoding, input, text], index) => {
            check(`whole ${index}`, () => new TextDecoder(encoding).decode(bytes(input)) === text);
            if (encoding.startsWith("utf-16")) check(`whole fatal ${index}`, () => refuses(() => new TextDecoder(encoding, { fatal: true }).decode(bytes(input)), TypeError));
        });
        data.parts.forEach(([encoding, steps], index) => {
            const decoder = new TextDecoder(encoding);
            steps.forEach(([input, more, text], step) => check(`parts ${index}.${step}`, () => decoder.decode(bytes(input), { stream: Boolean(more) }) === text));
        });
        for (const [encoding, octets] of Object.entries(data.windows.bytes)) for (const buffer of [ArrayBuffer, SharedArrayBuffer]) for (let size = 1; size <= 5; size += 1)
            check(`windows of ${size} of ${encoding} in ${buffer.name}`, () => {
                const decoder = new TextDecoder(encoding);
                let text = "";
                for (let start = 0; start < octets.length; start += size) {
                    const part = octets.slice(start, start + size);
                    const view = new Uint8Array(new buffer(part.length));
                    view.set(part);
                    text += decoder.decode(view, { stream: true });
                }
                return text + decoder.decode() === data.windows.text;
            });
        data.encodeInto.forEach(([input, size, read, written], index) => check(`encodeInto ${index}`, () => {
            const view = bytes(size);
            const result = new TextEncoder().encodeInto(input, view);
            return result.read === read && result.written === written.length && view.every((byte, at) => byte === (written[at] ?? 0));
        }));
        for (const view of [DataView, Int8Array, Int16Array, Int32Array, Uint16Array, Uint32Array, Uint8ClampedArray, Float32Array, Float64Array])
            check(`encodeInto ${view.name}`, () => refuses(() => new TextEncoder().encodeInto("", new view(new ArrayBuffer(0))), TypeError));
        return { cases, failed };
    }"#;

#[test]
fn encodings_are_as_the_standard_says() {
    hold(ENCODINGS, include_str!("../web-platform/encoding.json"), 8_000, "");
}

#[test]
fn byte_order_marks_are_taken_away_unless_they_are_asked_for() {
    // encoding/textdecoder-ignorebom: each byte order mark is removed once, or kept on request.
    let code = r#"
        const MARKED = { "utf-8": [0xef, 0xbb, 0xbf, 0x61], "utf-16le": [0xff, 0xfe, 0x61, 0], "utf-16be": [0xfe, 0xff, 0, 0x61] };
        export const handler = () => Object.entries(MARKED).map(([encoding, list]) => {
            const twice = new TextDecoder(encoding);
            return [false, true].map((ignoreBOM) => new TextDecoder(encoding, { ignoreBOM }).decode(new Uint8Array(list)))
                .concat(twice.decode(new Uint8Array(list)) + twice.decode(new Uint8Array(list)), twice.decode(new Uint8Array(list.slice(0, 1)), { stream: true }) + twice.decode(new Uint8Array(list.slice(1))));
        })"#;
    let row = serde_json::json!(["a", "\u{feff}a", "aa", "a"]);
    assert_eq!(evaluate(code), serde_json::json!([row, row, row]));
}
