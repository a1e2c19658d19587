// How values cross between JavaScript and Rust: one JSON text, and the bytes beside it. The guest and the Node glue
// run this same file; `src/sandbox/value.rs` is its counterpart. Bytes stand in the JSON as { "$bytes": index };
// an object that has such a key of its own is written as { "$bytes": [[key, value], …] }, so nothing is ambiguous. Into the
// guest, a long text may stand beside the JSON as bytes do: { "$bytes": "index" }.
(() => {
  const { parse, stringify } = JSON;
  const { hasOwn, entries, fromEntries, getPrototypeOf, prototype: objects } = Object;
  const isArray = Array.isArray;
  const MARK = "$bytes";
  const LONE_SURROGATE = /(?<=(?:^|[^\\])(?:\\\\)*)\\u[dD][89a-fA-F][\da-fA-F]{2}/g;

  function isBytes(value) {
    // The tag works across realms and for Node's Buffer, whose toJSON must not run.
    return typeof value === "object" && value !== null && value[Symbol.toStringTag] === "Uint8Array" && ArrayBuffer.isView(value);
  }

  /** Whether JSON's own writer does for a value what the one below would: nothing in it is an object, but the outermost. */
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

  /** The same without a look at each part. A list of arguments is mostly one record of plain values. */
  const isPlain = (value) => isFlat(value) || (isArray(value) && value.length === 1 && isFlat(value[0]));

  /** Value → [json, blobs]. `json` is undefined where JSON has no word for the value. Throws on cycles and BigInt. */
  function encode(value) {
    const blobs = [];
    const json = isPlain(value)
      ? stringify(value)
      : stringify(value, function (key, converted) {
          const original = this[key];
          if (isBytes(original)) return { [MARK]: blobs.push(original) - 1 };
          if (typeof converted !== "object" || converted === null || isArray(converted)) return converted;
          // What a replacer returns is not handed to it again, only what is inside: a placeholder is never escaped.
          return hasOwn(converted, MARK) ? { [MARK]: entries(converted) } : converted;
        });
    if (json === undefined) return [undefined, blobs];
    // Half a character, which no UTF-8 has: stringify escapes it, and escapes no surrogate but those.
    return [json.includes("\\ud") ? json.replace(LONE_SURROGATE, "\ufffd") : json, blobs];
  }

  /** (json, blobs) → value. */
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
