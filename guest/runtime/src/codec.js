// Converts values between JavaScript and Rust. A value becomes one JSON text and a list of byte arrays ("blobs"). The guest and the Node
// glue both run this file; `src/sandbox/value.rs` does the same in Rust. A Uint8Array becomes { "$bytes": index } in the JSON. An object
// that itself has a key "$bytes" is written as { "$bytes": [[key, value], …] }, so the two cannot be confused. What JSON.stringify would write as
// {} becomes data: a Map an object, a Set a list, an error its name and message. On the way into the guest, a
// long text may also be sent beside the JSON: { "$bytes": "index" }.
(() => {
  const { parse, stringify } = JSON;
  const { hasOwn, entries, fromEntries, getPrototypeOf, keys: keysOf, prototype: objects } = Object;
  const { toString: tagOf } = objects;
  const { isArray, from } = Array;
  const { apply } = Reflect;
  const { entries: mapEntries } = Map.prototype;
  const { values: setValues } = Set.prototype;
  const MARK = "$bytes";
  /** The beginning of an escaped surrogate in JSON, and the length of the whole escape in characters. */
  const SURROGATE = "\\ud";
  const ESCAPE_LENGTH = 6;

  function isBytes(value) {
    // The tag works across realms and for Node's Buffer, whose toJSON must not run.
    return typeof value === "object" && value !== null && value[Symbol.toStringTag] === "Uint8Array" && ArrayBuffer.isView(value);
  }

  /** Tells if plain JSON.stringify writes this value correctly, and loses nothing of it. True only without objects, functions and a key "$bytes". */
  function isFlat(value) {
    if (typeof value !== "object" || value === null) return !isLost(value);
    const prototype = getPrototypeOf(value);
    if (prototype !== null && prototype !== objects && !isArray(value)) return false;
    let count = 0;
    for (const key in value) {
      const inner = value[key];
      if ((typeof inner === "object" && inner !== null) || isLost(inner) || key === MARK || ++count > 32) return false;
    }
    return true;
  }

  function isPlainObject(object) {
    const prototype = getPrototypeOf(object);
    return prototype === null || prototype === objects;
  }

  /** Tells cheaply if a value needs no replacer. Also knows lists of arguments, because most contain one object with plain values. */
  const isPlain = (value) => isFlat(value) || (isArray(value) && value.length === 1 && isFlat(value[0]));

  /**
   * Replaces lone surrogates by U+FFFD, because UTF-8 cannot represent them. JSON.stringify escapes lone surrogates and no others, so it is
   * enough to look for escapes. The search runs once through the text.
   */
  function wellFormed(json) {
    let [text, from] = ["", 0];
    for (let at = json.indexOf(SURROGATE); at >= 0; at = json.indexOf(SURROGATE, at + SURROGATE.length)) {
      let first = at;
      while (json[first - 1] === "\\") first--;
      // An even number of backslashes before the escape stands for backslashes of the text, so this escape is a real one.
      if ((at - first) % 2 === 0 && "89abcdef".includes(json[at + SURROGATE.length])) {
        text += `${json.slice(from, at)}\ufffd`;
        from = at + ESCAPE_LENGTH;
      }
    }
    return text + json.slice(from);
  }

  // ---- what JSON.stringify would lose ---------------------------------------------------------------------------
  /** Tells if JSON.stringify leaves out a value that is not an object, or writes null for it. */
  function isLost(value) {
    return typeof value === "function" || typeof value === "symbol" || (typeof value === "number" && !Number.isFinite(value));
  }

  const isPromise = (value) => typeof value.then === "function";

  /** Returns an object if all keys of a Map are different texts or numbers, otherwise a list of its pairs. */
  function ofMap(pairs) {
    const isText = pairs.every(([key]) => typeof key === "string" || typeof key === "number");
    return isText && new Set(pairs.map(([key]) => `${key}`)).size === pairs.length ? fromEntries(pairs) : pairs;
  }

  /** Returns a copy of an error that has its name and its message, which JSON.stringify leaves out. */
  const ofError = (error) => ({ name: `${error.name}`, message: `${error.message}`, ...error });

  /** For each kind of object, a function that converts it to data. It throws for an object that only has the name of this kind. */
  const CONVERSIONS = {
    __proto__: null,
    Map: (map) => ofMap([...apply(mapEntries, map, [])]),
    Set: (set) => [...apply(setValues, set, [])],
    RegExp: (pattern) => `${pattern}`,
    URLSearchParams: (parameters) => `${parameters}`,
    ArrayBuffer: (buffer) => new Uint8Array(buffer),
    SharedArrayBuffer: (buffer) => new Uint8Array(buffer),
    Error: ofError,
    DOMException: ofError,
  };

  /** Returns what is sent of an object that is neither a list nor plain: its data, or the object itself, whose own fields are written. */
  function dataOf(object) {
    if (ArrayBuffer.isView(object)) {
      return typeof object.length === "number" ? from(object) : new Uint8Array(object.buffer, object.byteOffset, object.byteLength);
    }
    const kind = object instanceof Error ? "Error" : apply(tagOf, object, []).slice("[object ".length, -1);
    try {
      return CONVERSIONS[kind]?.(object) ?? object;
    } catch {
      return object;
    }
  }

  /** Describes a value of which nothing is sent. Returns undefined for any other value. `original` is the value before its toJSON. */
  function lossOf(original, converted) {
    if (typeof converted === "number") return isLost(converted) ? `${converted}` : undefined;
    if (isLost(converted)) return `a ${typeof converted}`;
    if (converted === null) return original instanceof Date ? "an invalid date" : undefined;
    if (typeof converted !== "object" || isArray(converted)) return undefined;
    const prototype = getPrototypeOf(converted);
    if (prototype === null || prototype === objects || keysOf(converted).length > 0) return undefined;
    return `an object of the class ${converted.constructor?.name || "without a name"}, which has no fields of its own`;
  }

  const escaped = (object) => (hasOwn(object, MARK) ? { [MARK]: entries(object) } : object);

  /**
   * Returns what is sent of a value that may be a promise, bytes, or an object of any class, and what is lost. This function is not within
   * `written`: a function that refers to itself would be a cycle, and keep all bytes of the value until the next garbage collection.
   */
  function sentOf(found, key, original, given) {
    let sent = given;
    if (!isBytes(original) && typeof sent === "object" && sent !== null && isPromise(sent)) {
      if (!found.settled.has(sent)) {
        found.promises.push(sent);
        return { sent: null, loss: "a promise" };
      }
      const value = found.settled.get(sent);
      // A promise of nothing is null, and not a missing key.
      if (value === undefined) return { sent: null };
      return sentOf(found, key, value, typeof value?.toJSON === "function" ? value.toJSON(key) : value);
    }
    const isOther = typeof sent === "object" && sent !== null && !isArray(sent) && !isBytes(original) && !isBytes(sent);
    if (isOther && !isPlainObject(sent)) sent = dataOf(sent);
    const bytes = isBytes(original) ? original : sent;
    // stringify does not call the replacer on its own result, only on the parts of it. So a placeholder is never escaped.
    if (isBytes(bytes)) return { sent: { [MARK]: found.blobs.push(bytes) - 1 } };
    const isObject = typeof sent === "object" && sent !== null && !isArray(sent);
    return { sent: isObject ? escaped(sent) : sent, loss: lossOf(original, sent) };
  }

  /**
   * Writes a value as JSON. `settled` has the values of promises that were awaited; all other promises are collected. `count` is the number of
   * parts that are lost. If `see(holder, key, sent, loss)` is given, it gets each part, what is sent of it, and what is lost.
   */
  function written(value, settled, see) {
    const found = { settled, blobs: [], promises: [] };
    let count = 0;
    const json = stringify(value, function (key, given) {
      const original = this[key];
      // Most values are texts, numbers, lists and plain objects, so these come first.
      if (given === original && (typeof given !== "object" || given === null) && !isLost(given)) return given;
      let sent = given;
      let loss;
      if (given !== original || typeof given !== "object" || !(isArray(given) || (isPlainObject(given) && !isPromise(given)))) {
        ({ sent, loss } = sentOf(found, key, original, given));
      } else if (!isArray(given) && hasOwn(given, MARK)) sent = escaped(given);
      if (loss !== undefined) count += 1;
      if (see !== undefined) see(this, key, sent, loss);
      return sent;
    });
    return { json, blobs: found.blobs, promises: found.promises, count };
  }

  /** The largest number of places that are named. */
  const MAX_PLACES = 5;
  /** The largest length of a key in a named place. */
  const MAX_KEY = 60;

  /** Names the places of a value of which nothing is sent, for example `.rows[3].done is a function`. */
  function losses(value, settled) {
    const [holders, keys, found] = [[], [], []];
    let count = 0;
    written(value, settled, (holder, key, sent, loss) => {
      while (holders.length > 0 && holders[holders.length - 1] !== holder) {
        holders.pop();
        keys.pop();
      }
      if (loss !== undefined && ++count <= MAX_PLACES) {
        const step = (key, index) => {
          if (isArray(holders[index] ?? holder)) return `[${key}]`;
          return /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key.slice(0, MAX_KEY)}` : `[${stringify(key.slice(0, MAX_KEY))}]`;
        };
        const path = holders.length === 0 ? "" : [...keys.slice(1), key].map(step).join("");
        found.push(`${path === "" ? "the value" : path} is ${loss}`);
      }
      if (typeof sent === "object" && sent !== null) {
        holders.push(sent);
        keys.push(key);
      }
    });
    if (count > MAX_PLACES) found.push(`and ${count - MAX_PLACES} more`);
    return found.join("; ");
  }

  const NONE = new Map();

  /**
   * Converts a value to [json, blobs, promises, lost]. `json` is undefined if JSON cannot represent the value. `promises` are those in it that
   * `settled` does not have; without `settled`, a promise is an error. `lost` names what JSON cannot represent, or is "". Throws on cycles and on
   * BigInt.
   */
  function encode(value, settled) {
    const whole = isPlain(value) ? { json: stringify(value), blobs: [], promises: [], count: 0 } : written(value, settled ?? NONE);
    const { json, blobs, promises, count } = whole;
    if (promises.length > 0 && settled === undefined) throw new TypeError(`${losses(value, NONE)}: await it first`);
    const lost = count === 0 || promises.length > 0 ? "" : losses(value, settled ?? NONE);
    if (json === undefined) return [undefined, blobs, promises, lost];
    return [json.includes(SURROGATE) ? wellFormed(json) : json, blobs, promises, lost];
  }

  /**
   * Puts the byte arrays into a parsed value, the inner parts first. A reviver of JSON.parse would do the same, but it would be called for each
   * number and text too.
   */
  function filled(value, blobs) {
    const isList = isArray(value);
    const keys = isList ? undefined : keysOf(value);
    const { length } = keys ?? value;
    for (let index = 0; index < length; index++) {
      const key = keys === undefined ? index : keys[index];
      const inner = value[key];
      if (typeof inner !== "object" || inner === null) continue;
      const part = filled(inner, blobs);
      if (part === undefined) delete value[key];
      // The object has this key already, so this assignment calls no setter, not even that of "__proto__".
      else if (part !== inner) value[key] = part;
    }
    if (isList || !hasOwn(value, MARK)) return value;
    const part = value[MARK];
    if (isArray(part)) return fromEntries(part);
    return typeof part !== "object" && part !== "length" && hasOwn(blobs, part) ? blobs[part] : undefined;
  }

  /** Converts (json, blobs) back to the value. */
  function decode(json, blobs) {
    const value = parse(json);
    return typeof value === "object" && value !== null && json.includes(MARK) ? filled(value, blobs) : value;
  }
  return { encode, decode };
})();
