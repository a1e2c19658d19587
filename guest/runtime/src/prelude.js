// Defines everything that a run starts with. It runs once, at the guest's boot, before the snapshot is taken. `host` is the object of
// src/host.rs and is not passed to agent code. `codec` is codec.js, `calls` is calls.js; `timers` and `format` come from globals/. It
// returns nothing. The host calls `run` through a handler.
(host, codec, calls, timers, format) => {
  const { encode, decode } = codec;
  const { freeze, defineProperty } = Object;
  let registered;

  // ---- a run ------------------------------------------------------------------------------------------------------
  // Records in this file have no prototype, so that properties which agent code adds to Object.prototype have no effect on them.
  function position(stack) {
    const found = /agent:code:(\d+)(?::(\d+))?/.exec(stack);
    return found === null ? {} : { line: Number(found[1]), column: found[2] === undefined ? undefined : Number(found[2]) };
  }

  /** The longest error text that is sent to the host. The host would cut a longer text, or the text would not fit into a payload. */
  const MAX_TEXT = 16 * 1024;
  const text = (value) => String(value ?? "").slice(0, MAX_TEXT);

  function describeError(kind, error) {
    if (!(error instanceof Error)) return { __proto__: null, kind, name: typeof error, message: text(format([error])), stack: "" };
    const stack = text(error.stack);
    return { __proto__: null, kind, name: text(error.name), message: text(error.message), stack, ...position(stack) };
  }

  /** Describes an error and never throws, even if the thrown value has getters or proxy traps that throw. */
  function describe(kind, error) {
    try {
      return describeError(kind, error);
    } catch {
      return { __proto__: null, kind, name: typeof error, message: "reading the thrown value throws too", stack: "" };
    }
  }

  /**
   * Settles as `work` does, or rejects with an error that nobody caught meanwhile, for example in a timer's callback or an event listener.
   */
  function guarded(work) {
    return new Promise((resolve, reject) => {
      timers.listen(reject);
      work().then(resolve, reject);
    });
  }

  async function outcome(code) {
    let handler;
    try {
      const namespace = await guarded(() => import(code));
      handler = registered ?? namespace.handler ?? namespace.default;
    } catch (error) {
      return { __proto__: null, failure: describe("load", error) };
    }
    if (typeof handler !== "function") return { __proto__: null, failure: { __proto__: null, kind: "handler" } };
    let value;
    try {
      const [json, ...blobs] = host.input();
      value = await guarded(async () => handler(decode(json, blobs)));
    } catch (error) {
      return { __proto__: null, failure: describe("throw", error) };
    }
    return { __proto__: null, value };
  }

  /** Warns of async calls and fetches that nobody awaited. They end with the run, finished or not, which is rarely intended. */
  function warnOfUnsettled() {
    const left = calls.unsettled();
    const count = left.calls + left.fetches;
    if (count === 0) return;
    const called = left.calls === 0 ? "" : `${left.calls} ${left.calls === 1 ? "call" : "calls"} made with .async`;
    const fetched = left.fetches === 0 ? "" : `${left.fetches} ${left.fetches === 1 ? "fetch" : "fetches"}`;
    const what = called === "" || fetched === "" ? called + fetched : `${called} and ${fetched}`;
    host.log("warn", `${what} had not finished when the handler returned; await ${count === 1 ? "it" : "them"} in the handler`);
  }

  function fail(failure) {
    host.finish(encode({ __proto__: null, failure })[0], []);
  }

  /** Runs the module with this name and sends its outcome to the host. */
  async function run(code) {
    const result = await outcome(code);
    if ("failure" in result) return fail(result.failure);
    const settled = new Map();
    let kind = "value";
    try {
      if (typeof result.value === "function" || typeof result.value === "symbol")
        throw new TypeError(`a ${typeof result.value} cannot leave the sandbox`);
      // Promises within the value are awaited, and so are those within their values: code often returns `list.map(async (item) => …)`.
      for (;;) {
        kind = "value";
        const [json, blobs, promises, lost] = encode(result.value ?? null, settled);
        if (promises.length === 0) {
          if (json === undefined) throw new TypeError("the value has a toJSON method that returns undefined");
          warnOfUnsettled();
          if (lost !== "") host.log("warn", `the value is incomplete, because JSON has no form for parts of it: ${lost}`);
          return host.finishValue(json, blobs);
        }
        kind = "throw";
        const values = await guarded(() => Promise.all(promises));
        for (const [index, promise] of promises.entries()) settled.set(promise, values[index]);
      }
    } catch (error) {
      return fail(describe(kind, error));
    }
  }

  const register = (handler) => {
    registered = handler;
  };
  // The handler removes `run` from this object before agent code is loaded (src/sandbox/image.rs). Modules use the other functions.
  const value = freeze({ bind: calls.bind, register, require: host.require, run });
  defineProperty(globalThis, Symbol.for("hyperlight-mcp"), { value, configurable: true });
};
