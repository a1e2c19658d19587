// Helper functions that the other files of this folder share. Each file is one expression, `(web) => …`. It adds to `web` what later files
// need. All files are evaluated once, when an image for runs that may fetch is made. The snapshot contains the results.
(web) => {
  const { defineProperty, entries, freeze, getOwnPropertyDescriptor, getOwnPropertyDescriptors, getPrototypeOf } = Object;
  const { apply, ownKeys } = Reflect;
  const { then } = Promise.prototype;

  /** Defines a global with the same attributes as the globals of the engine: not enumerable, and replaceable by agent code. */
  function expose(value) {
    defineProperty(globalThis, value.name, { value, writable: true, configurable: true, enumerable: false });
  }

  /** Gives a class what Web IDL requires: enumerable members, and a name for `Object.prototype.toString`. */
  function dress(type, tag = type.name) {
    for (const holder of [type.prototype, type])
      for (const [name, property] of entries(getOwnPropertyDescriptors(holder)))
        if (!["constructor", "prototype", "name", "length"].includes(name)) defineProperty(holder, name, { ...property, enumerable: true });
    defineProperty(type.prototype, Symbol.toStringTag, { value: tag, configurable: true });
  }

  /** Removes characters of `blanks` from the end. A regular expression would take quadratic time for a long row of blanks in the middle. */
  function trimmedEnd(value, blanks) {
    let end = value.length;
    while (end > 0 && blanks.includes(value[end - 1])) end -= 1;
    return value.slice(0, end);
  }

  /** Removes characters of `blanks` from both ends. */
  function trimmed(value, blanks) {
    let start = 0;
    while (start < value.length && blanks.includes(value[start])) start += 1;
    return trimmedEnd(value.slice(start), blanks);
  }

  /** Throws if a function was called with fewer arguments than it needs. */
  function need(given, wanted, name) {
    if (given.length < wanted) throw new TypeError(`${name} takes ${wanted} argument${wanted === 1 ? "" : "s"}, but got ${given.length}`);
  }

  // ---- conversions of Web IDL --------------------------------------------------------------------------------------
  const isObject = (value) => (typeof value === "object" && value !== null) || typeof value === "function";

  /** Converts a value to a USVString: a text without lone surrogates. */
  const text = (value) => `${value}`.toWellFormed();

  /** Converts a value to a ByteString: a text whose characters are bytes. */
  function byteString(value, what) {
    const converted = `${value}`;
    for (let index = 0; index < converted.length; index += 1)
      if (converted.charCodeAt(index) > 255) throw new TypeError(`${what} has a character above U+00FF at position ${index}`);
    return converted;
  }

  /** Checks that a value is a dictionary: an object, null or undefined. */
  function dictionary(value, what) {
    if (value === undefined || value === null) return freeze({ __proto__: null });
    if (!isObject(value)) throw new TypeError(`${what} is not an object`);
    return value;
  }

  /** Converts a value to one of the words of an enumeration. */
  function oneOf(value, words, what) {
    const word = `${value}`;
    if (!words.includes(word)) throw new TypeError(`${what} "${word}" is none of ${words.map((one) => `"${one}"`).join(", ")}`);
    return word;
  }

  /** Converts a value to a list by its iterator. */
  function sequence(value, what) {
    const method = isObject(value) ? value[Symbol.iterator] : undefined;
    if (typeof method !== "function") throw new TypeError(`${what} is not iterable`);
    const list = [];
    const iterator = apply(method, value, []);
    const { next } = iterator;
    for (let step = apply(next, iterator, []); !step.done; step = apply(next, iterator, [])) list[list.length] = step.value;
    return list;
  }

  /** Converts an object to a list of pairs, as a record<ByteString, ByteString>. */
  function record(value, convert) {
    const found = new Map();
    for (const key of ownKeys(value)) {
      if (!getOwnPropertyDescriptor(value, key)?.enumerable) continue;
      if (typeof key === "symbol") throw new TypeError("a name cannot be a symbol");
      found.set(convert(key), convert(value[key]));
    }
    return [...found];
  }

  // ---- bytes -------------------------------------------------------------------------------------------------------
  const lengthOf = [ArrayBuffer, SharedArrayBuffer].map((type) => getOwnPropertyDescriptor(type.prototype, "byteLength").get);
  const tagOf = getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get;
  const { encode } = TextEncoder.prototype;
  const { decode } = TextDecoder.prototype;
  const encoder = new TextEncoder();

  /** Returns whether a value is an ArrayBuffer. The check does not depend on the prototype of the value. */
  function isBuffer(value) {
    return lengthOf.some((length) => {
      try {
        apply(length, value, []);
        return true;
      } catch {
        return false;
      }
    });
  }
  const isBufferSource = (value) => isObject(value) && (ArrayBuffer.isView(value) || isBuffer(value));
  const isBytes = (value) => ArrayBuffer.isView(value) && apply(tagOf, value, []) === "Uint8Array";

  /** Copies the bytes of an ArrayBuffer or of a view. A detached buffer has no bytes. */
  function copyBytes(source) {
    if (!ArrayBuffer.isView(source)) return source.detached ? new Uint8Array(0) : new Uint8Array(source).slice();
    if (source.buffer.detached) return new Uint8Array(0);
    return new Uint8Array(source.buffer, source.byteOffset, source.byteLength).slice();
  }

  /** Joins a list of Uint8Arrays. */
  function joinBytes(chunks) {
    const joined = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
    let at = 0;
    for (const chunk of chunks) {
      joined.set(chunk, at);
      at += chunk.length;
    }
    return joined;
  }

  /** Returns a text in which each character is one byte. */
  function latin1(bytes) {
    const STEP = 8192;
    const parts = [];
    for (let at = 0; at < bytes.length; at += STEP) parts.push(apply(String.fromCharCode, null, bytes.subarray(at, at + STEP)));
    return parts.join("");
  }

  const toUtf8 = (value) => apply(encode, encoder, [value]);
  const fromUtf8 = (bytes, ignoreBOM = false) => apply(decode, new TextDecoder("utf-8", { __proto__: null, ignoreBOM }), [bytes]);

  // ---- promises ----------------------------------------------------------------------------------------------------
  /** Calls the engine's own `then` of a promise, even if agent code has replaced `then`. */
  const react = (promise, onValue, onError = undefined) => apply(then, promise, [onValue, onError]);
  /** Marks the failure of a promise as handled, because no code needs to handle it. */
  const quiet = (promise) => void react(promise, undefined, () => {});

  // ---- iteration ---------------------------------------------------------------------------------------------------
  const iterators = getPrototypeOf(getPrototypeOf([][Symbol.iterator]()));

  /**
   * Gives a class `entries`, `keys`, `values`, `forEach` and an iterator. `pairsOf` returns the pairs that an object has at the time of the
   * call.
   */
  function iterable(type, pairsOf) {
    const states = new WeakMap();
    const prototype = { __proto__: iterators };
    defineProperty(prototype, Symbol.toStringTag, { value: `${type.name} Iterator`, configurable: true });
    prototype.next = function next() {
      const state = states.get(this);
      if (state === undefined) throw new TypeError(`next was not called on an iterator of ${type.name}`);
      const pairs = pairsOf(state.target);
      if (state.index >= pairs.length) return { value: undefined, done: true };
      const value = state.pick(pairs[state.index++]);
      return { value, done: false };
    };
    const method = (name, pick) =>
      ({
        [name]() {
          pairsOf(this);
          const iterator = { __proto__: prototype };
          states.set(iterator, { target: this, index: 0, pick });
          return iterator;
        },
      })[name];
    const members = {
      entries: method("entries", ([name, value]) => [name, value]),
      keys: method("keys", ([name]) => name),
      values: method("values", ([, value]) => value),
      forEach(callback, self = undefined) {
        need(arguments, 1, "forEach");
        if (typeof callback !== "function") throw new TypeError("forEach: the callback is not a function");
        for (let index = 0; index < pairsOf(this).length; index += 1) {
          const [name, value] = pairsOf(this)[index];
          apply(callback, self, [value, name, this]);
        }
      },
    };
    for (const [name, value] of entries(members))
      defineProperty(type.prototype, name, { value, writable: true, configurable: true, enumerable: true });
    defineProperty(type.prototype, Symbol.iterator, { value: members.entries, writable: true, configurable: true });
  }

  Object.assign(web, { expose, dress, need, isObject, text, byteString, dictionary, oneOf, sequence, record, iterable });
  Object.assign(web, { isBufferSource, isBytes, copyBytes, joinBytes, latin1, toUtf8, fromUtf8, react, quiet, trimmed, trimmedEnd });
};
