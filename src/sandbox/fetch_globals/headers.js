// Headers (https://fetch.spec.whatwg.org/#headers-class). The host checks the headers of a request again.
(web) => {
  const { expose, dress, need, isObject, byteString, sequence, record, iterable, parseMime, trimmed } = web;
  const { warn } = console;
  let stateOf;
  let isHeaders;
  let makeHeaders;

  const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
  const isToken = (value) => TOKEN.test(value);
  const isValue = (value) => !/[\0\r\n]/.test(value);
  const normal = (value) => trimmed(value, "\t\n\r ");
  const lower = (name) => name.toLowerCase();

  // ---- guards ------------------------------------------------------------------------------------------------------
  const FORBIDDEN = `accept-charset accept-encoding access-control-request-headers access-control-request-method
    access-control-request-private-network connection content-length cookie cookie2 date dnt expect host keep-alive origin referer
    set-cookie te trailer transfer-encoding upgrade via`.split(/\s+/);
  const OVERRIDES = ["x-http-method", "x-http-method-override", "x-method-override"];
  const FORBIDDEN_METHOD = /^(?:connect|trace|track)$/i;

  function isForbidden(name, value) {
    if (FORBIDDEN.includes(name) || name.startsWith("proxy-") || name.startsWith("sec-")) return true;
    return OVERRIDES.includes(name) && value.split(",").some((method) => FORBIDDEN_METHOD.test(normal(method)));
  }

  /** Returns whether a text has a CORS-unsafe request-header byte. */
  function isUnsafe(value) {
    for (const character of value) if ((character < " " && character !== "\t") || '"():<>?@[\\]{}\x7f'.includes(character)) return true;
    return false;
  }
  const FORM_TYPES = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];
  /** Returns whether a request with mode "no-cors" may have this header. */
  function isSimple(name, value) {
    if (value.length > 128) return false;
    if (name === "accept") return !isUnsafe(value);
    if (name === "accept-language" || name === "content-language") return /^[0-9A-Za-z *,\-.;=]*$/.test(value);
    return name === "content-type" && !isUnsafe(value) && FORM_TYPES.includes(parseMime(value)?.essence);
  }

  const warned = new Set();
  /** Writes to the run's log that a header is not sent, once for each name. A browser also drops such a header without an error. */
  function dropped(name) {
    if (warned.has(name)) return;
    warned.add(name);
    warn(`fetch: the header "${name}" is not sent: code cannot set it in a request`);
  }

  /** Returns whether a guard allows that a header is changed. Throws if no header may be changed. */
  function allows({ guard, list }, name, value) {
    if (guard === "immutable") throw new TypeError("these headers cannot be changed");
    if (guard === "request" && isForbidden(name, value)) return dropped(name);
    if (guard === "response" && (name === "set-cookie" || name === "set-cookie2")) return false;
    if (guard !== "request-no-cors") return true;
    return isSimple(name, [...valuesOf(list, name), value].join(", "));
  }

  // ---- the list ----------------------------------------------------------------------------------------------------
  const valuesOf = (list, name) => list.filter(([found]) => lower(found) === name).map(([, value]) => value);
  /** Returns the values of a header name as one text, or null. */
  function combined(list, name) {
    const values = valuesOf(list, name);
    return values.length === 0 ? null : values.join(", ");
  }

  function checkedName(name, method) {
    const given = byteString(name, `Headers.${method}: the name`);
    if (!isToken(given)) throw new TypeError(`Headers.${method}: "${given}" is not a name of a header`);
    return given;
  }
  function checkedValue(value, method) {
    const given = normal(byteString(value, `Headers.${method}: the value`));
    if (!isValue(given)) throw new TypeError(`Headers.${method}: the value has a line break or NUL`);
    return given;
  }

  function append(state, givenName, givenValue) {
    const name = byteString(givenName, "Headers.append: the name");
    const converted = byteString(givenValue, "Headers.append: the value");
    checkedName(name, "append");
    const value = checkedValue(converted, "append");
    if (!allows(state, lower(name), value)) return;
    const same = state.list.find(([found]) => lower(found) === lower(name));
    state.list.push([same?.[0] ?? name, value]);
  }

  function set(state, name, value) {
    if (!allows(state, lower(name), value)) return;
    const first = state.list.findIndex(([found]) => lower(found) === lower(name));
    const pair = [name, value];
    if (first < 0) state.list.push(pair);
    else state.list = state.list.filter(([found], index) => lower(found) !== lower(name) || index === first).with(first, pair);
  }

  /** Adds the headers that agent code gave: pairs, or an object of names and values. */
  function fill(state, init) {
    const iterator = init[Symbol.iterator];
    if (iterator === undefined || iterator === null) {
      for (const [name, value] of record(init, (given) => byteString(given, "a header"))) append(state, name, value);
      return;
    }
    const pairs = sequence(init, "the list of headers").map((pair) => sequence(pair, "a header"));
    for (const pair of pairs) {
      if (pair.length !== 2) throw new TypeError("each header must be a list of a name and a value");
      append(state, pair[0], pair[1]);
    }
  }

  function initialised(state, init) {
    if (init === undefined) return;
    if (!isObject(init)) throw new TypeError("headers must be an object, a list of pairs, or Headers");
    fill(state, init);
  }

  /**
   * Returns the pairs [name, value], sorted by name. The values of one name are joined into one value. But each Set-Cookie value has its
   * own pair.
   */
  function sorted(headers) {
    const { list } = stateOf(headers);
    const names = [...new Set(list.map(([name]) => lower(name)))].sort();
    return names.flatMap((name) =>
      name === "set-cookie" ? valuesOf(list, name).map((value) => [name, value]) : [[name, combined(list, name)]],
    );
  }

  class Headers {
    #state = { __proto__: null, list: [], guard: "none" };
    static {
      stateOf = (headers) => headers.#state;
      isHeaders = (value) => isObject(value) && #state in value;
      makeHeaders = (list, guard) => {
        const headers = new Headers();
        headers.#state = { __proto__: null, list, guard };
        return headers;
      };
    }
    constructor(init = undefined) {
      initialised(this.#state, init);
    }
    append(name, value) {
      const state = this.#state;
      need(arguments, 2, "append");
      append(state, name, value);
    }
    delete(name) {
      const state = this.#state;
      need(arguments, 1, "delete");
      const wanted = lower(checkedName(name, "delete"));
      if (state.guard === "request-no-cors" && !["accept", "accept-language", "content-language", "content-type"].includes(wanted)) return;
      if (state.guard !== "request-no-cors" && !allows(state, wanted, "")) return;
      state.list = state.list.filter(([found]) => lower(found) !== wanted);
    }
    get(name) {
      const state = this.#state;
      need(arguments, 1, "get");
      return combined(state.list, lower(checkedName(name, "get")));
    }
    getSetCookie() {
      return valuesOf(this.#state.list, "set-cookie");
    }
    has(name) {
      const state = this.#state;
      need(arguments, 1, "has");
      return combined(state.list, lower(checkedName(name, "has"))) !== null;
    }
    set(name, value) {
      const state = this.#state;
      need(arguments, 2, "set");
      const names = byteString(name, "Headers.set: the name");
      const values = byteString(value, "Headers.set: the value");
      set(state, checkedName(names, "set"), checkedValue(values, "set"));
    }
  }

  dress(Headers);
  iterable(Headers, sorted);
  expose(Headers);
  Object.assign(web, { stateOfHeaders: stateOf, isHeaders, makeHeaders, fillHeaders: initialised, isToken, combined, FORBIDDEN_METHOD });
};
