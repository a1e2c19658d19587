// TextEncoder and TextDecoder (https://encoding.spec.whatwg.org).
(web, { expose, dress, text, bytesOf, platform }) => {
  const NONE = new Uint8Array(0);

  class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(input = "") {
      return web.encode(text(input));
    }
    encodeInto(source, destination) {
      if (destination?.[Symbol.toStringTag] !== "Uint8Array") throw new TypeError("encodeInto: the destination is not a Uint8Array");
      // Every UTF-16 unit takes at least one byte. One more unit is kept, so that a surrogate pair is not split.
      const [bytes, read] = web.encodeWithin(text(`${source}`.slice(0, destination.length + 1)), destination.length);
      destination.set(bytes);
      return { read, written: bytes.length };
    }
  }

  class TextDecoder {
    #encoding;
    #fatal;
    #ignoreBOM;
    /** The decoder's state between two parts of a text; null if no text is being decoded. */
    #decoding = null;
    static {
      platform.push((value) => #encoding in value);
    }

    constructor(label = "utf-8", options = undefined) {
      const encoding = web.encodingName(text(label));
      if (encoding === undefined) throw new RangeError(`TextDecoder: the encoding "${label}" is not supported`);
      this.#encoding = encoding;
      this.#fatal = Boolean(options?.fatal);
      this.#ignoreBOM = Boolean(options?.ignoreBOM);
    }
    get encoding() {
      return this.#encoding;
    }
    get fatal() {
      return this.#fatal;
    }
    get ignoreBOM() {
      return this.#ignoreBOM;
    }
    decode(input = undefined, options = undefined) {
      const bytes = input === undefined ? NONE : bytesOf(input);
      const last = !options?.stream;
      if (last && this.#decoding === null) return web.decodeWhole(this.#encoding, bytes, this.#fatal, this.#ignoreBOM);
      const decoding = this.#decoding ?? new web.Decoding(this.#encoding, this.#fatal, this.#ignoreBOM);
      // The next text starts with a new decoder after the last part and after an error.
      this.#decoding = null;
      const decoded = decoding.decode(bytes, last);
      if (!last) this.#decoding = decoding;
      return decoded;
    }
  }

  for (const type of [TextEncoder, TextDecoder]) {
    dress(type);
    expose(type.name, type);
  }
};
