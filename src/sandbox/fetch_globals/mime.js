// MIME types (https://mimesniff.spec.whatwg.org/#understanding-mime-types), and the type that a body has according to its headers
// (https://fetch.spec.whatwg.org/#concept-header-extract-mime-type).
(web) => {
  const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
  const QUOTABLE = /^[\t\u0020-\u007e\u0080-\u00ff]*$/;
  const BLANKS = "\t\n\r ";
  const trim = (value) => web.trimmed(value, BLANKS);
  const trimEnd = (value) => web.trimmedEnd(value, BLANKS);

  /** Reads a quoted string from `at`, the position of its first quote. Returns its value and the position behind it. */
  function quoted(value, at) {
    let [index, found] = [at + 1, ""];
    while (index < value.length && value[index] !== '"') {
      if (value[index] === "\\" && index + 1 < value.length) index += 1;
      found += value[index];
      index += 1;
    }
    return [found, index + 1];
  }

  const endOf = (value, mark, from) => {
    const at = value.indexOf(mark, from);
    return at < 0 ? value.length : at;
  };

  /** Reads the parameters of a type. `from` is the position of the first semicolon. */
  function parameters(value, from) {
    const found = new Map();
    let at = from;
    while (at < value.length) {
      at += 1;
      while (/[\t\n\r ]/.test(value[at] ?? "")) at += 1;
      const end = Math.min(endOf(value, ";", at), endOf(value, "=", at));
      const name = value.slice(at, end).toLowerCase();
      at = end;
      if (value[at] !== "=") continue;
      at += 1;
      let given;
      if (value[at] === '"') {
        [given, at] = quoted(value, at);
        at = endOf(value, ";", at);
      } else {
        const next = endOf(value, ";", at);
        given = trimEnd(value.slice(at, next));
        at = next;
        if (given === "") continue;
      }
      if (TOKEN.test(name) && QUOTABLE.test(given) && !found.has(name)) found.set(name, given);
    }
    return found;
  }

  /** Reads a MIME type. Returns undefined for a text that is not a MIME type. */
  function parseMime(input) {
    const value = trim(input);
    const slash = value.indexOf("/");
    if (slash < 0) return undefined;
    const semicolon = endOf(value, ";", slash + 1);
    const [type, subtype] = [value.slice(0, slash), trimEnd(value.slice(slash + 1, semicolon))];
    if (!TOKEN.test(type) || !TOKEN.test(subtype)) return undefined;
    return { __proto__: null, essence: `${type}/${subtype}`.toLowerCase(), parameters: parameters(value, semicolon) };
  }

  function writeMime(mime) {
    let written = mime.essence;
    for (const [name, value] of mime.parameters)
      written += `;${name}=${TOKEN.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`}`;
    return written;
  }

  /** Splits the value of a header at its commas, but not within quotes. */
  function split(value) {
    const parts = [];
    let [part, at] = ["", 0];
    while (at < value.length) {
      if (value[at] === ",") {
        parts.push(trim(part));
        part = "";
        at += 1;
      } else if (value[at] === '"') {
        const [, end] = quoted(value, at);
        part += value.slice(at, end);
        at = end;
      } else {
        part += value[at];
        at += 1;
      }
    }
    return [...parts, trim(part)];
  }

  /** Returns the type that all values of Content-Type determine together, or undefined. */
  function extractMime(value) {
    if (value === null) return undefined;
    let [charset, essence, type] = [undefined, undefined, undefined];
    for (const part of split(value)) {
      const found = parseMime(part);
      if (found === undefined || found.essence === "*/*") continue;
      type = found;
      if (found.essence !== essence) {
        charset = found.parameters.get("charset");
        essence = found.essence;
      } else if (!found.parameters.has("charset") && charset !== undefined) {
        found.parameters.set("charset", charset);
      }
    }
    return type;
  }

  Object.assign(web, { parseMime, writeMime, extractMime });
};
