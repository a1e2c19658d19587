// How values cross between JavaScript and Rust: one JSON text, and the bytes beside it. The guest and the Node glue
// run this same file; `src/sandbox/value.rs` is its counterpart. Bytes stand in the JSON as { "$bytes": index };
// an object that has such a key of its own is written as { "$bytes": [[key, value], …] }, so nothing is ambiguous. Into the
// guest, a long text may stand beside the JSON as bytes do: { "$bytes": "index" }.
(() => {
  const { parse, stringify } = JSON;
  const { hasOwn, entries, fromEntries, getPrototypeOf, prototype: objects } = Object;
  const isArray = Array.isArray;
  const MARK = "$bytes";
  /** How an escaped surrogate begins, and how many characters it has. */
  const SURROGATE = "\\ud";
  const ESCAPE_LENGTH = 6;

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

  /**
   * JSON with U+FFFD for half a character, which no UTF-8 has: stringify escapes it, and escapes no surrogate but those. One way through the
   * text: the backslashes before an escape are looked at once, as none of them stands before another escape.
   */
  function wellFormed(json) {
    let [text, from] = ["", 0];
    for (let at = json.indexOf(SURROGATE); at >= 0; at = json.indexOf(SURROGATE, at + SURROGATE.length)) {
      let first = at;
      while (json[first - 1] === "\\") first--;
      // A pair of backslashes is one of the text's own.
      if ((at - first) % 2 === 0 && "89abcdef".includes(json[at + SURROGATE.length])) {
        text += `${json.slice(from, at)}\ufffd`;
        from = at + ESCAPE_LENGTH;
      }
    }
    return text + json.slice(from);
  }

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
    return [json.includes(SURROGATE) ? wellFormed(json) : json, blobs];
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
