// Blob and File (https://www.w3.org/TR/FileAPI/).
(web) => {
  const {
    expose,
    dress,
    need,
    isObject,
    text,
    dictionary,
    oneOf,
    sequence,
    isBufferSource,
    copyBytes,
    joinBytes,
    toUtf8,
    fromUtf8,
    streams,
  } = web;
  const { enqueue, close } = streams.controller;
  /** The largest chunk of `stream()`. */
  const CHUNK = 64 * 1024;
  let bytesOf;
  let isBlob;
  let makeBlob;

  const normalType = (value) => (/^[\u0020-\u007e]*$/.test(value) ? value.toLowerCase() : "");

  function bytesOfParts(parts, endings) {
    const found = parts.map((part) => {
      if (isBufferSource(part)) return copyBytes(part);
      if (isBlob(part)) return bytesOf(part);
      const given = text(part);
      return toUtf8(endings === "native" ? given.replace(/\r\n?|\n/g, "\n") : given);
    });
    return joinBytes(found);
  }

  /** Converts an index of `slice`, which counts from the end if it is negative. */
  function place(index, size, otherwise) {
    if (index === undefined) return otherwise;
    const whole = Math.min(Math.max(Math.trunc(Number(index)) || 0, -Number.MAX_SAFE_INTEGER), Number.MAX_SAFE_INTEGER);
    return whole < 0 ? Math.max(size + whole, 0) : Math.min(whole, size);
  }

  /** The bytes and the type for the next object that code of this file makes. */
  let given;

  class Blob {
    #bytes;
    #type;
    static {
      bytesOf = (blob) => blob.#bytes;
      isBlob = (value) => isObject(value) && #bytes in value;
      makeBlob = (bytes, type) => {
        given = [bytes, type];
        try {
          return new Blob();
        } finally {
          given = undefined;
        }
      };
    }
    constructor(blobParts = undefined, options = undefined) {
      if (given !== undefined) {
        [this.#bytes, this.#type] = given;
        return;
      }
      const parts = blobParts === undefined ? [] : sequence(blobParts, "the list of parts of a Blob");
      const { endings, type } = dictionary(options, "the options of a Blob");
      const ending = endings === undefined ? "transparent" : oneOf(endings, ["transparent", "native"], "endings");
      this.#type = type === undefined ? "" : normalType(`${type}`);
      this.#bytes = bytesOfParts(parts, ending);
    }
    get size() {
      return this.#bytes.length;
    }
    get type() {
      return this.#type;
    }
    slice(start = undefined, end = undefined, contentType = undefined) {
      const { length } = this.#bytes;
      const [first, last] = [place(start, length, 0), place(end, length, length)];
      return makeBlob(this.#bytes.subarray(first, Math.max(first, last)), contentType === undefined ? "" : normalType(`${contentType}`));
    }
    stream() {
      const bytes = this.#bytes;
      let at = 0;
      return streams.streamObject(
        streams.pulledStream(async (controller) => {
          if (at < bytes.length) enqueue(controller, bytes.slice(at, at + CHUNK));
          at += CHUNK;
          if (at >= bytes.length) close(controller);
        }),
      );
    }
    async text() {
      return fromUtf8(this.#bytes);
    }
    async arrayBuffer() {
      return this.#bytes.slice().buffer;
    }
    async bytes() {
      return this.#bytes.slice();
    }
  }

  class File extends Blob {
    #name;
    #lastModified;
    constructor(fileBits, fileName, options = undefined) {
      need(arguments, 2, "File");
      super(sequence(fileBits, "the list of parts of a File"), options);
      this.#name = text(fileName);
      const { lastModified } = dictionary(options, "the options of a File");
      this.#lastModified = lastModified === undefined ? Date.now() : Math.trunc(Number(lastModified)) || 0;
    }
    static {
      web.isFile = (value) => isObject(value) && #name in value;
    }
    get name() {
      return this.#name;
    }
    get lastModified() {
      return this.#lastModified;
    }
    get webkitRelativePath() {
      return "";
    }
  }

  for (const type of [Blob, File]) {
    dress(type);
    expose(type);
  }
  Object.assign(web, { Blob, File, isBlob, makeBlob, blobBytes: bytesOf });
};
