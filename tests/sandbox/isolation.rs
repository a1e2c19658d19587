//! No run finds data of another run, wherever that run stored it. Values that must differ between runs do differ.

use std::collections::HashSet;
use std::sync::Arc;

use hyperlight_mcp::sandbox::WarmVms;
use serde_json::json;

use super::{request, run, sandboxes, value};

/// Stores a value wherever a guest can store one, and returns the values that it found there.
const PLANT: &str = r#"
    import * as all from "host:test";
    import module, { echo } from "host:test";
    const places = {
        global: globalThis,
        objects: Object.prototype,
        arrays: Array.prototype,
        functions: Function.prototype,
        strings: String.prototype,
        promises: Promise.prototype,
        errors: Error,
        regexes: RegExp.prototype,
        json: JSON,
        math: Math,
        reflect: Reflect,
        symbols: Symbol,
        dates: Date.prototype,
        urls: URL.prototype,
        texts: TextEncoder.prototype,
        events: EventTarget.prototype,
        crypto,
        performance,
        console,
        module,
        echo,
        own: globalThis[Symbol.for("hyperlight-mcp")],
        bind: globalThis[Symbol.for("hyperlight-mcp")].bind,
        generators: Object.getPrototypeOf(function* () {}).prototype,
        iterators: Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]())),
        typed: Object.getPrototypeOf(Uint8Array.prototype),
    };
    const name = "planted-by-a-run";
    export const handler = async () => {
        const found = Object.entries(places).filter(([, place]) => Object.hasOwn(place, name)).map(([key]) => key);
        if (Symbol.keyFor(Symbol.for(name)) !== name) found.push("symbol registry");
        for (const place of Object.values(places)) try { Object.defineProperty(place, name, { value: 1, configurable: true }) } catch {}
        try { Math.max = () => "planted" } catch {}
        try { JSON.stringify = () => "planted" } catch {}
        try { globalThis.structuredClone = () => "planted" } catch {}
        /planted (.*)/.exec("planted here");
        console.count("planted");
        setTimeout(() => { globalThis.late = "planted" }, 0);
        setInterval(() => {}, 1);
        Promise.reject(new Error("planted and never caught"));
        globalThis[Symbol.for("hyperlight-mcp")].register(undefined);
        const before = [Math.max(1, 2), typeof structuredClone(1), globalThis.late ?? "none"];
        globalThis.kept = Array.from({ length: 2000 }, (_, index) => "planted " + index);
        return { found, names: Object.keys(all).length, before: before[2] };
    };"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_plants_anywhere_is_not_there_in_the_next() {
    for warm in [WarmVms::default(), WarmVms { vms: 0, ..WarmVms::default() }] {
        let sandboxes = Arc::new(sandboxes().with_warm_vms(warm));
        for round in 0..6 {
            let outcome = run(&sandboxes, request(PLANT)).await;
            assert_eq!(value(outcome), json!({ "found": [], "names": 5, "before": "none" }), "round {round}, {warm:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_a_run_gets_holds_nothing_of_another() {
    let sandboxes = Arc::new(sandboxes());
    // Fills the heap, frees it, and checks the contents of new buffers.
    let code = r"
        export const handler = () => {
            const size = 1 << 20;
            let dirty = 0;
            for (let round = 0; round < 8; round += 1) {
                // In words, and without a function for each: an emulated machine takes a minute for what is nothing here.
                const words = new Uint32Array(size / 4);
                for (let index = 0; index < words.length; index += 1) if (words[index] !== 0) dirty += 1;
                words.fill(0xa5a5a5a5);
            }
            return dirty;
        };";
    for _ in 0..3 {
        assert_eq!(value(run(&sandboxes, request(code)).await), json!(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_run_has_entropy_of_its_own_whether_its_vm_waited_or_not() {
    let code = "export const handler = () => [crypto.randomUUID(), Math.random(), [...crypto.getRandomValues(new Uint32Array(4))].join()]";
    let mut seen = HashSet::new();
    for warm in [WarmVms::default(), WarmVms { vms: 0, ..WarmVms::default() }] {
        let sandboxes = Arc::new(sandboxes().with_warm_vms(warm));
        for _ in 0..6 {
            for part in value(run(&sandboxes, request(code)).await).as_array().unwrap() {
                assert!(seen.insert(part.to_string()), "{part} was there before");
            }
        }
    }
    assert_eq!(seen.len(), 36);
}
