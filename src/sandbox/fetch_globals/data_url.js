// The processor of data: URLs (https://fetch.spec.whatwg.org/#data-url-processor). These URLs are read here, without the host.
(web) => {
  const { parseMime, writeMime, latin1, trimmed } = web;
  const { atob } = globalThis;

  /** Decodes %XX. The text comes from a URL, so it has only ASCII characters. */
  function percentDecoded(value) {
    const text = value.replace(/%([0-9A-Fa-f]{2})/g, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
    return Uint8Array.from(text, (character) => character.charCodeAt(0));
  }

  function base64Decoded(value) {
    try {
      return Uint8Array.from(atob(latin1(percentDecoded(value))), (character) => character.charCodeAt(0));
    } catch {
      throw new TypeError("fetch: the data: URL is not valid base64");
    }
  }

  /** Returns the type and the bytes of a data: URL, or throws a TypeError. */
  web.readDataUrl = (url) => {
    const input = url.href.slice("data:".length, url.href.length - url.hash.length);
    const comma = input.indexOf(",");
    if (comma < 0) throw new TypeError("fetch: the data: URL has no comma");
    const given = trimmed(input.slice(0, comma), "\t\n\f\r ");
    const type = given.replace(/; *base64$/i, "");
    const data = input.slice(comma + 1);
    const bytes = type === given ? percentDecoded(data) : base64Decoded(data);
    const mime = parseMime(type.startsWith(";") ? `text/plain${type}` : type);
    return { __proto__: null, type: mime === undefined ? "text/plain;charset=US-ASCII" : writeMime(mime), bytes };
  };
};
