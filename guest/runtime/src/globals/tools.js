// What the other files here share. Each is one expression, `(web, tools) => …`, evaluated once when the guest boots; `web` is
// the native module of src/web.rs. What they make is in the snapshot: a run does not pay for it.
(web) => {
  const { defineProperty } = Object;

  /** A global as the platform's own: not enumerable, and agent code may replace it. What it replaces is gone with its run. */
  function expose(name, value) {
    defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }

  /** Names a class as `Object.prototype.toString` does, and lists its interface as a browser's. */
  function dress(type, tag = type.name) {
    for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(type.prototype)))
      if (name !== "constructor") defineProperty(type.prototype, name, { ...property, enumerable: true });
    defineProperty(type.prototype, Symbol.toStringTag, { value: tag, configurable: true });
  }

  /** Any value as text without half characters: the standards' USVString. */
  const text = (value) => `${value}`.toWellFormed();

  const NONE = new Uint8Array(0);
  /** The bytes of an ArrayBuffer or of a view, not copied. */
  function bytesOf(source) {
    if (ArrayBuffer.isView(source))
      return source.buffer.detached ? NONE : new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    const kind = kindOf(source);
    if (kind === "ArrayBuffer" || kind === "SharedArrayBuffer") return source.detached ? NONE : new Uint8Array(source);
    throw new TypeError("expected an ArrayBuffer, a typed array or a DataView");
  }

  const samples = {
    Object: {},
    Array: [],
    Error: new Error(""),
    Number: Object(0),
    String: Object(""),
    Boolean: Object(false),
    BigInt: Object(0n),
    Date: new Date(0),
    RegExp: /x/,
    Map: new Map(),
    Set: new Set(),
    ArrayBuffer: new ArrayBuffer(0),
    SharedArrayBuffer: new SharedArrayBuffer(0),
    DataView: new DataView(new ArrayBuffer(0)),
    DOMException: new DOMException(""),
    Promise: new Promise(() => {}),
  };
  const kinds = new Map(Object.entries(samples).map(([name, sample]) => [web.kind(sample), name]));
  /** What an object is to the engine, whatever it says of itself; undefined for what is not listed above. */
  const kindOf = (value) => kinds.get(web.kind(value));

  /** Asks whether something is an object of these files' own classes, which cannot be cloned. */
  const platform = [];
  const isPlatform = (value) => platform.some((is) => is(value));

  /** The interface's own check of how many arguments there are. */
  function need(given, wanted, name) {
    if (given.length < wanted) throw new TypeError(`${name} takes ${wanted} argument${wanted === 1 ? "" : "s"}, but got ${given.length}`);
  }

  return { expose, dress, text, bytesOf, kindOf, platform, isPlatform, need };
};
