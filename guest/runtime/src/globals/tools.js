// Helper functions that the other files of this folder share. Each file is one expression, `(web, tools) => …`, that is evaluated once, at
// the guest's boot. `web` is the native object of src/web.rs. The snapshot contains the results, so a run does not evaluate them again.
(web) => {
  const { defineProperty } = Object;

  /**
   * Defines a global like those of the engine: not enumerable, and replaceable by agent code. A replacement lasts until the end of its run.
   */
  function expose(name, value) {
    defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }

  /** Sets the class name that `Object.prototype.toString` shows, and makes the class's members enumerable, as in a browser. */
  function dress(type, tag = type.name) {
    for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(type.prototype)))
      if (name !== "constructor") defineProperty(type.prototype, name, { ...property, enumerable: true });
    defineProperty(type.prototype, Symbol.toStringTag, { value: tag, configurable: true });
  }

  /** Converts a value to a text without lone surrogates (a USVString in the web standards). */
  const text = (value) => `${value}`.toWellFormed();

  const NONE = new Uint8Array(0);
  /** Returns the bytes of an ArrayBuffer or of a view, without a copy. */
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
  /** Returns the engine's type of an object, which scripts cannot change. Returns undefined for types that are not in `samples`. */
  const kindOf = (value) => kinds.get(web.kind(value));

  /** Checks that tell if a value is an instance of a class of this folder. structuredClone refuses such values. */
  const platform = [];
  const isPlatform = (value) => platform.some((is) => is(value));

  /** Throws if a function was called with fewer arguments than it needs. */
  function need(given, wanted, name) {
    if (given.length < wanted) throw new TypeError(`${name} takes ${wanted} argument${wanted === 1 ? "" : "s"}, but got ${given.length}`);
  }

  return { expose, dress, text, bytesOf, kindOf, platform, isPlatform, need };
};
