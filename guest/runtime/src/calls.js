// Makes tool calls out of the VM: one at a time, or many at once. A call made with `.async` waits in a queue until the run has no other
// work. Then one host call (an "exchange") submits all queued calls, waits, and returns the replies to the calls that have ended. `host` is
// the native module of src/host.rs, `codec` is codec.js, `timers` is globals/timers.js.
(host, codec, timers) => {
  const { encode, decode } = codec;
  const { defineProperty, hasOwn } = Object;
  const { isArray } = Array;
  const { ownKeys } = Reflect;

  /**
   * The largest number of calls that the host holds for one run; further calls wait in `queue`. src/sandbox/exchange.rs has the same limit.
   */
  const MAX_OUTSTANDING = 256;
  /** The largest number of bytes that an exchange adds around the arguments of one call. */
  const FRAME = 64;

  /** Calls that were made and are not yet submitted to the host, oldest first. */
  const queue = [];
  /** Calls that were submitted to the host and have not ended, by their number. */
  const outstanding = new Map();
  /** The number of bytes that the outstanding calls take in exchanges. */
  let load = 0;
  let count = 0;
  /** Maps each promise that `.async` returned to its call. */
  const calls = new WeakMap();

  function toError(thrown) {
    const error = new Error(thrown.message);
    if (thrown.name !== undefined) defineProperty(error, "name", { value: thrown.name, configurable: true, writable: true });
    if (thrown.code !== undefined) error.code = thrown.code;
    return error;
  }

  function encoded(args) {
    while (args.length > 0 && args[args.length - 1] === undefined) args.pop();
    // A promise in the arguments is an error here: a call that waits inside this function could not await it.
    const [json, blobs] = encode(args);
    if (json === undefined) throw new TypeError("the arguments have no JSON: toJSON of Array.prototype or Object.prototype gives none");
    return [json, blobs];
  }

  /** Returns `{ value }`, or `{ error }` if the host's reply says that the call throws. */
  function outcomeOf(json, bytes) {
    const reply = decode(json, bytes);
    return "thrown" in reply ? { error: toError(reply.thrown) } : reply;
  }

  // ---- one at a time ----------------------------------------------------------------------------------------------
  function invoke(module, name, args) {
    const [json, blobs] = encoded(args);
    // The host must receive calls in the order in which they were made, so all queued calls are submitted first.
    while (queue.length > 0) exchange(hasRoom() ? 0 : undefined, []);
    const [reply, ...bytes] = host.call(module, name, json, blobs);
    const outcome = outcomeOf(reply, bytes);
    if ("error" in outcome) throw outcome.error;
    return outcome.value;
  }

  // ---- many at once -----------------------------------------------------------------------------------------------
  /** Returns an upper limit of the UTF-8 size of a text. */
  const room = (text) => (/[\u0080-\uffff]/.test(text) ? 3 * text.length : text.length);

  /** Encodes a queued call. The arguments are copied, so that later changes to these objects have no effect on the call. */
  function request(number, module, name, args) {
    const [json, blobs] = encoded(args);
    const copies = blobs.map((blob) => new Uint8Array(blob));
    const bytes = copies.reduce((sum, copy) => sum + copy.length + FRAME, FRAME);
    return { parts: [number, module, name, json, ...copies], size: bytes + room(module) + room(name) + room(json) };
  }

  function submit(module, name, args) {
    const call = { number: ++count, parts: undefined, size: 0, resolve: undefined, reject: undefined, outcome: undefined };
    const promise = new Promise((resolve, reject) => Object.assign(call, { resolve, reject }));
    calls.set(promise, call);
    try {
      Object.assign(call, request(call.number, module, name, args));
      queue.push(call);
      timers.wake();
    } catch (error) {
      settle(call, { error });
    }
    return promise;
  }

  function settle(call, outcome) {
    call.outcome = outcome;
    if (outstanding.delete(call.number)) load -= call.size;
    const { resolve, reject } = call;
    // The promise and its resolve functions refer to each other. Keeping them here would keep the promise and its outcome in memory.
    Object.assign(call, { parts: undefined, resolve: undefined, reject: undefined });
    if ("error" in outcome) reject(outcome.error);
    else resolve(outcome.value);
  }

  /** Tells if the host accepts the next queued call. The host always accepts a call if it holds no other. */
  function hasRoom() {
    if (outstanding.size === 0) return true;
    return outstanding.size < MAX_OUTSTANDING && load + queue[0].size <= host.capacity();
  }

  /** Takes as many calls from the queue as the host has room for. */
  function handOver() {
    const handed = [];
    while (queue.length > 0 && hasRoom()) {
      const call = queue.shift();
      outstanding.set(call.number, call);
      load += call.size;
      handed.push(call);
    }
    return handed;
  }

  /**
   * Puts calls back into the queue. The host refuses calls if it holds more replies than fit into one answer; these replies are read first.
   */
  function takeBack(left) {
    for (const call of left) {
      outstanding.delete(call.number);
      load -= call.size;
    }
    queue.unshift(...left);
  }

  /**
   * Submits the queued calls and settles the calls that have ended. Returns once all calls have ended, or all calls in `wanted`, or after
   * `wait` milliseconds. If `wanted` is empty, it also returns once some calls have ended and no others are about to end.
   */
  function exchange(wait, wanted) {
    const handed = handOver();
    // A wanted call may still be in the queue. Then the exchange returns when any call ends, because that makes room for the wanted call.
    const numbers = wanted.filter((call) => call.outcome === undefined).map((call) => call.number);
    const until = queue.length > 0 ? [] : [...new Set(numbers)];
    let answer;
    try {
      answer = host.exchange(
        handed.map((call) => call.parts),
        wait ?? -1,
        until,
      );
    } catch (error) {
      for (const call of [...outstanding.values()]) settle(call, { error });
      return;
    }
    const [left, ...ended] = answer;
    takeBack(left === 0 ? [] : handed.slice(-left));
    for (const [number, json, ...bytes] of ended) {
      const call = outstanding.get(number);
      if (call !== undefined) settle(call, outcomeOf(json, bytes));
    }
  }

  timers.connect({
    areOpen: () => queue.length > 0 || outstanding.size > 0,
    exchange: (wait) => exchange(wait, []),
  });

  /** Returns the outcome of each entry of `given`, and waits inside this function. An entry that is not a promise is its own value. */
  function outcomes(name, given) {
    if (typeof given?.[Symbol.iterator] !== "function" || typeof given === "string")
      throw new TypeError(`${name} takes a list of calls, for example ${name}(cities.map((city) => get_forecast.async({ city })))`);
    const entries = [...given].map((one) => {
      const call = calls.get(one);
      if (call === undefined && typeof one?.then === "function")
        throw new TypeError(`${name} takes only promises that .async returned; for other promises use await Promise.${name}([…])`);
      return call ?? { outcome: { value: one } };
    });
    while (entries.some((entry) => entry.outcome === undefined)) exchange(undefined, entries);
    return entries.map((entry) => entry.outcome);
  }

  function all(pending) {
    const ended = outcomes("all", pending);
    const failed = ended.find((outcome) => "error" in outcome);
    if (failed !== undefined) throw failed.error;
    return ended.map((outcome) => outcome.value);
  }

  function allSettled(pending) {
    const settled = (outcome) =>
      "error" in outcome ? { status: "rejected", reason: outcome.error } : { status: "fulfilled", value: outcome.value };
    return outcomes("allSettled", pending).map(settled);
  }

  /**
   * Returns whether a value is what a failed call returns: an object with the text `error`, perhaps the text `code`, and no other field
   * (`ToolErrors` in src/bridge/shape.rs). A result that has a field `error` among others is not one.
   */
  function isError(value) {
    if (typeof value !== "object" || value === null || isArray(value)) return false;
    const keys = ownKeys(value);
    if (!keys.includes("error") || typeof value.error !== "string") return false;
    return keys.length === 1 || (keys.length === 2 && keys.includes("code") && typeof value.code === "string");
  }

  // ---- the functions of modules -----------------------------------------------------------------------------------
  /** Functions of `host:mcp` that the guest runs itself, because they call nothing. */
  const OWN = { mcp: { sleep: timers.sleep, all, allSettled, isError } };

  /**
   * The property descriptors of `.async`, by module. The functions of one module share a descriptor, because a module can have many
   * functions.
   */
  const getters = new Map();

  /** Returns the descriptor of `.async` for a module. The async function is only made when `.async` is first read: most are never used. */
  function getter(module) {
    const get = function () {
      const { name } = this;
      const value = (...args) => submit(module, name, args);
      defineProperty(this, "async", { value });
      return value;
    };
    const descriptor = { get, configurable: true };
    getters.set(module, descriptor);
    return descriptor;
  }

  /**
   * Makes a function of a host module. It is synchronous and has its tool's name; its `.async` property is a function that returns a
   * promise.
   */
  function bind(module, name) {
    if (hasOwn(OWN, module) && hasOwn(OWN[module], name)) return OWN[module][name];
    const bound = defineProperty((...args) => invoke(module, name, args), "name", { value: name });
    return defineProperty(bound, "async", getters.get(module) ?? getter(module));
  }

  /** Returns how many calls have not ended: those of the globals of fetch (src/sandbox/fetch_globals), and all others. */
  function unsettled() {
    const found = { __proto__: null, calls: 0, fetches: 0 };
    const count = ({ parts }) => {
      found[parts[1] === "fetch:" ? "fetches" : "calls"] += 1;
    };
    queue.forEach(count);
    outstanding.forEach(count);
    return found;
  }

  return { bind, unsettled };
};
