// Response (https://fetch.spec.whatwg.org/#response-class).
(web) => {
  const { expose, dress, need, isObject, text, byteString, dictionary, toUtf8 } = web;
  const { stateOfHeaders, makeHeaders, fillHeaders, combined, extractBody, cloneBody, isUnusable, mixBody } = web;
  const { URL } = globalThis;
  const { stringify } = JSON;
  let stateOf;
  let makeResponse;

  const NULL_BODY = [101, 103, 204, 205, 304];
  const REDIRECTS = [301, 302, 303, 307, 308];

  /** Converts a value to an unsigned short. */
  const toStatus = (value) => (((Math.trunc(Number(value)) || 0) % 65536) + 65536) % 65536;

  function readInit(given) {
    const from = dictionary(given, "the second argument of Response");
    const { headers, status, statusText } = from;
    return {
      __proto__: null,
      headers,
      status: status === undefined ? 200 : toStatus(status),
      statusText: statusText === undefined ? "" : byteString(statusText, "statusText"),
    };
  }

  /** Returns the record of a response that agent code makes. */
  function initialised(init, body) {
    if (init.status < 200 || init.status > 599) throw new RangeError(`the status ${init.status} is not between 200 and 599`);
    if (!/^[\t\u0020-\u007e\u0080-\u00ff]*$/.test(init.statusText)) throw new TypeError("statusText has a character that is not allowed");
    const headers = makeHeaders([], "response");
    fillHeaders(stateOfHeaders(headers), init.headers);
    const { status, statusText } = init;
    if (body !== null && NULL_BODY.includes(status)) throw new TypeError(`a response with the status ${status} cannot have a body`);
    if (body?.type !== undefined && combined(stateOfHeaders(headers).list, "content-type") === null)
      headers.append("Content-Type", body.type);
    return { __proto__: null, type: "default", url: "", redirected: false, status, statusText, headers, body };
  }

  class Response {
    #state;
    static {
      stateOf = (response) => response.#state;
      makeResponse = (state) => {
        const response = new Response();
        response.#state = state;
        return response;
      };
    }
    constructor(body = null, init = undefined) {
      const given = readInit(init);
      this.#state = initialised(given, body === null ? null : extractBody(body));
    }
    static error() {
      const state = { __proto__: null, type: "error", url: "", redirected: false, status: 0, statusText: "", body: null };
      return makeResponse({ ...state, headers: makeHeaders([], "immutable") });
    }
    static redirect(url, status = 302) {
      need(arguments, 1, "Response.redirect");
      const { href } = new URL(text(url));
      const code = toStatus(status);
      if (!REDIRECTS.includes(code)) throw new RangeError(`the status ${code} is not one of a redirect: ${REDIRECTS.join(", ")}`);
      const response = new Response(null, { __proto__: null, status: code });
      response.#state.headers = makeHeaders([["Location", href]], "immutable");
      return response;
    }
    static json(data, init = undefined) {
      need(arguments, 1, "Response.json");
      const written = stringify(data);
      if (written === undefined) throw new TypeError("Response.json: the value has no JSON");
      const given = readInit(init);
      const body = { __proto__: null, ...extractBody(toUtf8(written)), type: "application/json" };
      return makeResponse(initialised(given, body));
    }
    get type() {
      return this.#state.type;
    }
    get url() {
      return this.#state.url;
    }
    get redirected() {
      return this.#state.redirected;
    }
    get status() {
      return this.#state.status;
    }
    get ok() {
      return this.#state.status >= 200 && this.#state.status <= 299;
    }
    get statusText() {
      return this.#state.statusText;
    }
    get headers() {
      return this.#state.headers;
    }
    clone() {
      const state = this.#state;
      if (isUnusable(state.body)) throw new TypeError("the body has been read already, so the response cannot be cloned");
      const { list, guard } = stateOfHeaders(state.headers);
      const headers = makeHeaders(
        list.map((pair) => [...pair]),
        guard,
      );
      return makeResponse({ __proto__: null, ...state, headers, body: state.body === null ? null : cloneBody(state.body) });
    }
  }

  web.isResponse = (value) => isObject(value) && value instanceof Response;
  mixBody(Response, (response) => stateOf(response));
  dress(Response);
  expose(Response);
  Object.assign(web, { Response, makeResponse, NULL_BODY });
};
