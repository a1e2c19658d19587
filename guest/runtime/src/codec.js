// Converts values between JavaScript and Rust. A value becomes one JSON text and a list of byte arrays ("blobs"). The guest and the Node
// glue both run this file; `src/sandbox/value.rs` does the same in Rust. A Uint8Array becomes { "$bytes": index } in the JSON. An object
// that itself has a key "$bytes" is written as { "$bytes": [[key, value], …] }, so the two cannot be confused. On the way into the guest, a
// long text may also be sent beside the JSON: { "$bytes": "index" }.
(() => {
  const { parse, stringify } = JSON;
  const { hasOwn, entries, fromEntries, getPrototypeOf, prototype: objects } = Object;
  const isArray = Array.isArray;
  const MARK = "$bytes";
  /** The beginning of an escaped surrogate in JSON, and the length of the whole escape in characters. */
  const SURROGATE = "\\ud";
  const ESCAPE_LENGTH = 6;

  function isBytes(value) {
    // The tag works across realms and for Node's Buffer, whose toJSON must not run.
    return typeof value === "object" && value !== null && value[Symbol.toStringTag] === "Uint8Array" && ArrayBuffer.isView(value);
  }

  /** Tells if plain JSON.stringify writes this value correctly. True if the value contains no objects, no functions and no key "$bytes". */
  function isFlat(value) {
    if (typeof value !== "object" || value === null) return true;
    const prototype = getPrototypeOf(value);
    if (prototype !== null && prototype !== objects && !isArray(value)) return false;
    let count = 0;
    for (const key in value) {
      const inner = value[key];
      if ((typeof inner === "object" && inner !== null) || typeof inner === "function" || key === MARK || ++count > 32) return false;
    }
    return true;
  }

  /** Does a cheap check for values that need no replacer. Lists of arguments are included: most contain one object with plain values. */
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

  /** Converts a value to [json, blobs]. `json` is undefined if JSON cannot represent the value. Throws on cycles and on BigInt. */
  function encode(value) {
    const blobs = [];
    const json = isPlain(value)
      ? stringify(value)
      : stringify(value, function (key, converted) {
          const original = this[key];
          if (isBytes(original)) return { [MARK]: blobs.push(original) - 1 };
          if (typeof converted !== "object" || converted === null || isArray(converted)) return converted;
          // stringify does not call the replacer on its own result, only on the parts of it. So a placeholder is never escaped.
          return hasOwn(converted, MARK) ? { [MARK]: entries(converted) } : converted;
        });
    if (json === undefined) return [undefined, blobs];
    return [json.includes(SURROGATE) ? wellFormed(json) : json, blobs];
  }

  /** Converts (json, blobs) back to the value. */
  function decode(json, blobs) {
    if (!json.includes(MARK)) return parse(json);
    return parse(json, (_key, value) => {
      if (typeof value !== "object" || value === null || isArray(value) || !hasOwn(value, MARK)) return value;
      const part = value[MARK];
      if (isArray(part)) return fromEntries(part);
      return typeof part !== "object" && part !== "length" && hasOwn(blobs, part) ? blobs[part] : undefined;
    });
  }
  return { encode, decode };
})();
