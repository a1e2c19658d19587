// URL and URLSearchParams (https://url.spec.whatwg.org).
(web, { expose, dress, text, platform, need }) => {
  // The order in which src/web.rs returns the parts.
  const PARTS = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
  const [HREF, SEARCH] = [0, 9];

  /** Functions with access to private fields of URLSearchParams. `attach` sets the callback for changes, `refill` sets new parameters. */
  let attach;
  let refill;

  class URLSearchParams {
    /** Entries are [name, value]. */
    #pairs = [];
    #changed = null;
    static {
      platform.push((value) => #pairs in value);
      attach = (params, changed) => {
        params.#changed = changed;
      };
      refill = (params, query) => {
        params.#pairs = parse(query);
      };
    }

    constructor(init = "") {
      if ((typeof init === "object" && init !== null) || typeof init === "function") {
        this.#pairs = init[Symbol.iterator] == null ? record(init) : sequence(init);
      } else {
        const query = text(init);
        this.#pairs = parse(query.startsWith("?") ? query.slice(1) : query);
      }
    }
    get size() {
      return this.#pairs.length;
    }
    append(name, value) {
      need(arguments, 2, "append");
      this.#pairs.push([text(name), text(value)]);
      this.#changed?.();
    }
    delete(name, value = undefined) {
      need(arguments, 1, "delete");
      this.#pairs = this.#pairs.filter(differs(name, value));
      this.#changed?.();
    }
    get(name) {
      need(arguments, 1, "get");
      const wanted = text(name);
      return this.#pairs.find(([found]) => found === wanted)?.[1] ?? null;
    }
    getAll(name) {
      need(arguments, 1, "getAll");
      const wanted = text(name);
      return this.#pairs.filter(([found]) => found === wanted).map(([, value]) => value);
    }
    has(name, value = undefined) {
      need(arguments, 1, "has");
      return !this.#pairs.every(differs(name, value));
    }
    set(name, value) {
      need(arguments, 2, "set");
      const [wanted, given] = [text(name), text(value)];
      const first = this.#pairs.findIndex(([found]) => found === wanted);
      if (first < 0) this.#pairs.push([wanted, given]);
      else this.#pairs = this.#pairs.filter(([found], index) => found !== wanted || index === first).with(first, [wanted, given]);
      this.#changed?.();
    }
    sort() {
      this.#pairs.sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0));
      this.#changed?.();
    }
    forEach(callback, self = undefined) {
      if (typeof callback !== "function") throw new TypeError("forEach: the callback is not a function");
      for (const [name, value] of this) callback.call(self, value, name, this);
    }
    // The iterators go by index, so that they also return pairs that are added during the iteration.
    *entries() {
      for (let index = 0; index < this.#pairs.length; index += 1) yield [...this.#pairs[index]];
    }
    *keys() {
      for (let index = 0; index < this.#pairs.length; index += 1) yield this.#pairs[index][0];
    }
    *values() {
      for (let index = 0; index < this.#pairs.length; index += 1) yield this.#pairs[index][1];
    }
    toString() {
      return web.writeForm(this.#pairs.flat());
    }
  }

  function parse(query) {
    const flat = web.parseForm(query);
    const pairs = [];
    for (let index = 0; index < flat.length; index += 2) pairs.push([flat[index], flat[index + 1]]);
    return pairs;
  }

  function sequence(init) {
    return Array.from(init, (pair) => {
      const given = typeof pair === "object" && pair !== null && pair[Symbol.iterator] != null ? [...pair] : [];
      if (given.length !== 2) throw new TypeError("URLSearchParams: each pair must be a list of a name and a value");
      return [text(given[0]), text(given[1])];
    });
  }

  function record(init) {
    const named = new Map();
    for (const key of Reflect.ownKeys(init)) {
      if (!Object.getOwnPropertyDescriptor(init, key)?.enumerable) continue;
      if (typeof key === "symbol") throw new TypeError("URLSearchParams: a name cannot be a symbol");
      named.set(text(key), text(init[key]));
    }
    return [...named];
  }

  const differs = (name, value) => {
    const wanted = text(name);
    if (value === undefined) return ([found]) => found !== wanted;
    const given = text(value);
    return ([found, had]) => found !== wanted || had !== given;
  };

  class URL {
    #parts;
    #params = null;

    constructor(url, base = undefined) {
      need(arguments, 1, "URL");
      const parts = parseUrl(url, base);
      if (parts === undefined) throw invalid(url, base);
      this.#parts = parts;
    }
    get searchParams() {
      if (this.#params === null) {
        const params = new URLSearchParams(this.#parts[SEARCH]);
        attach(params, () => {
          this.#parts = web.changeUrl(this.#parts[HREF], "search", params.toString()) ?? this.#parts;
        });
        this.#params = params;
      }
      return this.#params;
    }
    toString() {
      return this.#parts[HREF];
    }
    toJSON() {
      return this.#parts[HREF];
    }
    static canParse(url, base = undefined) {
      need(arguments, 1, "URL.canParse");
      return parseUrl(url, base) !== undefined;
    }
    static parse(url, base = undefined) {
      need(arguments, 1, "URL.parse");
      return URL.canParse(url, base) ? new URL(url, base) : null;
    }
    #become(parts) {
      this.#parts = parts;
      if (this.#params !== null) refill(this.#params, parts[SEARCH].slice(1));
    }
    static {
      platform.push((value) => #parts in value);
      PARTS.forEach((name, index) => {
        const property = {
          get() {
            return this.#parts[index];
          },
          set(value) {
            this.#become(web.changeUrl(this.#parts[HREF], name, text(value)) ?? this.#parts);
          },
          enumerable: true,
          configurable: true,
        };
        if (name === "origin") property.set = undefined;
        if (name === "href")
          property.set = function (value) {
            const parts = parseUrl(value);
            if (parts === undefined) throw invalid(value);
            this.#become(parts);
          };
        Object.defineProperty(URL.prototype, name, property);
      });
    }
  }

  const parseUrl = (url, base) => web.parseUrl(text(url), base === undefined ? undefined : text(base));

  function invalid(url, base) {
    const error = new TypeError(`Invalid URL: ${text(url)}${base === undefined ? "" : ` (base ${text(base)})`}`);
    return Object.assign(error, { code: "ERR_INVALID_URL", input: text(url), ...(base === undefined ? {} : { base: text(base) }) });
  }

  for (const type of [URL, URLSearchParams]) {
    dress(type);
    expose(type.name, type);
  }
  Object.defineProperty(URLSearchParams.prototype, Symbol.iterator, {
    value: URLSearchParams.prototype.entries,
    writable: true,
    configurable: true,
  });
};
