// Bodies of requests and responses (https://fetch.spec.whatwg.org/#bodies). A body is a record. It contains the stream of the body. If it
// is known which type a body without Content-Type has, the record also contains this type.
(web) => {
  const { isObject, text, isBufferSource, copyBytes, joinBytes, toUtf8, fromUtf8, isBlob, makeBlob, blobBytes, isForm } = web;
  const { writeMultipart, readForm, writeMime, extractMime, stateOfHeaders, combined, streams } = web;
  const { apply } = Reflect;
  const { parse } = JSON;
  const sizeOfParams = Object.getOwnPropertyDescriptor(URLSearchParams.prototype, "size").get;
  const { toString: writeParams } = URLSearchParams.prototype;

  function isParams(value) {
    try {
      apply(sizeOfParams, value, []);
      return true;
    } catch {
      return false;
    }
  }

  const bodyOf = (bytes, type = undefined) => ({ __proto__: null, stream: streams.streamOf(bytes), type, isStream: false });
  const isUnusable = (body) => body !== null && (body.stream.disturbed || streams.isLocked(body.stream));

  /** Makes a body of a value that agent code gives (https://fetch.spec.whatwg.org/#concept-bodyinit-extract). */
  function extractBody(value) {
    if (isObject(value)) {
      if (streams.isStream(value)) {
        const stream = streams.streamState(value);
        const body = { __proto__: null, stream, type: undefined, isStream: true };
        if (isUnusable(body)) throw new TypeError("the stream has been read already, or has a reader");
        return body;
      }
      if (isBlob(value)) return bodyOf(blobBytes(value), value.type || undefined);
      if (isBufferSource(value)) return bodyOf(copyBytes(value));
      if (isForm(value)) {
        const { bytes, type } = writeMultipart(value);
        return bodyOf(bytes, type);
      }
      if (isParams(value)) return bodyOf(toUtf8(apply(writeParams, value, [])), "application/x-www-form-urlencoded;charset=UTF-8");
    }
    return bodyOf(toUtf8(text(value)), "text/plain;charset=UTF-8");
  }

  /** Splits a body in two, and returns the second. */
  function cloneBody(body) {
    const [first, second] = streams.tee(body.stream, true);
    body.stream = first;
    return { __proto__: null, ...body, stream: second };
  }

  /** Calls `done` with the bytes of a body. If the body cannot be read, calls `failed`. */
  function readBody(body, done, failed) {
    if (body === null) done(new Uint8Array(0));
    else streams.readAll(body.stream, (chunks) => done(joinBytes(chunks)), failed);
  }

  /**
   * Gives a class the members of Body. `stateOf` returns the record of an object, with `body` and `headers`. It throws a TypeError if there
   * is none.
   */
  function mixBody(type, stateOf) {
    function consume(object, convert) {
      return new Promise((resolve, reject) => {
        const state = stateOf(object);
        // After an abort, each reading fails for the same reason.
        if (state.body?.stream.state === "errored") throw state.body.stream.error;
        if (isUnusable(state.body)) throw new TypeError("the body has been read already: read it once, or clone() before");
        const done = (bytes) => {
          try {
            resolve(convert(bytes, state));
          } catch (error) {
            reject(error);
          }
        };
        readBody(state.body, done, reject);
      });
    }
    const mime = ({ headers }) => extractMime(combined(stateOfHeaders(headers).list, "content-type"));
    const typeName = (state) => {
      const found = mime(state);
      return found === undefined ? "" : writeMime(found);
    };
    const members = {
      get body() {
        const { body } = stateOf(this);
        return body === null ? null : streams.streamObject(body.stream);
      },
      get bodyUsed() {
        const { body } = stateOf(this);
        return body?.stream.disturbed ?? false;
      },
      arrayBuffer() {
        return consume(this, (bytes) => bytes.buffer);
      },
      blob() {
        return consume(this, (bytes, state) => makeBlob(bytes, typeName(state)));
      },
      bytes() {
        return consume(this, (bytes) => bytes);
      },
      formData() {
        return consume(this, (bytes, state) => readForm(bytes, mime(state)));
      },
      json() {
        return consume(this, (bytes) => parse(fromUtf8(bytes)));
      },
      text() {
        return consume(this, (bytes) => fromUtf8(bytes));
      },
    };
    Object.defineProperties(type.prototype, Object.getOwnPropertyDescriptors(members));
  }

  Object.assign(web, { extractBody, cloneBody, readBody, isUnusable, mixBody });
};
