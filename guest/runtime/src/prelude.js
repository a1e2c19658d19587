// Runs once, when the guest boots, before the snapshot: what every run finds in place.
// `host` is the native module of src/host.rs, `codec` is codec.js. Returns nothing; the host calls `run` by a handler.
(host, codec) => {
  const { encode, decode } = codec;
  const { freeze, defineProperty, create, keys } = Object;
  const CODE = "agent:code";
  let registered;

  // ---- calls out of the VM ----------------------------------------------------------------------------------------
  function toError(thrown) {
    const error = new Error(thrown.message);
    if (thrown.name !== undefined) defineProperty(error, "name", { value: thrown.name, configurable: true, writable: true });
    if (thrown.code !== undefined) error.code = thrown.code;
    return error;
  }

  function invoke(module, name, args) {
    while (args.length > 0 && args[args.length - 1] === undefined) args.pop();
    const [json, blobs] = encode(args);
    const [reply, ...bytes] = host.call(module, name, json, blobs);
    const outcome = decode(reply, bytes);
    if ("thrown" in outcome) throw toError(outcome.thrown);
    return outcome.value;
  }

  /** A function of a host module: synchronous, and named as its tool. */
  function bind(module, name) {
    return defineProperty((...args) => invoke(module, name, args), "name", { value: name });
  }

  // ---- console ----------------------------------------------------------------------------------------------------
  function inspect(value, depth, seen) {
    if (typeof value === "string") return depth === 0 ? value : JSON.stringify(value);
    if (typeof value === "bigint") return `${value}n`;
    if (typeof value === "function") return `[Function ${value.name || "(anonymous)"}]`;
    if (typeof value !== "object" || value === null) return String(value);
    if (value instanceof Error) return `${value.name}: ${value.message}${value.stack ? `\n${value.stack}` : ""}`;
    if (seen.includes(value)) return "[Circular]";
    if (depth > 4) return Array.isArray(value) ? "[Array]" : "[Object]";
    if (ArrayBuffer.isView(value)) return `${value[Symbol.toStringTag]}(${value.byteLength})`;
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
    const inner = [...seen, value];
    const show = (item) => inspect(item, depth + 1, inner);
    if (Array.isArray(value)) return `[${value.map(show).join(", ")}]`;
    if (value instanceof Map) return `Map(${value.size}) {${[...value].map(([k, v]) => `${show(k)} => ${show(v)}`).join(", ")}}`;
    if (value instanceof Set) return `Set(${value.size}) {${[...value].map(show).join(", ")}}`;
    const fields = keys(value).map((key) => `${key}: ${show(value[key])}`);
    return fields.length === 0 ? "{}" : `{ ${fields.join(", ")} }`;
  }
  const format = (values) => values.map((value) => inspect(value, 0, [])).join(" ");
  const logger = (level) => defineProperty((...values) => host.log(level, format(values)), "name", { value: level });
  const console = create(null);
  for (const level of ["log", "info", "warn", "error", "debug"]) console[level] = logger(level);
  console.trace = logger("debug");
  console.assert = (condition, ...values) => {
    if (!condition) host.log("error", `Assertion failed${values.length > 0 ? `: ${format(values)}` : ""}`);
  };
  globalThis.console = console;
  globalThis.print = console.log;

  // ---- a run ------------------------------------------------------------------------------------------------------
  function position(stack) {
    const found = /agent:code:(\d+)(?::(\d+))?/.exec(stack);
    return found === null ? {} : { line: Number(found[1]), column: found[2] === undefined ? undefined : Number(found[2]) };
  }

  /** What an error may say: more would be cut by the host, or not fit through to it. */
  const MAX_TEXT = 16 * 1024;
  const text = (value) => String(value ?? "").slice(0, MAX_TEXT);

  function describeError(kind, error) {
    if (!(error instanceof Error)) return { kind, name: typeof error, message: text(format([error])), stack: "" };
    const stack = text(error.stack);
    return { kind, name: text(error.name), message: text(error.message), stack, ...position(stack) };
  }

  /** Never throws: what was thrown may have getters and traps of its own. */
  function describe(kind, error) {
    try {
      return describeError(kind, error);
    } catch {
      return { kind, name: typeof error, message: "what was thrown throws while it is described", stack: "" };
    }
  }

  async function outcome() {
    let handler;
    try {
      const namespace = await import(CODE);
      handler = registered ?? namespace.handler ?? namespace.default;
    } catch (error) {
      return { failure: describe("load", error) };
    }
    if (typeof handler !== "function") return { failure: { kind: "handler" } };
    let value;
    try {
      const [json, ...blobs] = host.input();
      value = await handler(decode(json, blobs));
    } catch (error) {
      return { failure: describe("throw", error) };
    }
    return { value };
  }

  async function run() {
    const result = await outcome();
    if ("failure" in result) return host.finish(encode(result)[0], []);
    try {
      if (typeof result.value === "function" || typeof result.value === "symbol")
        throw new TypeError(`a ${typeof result.value} cannot leave the sandbox`);
      const [json, blobs] = encode({ value: result.value ?? null });
      return host.finish(json, blobs);
    } catch (error) {
      return host.finish(encode({ failure: describe("value", error) })[0], []);
    }
  }

  const register = (handler) => {
    registered = handler;
  };
  defineProperty(globalThis, Symbol.for("hyperlight-mcp"), { value: freeze({ bind, register, run }) });
};
