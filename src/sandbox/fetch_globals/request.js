// Request (https://fetch.spec.whatwg.org/#request-class).
(web) => {
  const { expose, dress, need, isObject, text, byteString, dictionary, oneOf, streams } = web;
  const { stateOfHeaders, makeHeaders, fillHeaders, isToken, FORBIDDEN_METHOD } = web;
  const { extractBody, cloneBody, isUnusable, mixBody } = web;
  const { URL, AbortController, AbortSignal } = globalThis;
  const { apply } = Reflect;
  const aborted = Object.getOwnPropertyDescriptor(AbortSignal.prototype, "aborted").get;
  const any = AbortSignal.any.bind(AbortSignal);
  let stateOf;
  let isRequest;
  let makeRequest;

  const WORDS = {
    __proto__: null,
    cache: ["default", "no-store", "reload", "no-cache", "force-cache", "only-if-cached"],
    credentials: ["omit", "same-origin", "include"],
    duplex: ["half"],
    mode: ["navigate", "same-origin", "no-cors", "cors"],
    priority: ["high", "low", "auto"],
    redirect: ["follow", "error", "manual"],
    referrerPolicy: ["", "no-referrer", "no-referrer-when-downgrade", "same-origin", "origin", "strict-origin"].concat([
      "origin-when-cross-origin",
      "strict-origin-when-cross-origin",
      "unsafe-url",
    ]),
  };
  const NORMALISED = /^(?:delete|get|head|options|post|put)$/i;

  function isSignal(value) {
    try {
      apply(aborted, value, []);
      return true;
    } catch {
      return false;
    }
  }

  // ---- what agent code gives ---------------------------------------------------------------------------------------
  const word = (name) => (value) => oneOf(value, WORDS[name], name);
  function signal(value) {
    if (value !== null && !isSignal(value)) throw new TypeError("signal is not an AbortSignal");
    return value;
  }
  /** The members of RequestInit with their conversions, in the order in which the standard reads them. */
  const MEMBERS = Object.entries({
    body: (value) => value,
    cache: word("cache"),
    credentials: word("credentials"),
    duplex: word("duplex"),
    headers: (value) => value,
    integrity: (value) => `${value}`,
    keepalive: Boolean,
    method: (value) => byteString(value, "the method"),
    mode: word("mode"),
    priority: word("priority"),
    redirect: word("redirect"),
    referrer: text,
    referrerPolicy: word("referrerPolicy"),
    signal,
    window: (value) => value,
  });

  function readInit(given) {
    const from = dictionary(given, "the second argument of Request");
    const init = { __proto__: null };
    for (const [name, convert] of MEMBERS) {
      const value = from[name];
      if (value !== undefined) init[name] = convert(value);
    }
    return init;
  }

  function parsedUrl(input) {
    const url = new URL(input);
    if (url.username !== "" || url.password !== "")
      throw new TypeError("the URL has a user name or a password: use the header Authorization instead");
    return url;
  }

  function checkedMethod(method) {
    if (!isToken(method)) throw new TypeError(`"${method}" is not a method`);
    if (FORBIDDEN_METHOD.test(method)) throw new TypeError(`the method "${method}" is not allowed`);
    return NORMALISED.test(method) ? method.toUpperCase() : method;
  }

  /** Returns `about:client` for each referrer: a run has no origin, so no page of the same origin can be the referrer. */
  function referrerOf(given) {
    if (given === "") return "";
    new URL(given);
    return "about:client";
  }

  function checkModes(init, request) {
    if (init.window !== undefined && init.window !== null) throw new TypeError("window can only be null");
    if (init.mode === "navigate") throw new TypeError('a request cannot have the mode "navigate"');
    if (request.cache === "only-if-cached" && request.mode !== "same-origin")
      throw new TypeError('the cache mode "only-if-cached" needs the mode "same-origin"');
  }

  const DEFAULTS = { method: "GET", mode: "cors", credentials: "same-origin", cache: "default", redirect: "follow" };
  const EMPTY = { referrer: "about:client", referrerPolicy: "", integrity: "", keepalive: false };

  /** Returns the fields of a request without its headers, signal and body. */
  function fieldsOf(input, init) {
    const base = isRequest(input) ? stateOf(input) : { __proto__: null, ...DEFAULTS, ...EMPTY, url: parsedUrl(text(input)) };
    const { method, mode, credentials, cache, redirect, referrer, referrerPolicy, integrity, keepalive, url } = base;
    const request = { __proto__: null, method, mode, credentials, cache, redirect, referrer, referrerPolicy, integrity, keepalive, url };
    if (init.referrer !== undefined) request.referrer = referrerOf(init.referrer);
    for (const name of ["referrerPolicy", "mode", "credentials", "cache", "redirect", "integrity", "keepalive"])
      if (init[name] !== undefined) request[name] = init[name];
    checkModes(init, request);
    if (init.method !== undefined) request.method = checkedMethod(init.method);
    return request;
  }

  function headersOf(input, init, request) {
    let guard = "request";
    if (request.mode === "no-cors") {
      if (!["GET", "HEAD", "POST"].includes(request.method))
        throw new TypeError(`the method "${request.method}" is not allowed with the mode "no-cors"`);
      guard = "request-no-cors";
    }
    const inherited = isRequest(input) ? stateOfHeaders(stateOf(input).headers).list : [];
    const headers = makeHeaders([], guard);
    fillHeaders(stateOfHeaders(headers), init.headers === undefined ? inherited : init.headers);
    return headers;
  }

  function bodyOf(input, init, request) {
    const inherited = isRequest(input) ? stateOf(input).body : null;
    const given = init.body ?? null;
    if ((given !== null || (init.body === undefined && inherited !== null)) && ["GET", "HEAD"].includes(request.method))
      throw new TypeError(`a request with the method ${request.method} cannot have a body`);
    if (given !== null) {
      const body = extractBody(given);
      if (body.isStream && init.duplex === undefined) throw new TypeError('a request with a stream as its body needs duplex: "half"');
      const { list } = stateOfHeaders(request.headers);
      const hasType = list.some(([name]) => name.toLowerCase() === "content-type");
      if (body.type !== undefined && !hasType) request.headers.append("Content-Type", body.type);
      return body;
    }
    if (inherited === null) return null;
    if (isUnusable(inherited)) throw new TypeError("the body of the request has been read already");
    return { __proto__: null, ...inherited, stream: streams.takeOver(inherited.stream) };
  }

  class Request {
    #state;
    static {
      stateOf = (request) => request.#state;
      isRequest = (value) => isObject(value) && #state in value;
      makeRequest = (state) => {
        const request = new Request("about:blank");
        request.#state = state;
        return request;
      };
    }
    constructor(input, init = undefined) {
      need(arguments, 1, "Request");
      const given = readInit(init);
      const request = fieldsOf(input, given);
      const source = given.signal === undefined ? (isRequest(input) ? stateOf(input).signal : null) : given.signal;
      request.signal = source === null ? new AbortController().signal : any([source]);
      request.headers = headersOf(input, given, request);
      request.body = bodyOf(input, given, request);
      this.#state = request;
    }
    get method() {
      return this.#state.method;
    }
    get url() {
      return this.#state.url.href;
    }
    get headers() {
      return this.#state.headers;
    }
    get destination() {
      void this.#state;
      return "";
    }
    get referrer() {
      const { referrer } = this.#state;
      return referrer;
    }
    get referrerPolicy() {
      return this.#state.referrerPolicy;
    }
    get mode() {
      return this.#state.mode;
    }
    get credentials() {
      return this.#state.credentials;
    }
    get cache() {
      return this.#state.cache;
    }
    get redirect() {
      return this.#state.redirect;
    }
    get integrity() {
      return this.#state.integrity;
    }
    get keepalive() {
      return this.#state.keepalive;
    }
    get isReloadNavigation() {
      void this.#state;
      return false;
    }
    get isHistoryNavigation() {
      void this.#state;
      return false;
    }
    get signal() {
      return this.#state.signal;
    }
    get duplex() {
      void this.#state;
      return "half";
    }
    clone() {
      const state = this.#state;
      if (isUnusable(state.body)) throw new TypeError("the body has been read already, so the request cannot be cloned");
      const { list, guard } = stateOfHeaders(state.headers);
      const headers = makeHeaders(
        list.map((pair) => [...pair]),
        guard,
      );
      const body = state.body === null ? null : cloneBody(state.body);
      return makeRequest({ __proto__: null, ...state, headers, body, signal: any([state.signal]) });
    }
  }

  mixBody(Request, (request) => stateOf(request));
  dress(Request);
  expose(Request);
  Object.assign(web, { Request, stateOfRequest: stateOf });
};
