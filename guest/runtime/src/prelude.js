// Runs once, when the guest boots, before the snapshot: what every run finds in place.
// `host` is what src/host.rs makes, and is handed on to nobody; `codec` is codec.js, `calls` is calls.js, `timers` and `format` come from
// globals/. Returns nothing; the host calls `run` by a handler.
(host, codec, calls, timers, format) => {
  const { encode, decode } = codec;
  const { freeze, defineProperty } = Object;
  let registered;

  // ---- a run ------------------------------------------------------------------------------------------------------
  // Records here have no prototype: what agent code puts on Object.prototype is neither found in them nor asked how they are written.
  function position(stack) {
    const found = /agent:code:(\d+)(?::(\d+))?/.exec(stack);
    return found === null ? {} : { line: Number(found[1]), column: found[2] === undefined ? undefined : Number(found[2]) };
  }

  /** What an error may say: more would be cut by the host, or not fit through to it. */
  const MAX_TEXT = 16 * 1024;
  const text = (value) => String(value ?? "").slice(0, MAX_TEXT);

  function describeError(kind, error) {
    if (!(error instanceof Error)) return { __proto__: null, kind, name: typeof error, message: text(format([error])), stack: "" };
    const stack = text(error.stack);
    return { __proto__: null, kind, name: text(error.name), message: text(error.message), stack, ...position(stack) };
  }

  /** Never throws: what was thrown may have getters and traps of its own. */
  function describe(kind, error) {
    try {
      return describeError(kind, error);
    } catch {
      return { __proto__: null, kind, name: typeof error, message: "what was thrown throws while it is described", stack: "" };
    }
  }

  /** What work comes to, or what nobody caught meanwhile: the error of a timer or a listener. */
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

  /** What nobody has awaited ends with the run, done or not: that is rarely what was meant. */
  function warnOfUnsettled() {
    const left = calls.unsettled();
    if (left === 0) return;
    const [noun, pronoun] = left === 1 ? ["call", "it"] : ["calls", "them"];
    host.log("warn", `${left} ${noun} made by .async had not ended with the handler, and ended with the run: await ${pronoun}`);
  }

  function fail(failure) {
    host.finish(encode({ __proto__: null, failure })[0], []);
  }

  /** Runs the module of this name, and hands its outcome to the host. */
  async function run(code) {
    const result = await outcome(code);
    if ("failure" in result) return fail(result.failure);
    warnOfUnsettled();
    try {
      if (typeof result.value === "function" || typeof result.value === "symbol")
        throw new TypeError(`a ${typeof result.value} cannot leave the sandbox`);
      const [json, blobs] = encode(result.value ?? null);
      if (json === undefined) throw new TypeError("its toJSON makes nothing of it that JSON has a word for");
      return host.finishValue(json, blobs);
    } catch (error) {
      return fail(describe("value", error));
    }
  }

  const register = (handler) => {
    registered = handler;
  };
  // The handler takes `run` away before there is agent code (src/sandbox/image.rs): what remains is what modules are made of.
  const value = freeze({ bind: calls.bind, register, require: host.require, run });
  defineProperty(globalThis, Symbol.for("hyperlight-mcp"), { value, configurable: true });
};
