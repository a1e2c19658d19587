// Calls out of the VM: one at a time, or many at once. A call by `.async` waits in a queue until the run can do nothing else. Then one
// host call, an exchange, hands over all that are new, waits, and comes back with those that have ended.
// `host` is the native module of src/host.rs, `codec` is codec.js, `timers` is globals/timers.js.
(host, codec, timers) => {
  const { encode, decode } = codec;
  const { defineProperty, hasOwn } = Object;

  /** What the host holds of one run at once; the rest waits in here. The same number stands in src/sandbox/exchange.rs. */
  const MAX_OUTSTANDING = 256;
  /** What stands around a call's arguments in an exchange, at most. */
  const FRAME = 64;

  /** Made and not handed over, in order. */
  const queue = [];
  /** Handed over and not ended, by number. */
  const outstanding = new Map();
  /** What these have in an exchange. */
  let load = 0;
  let count = 0;
  /** The call behind a promise that `.async` gave. */
  const calls = new WeakMap();

  function toError(thrown) {
    const error = new Error(thrown.message);
    if (thrown.name !== undefined) defineProperty(error, "name", { value: thrown.name, configurable: true, writable: true });
    if (thrown.code !== undefined) error.code = thrown.code;
    return error;
  }

  function encoded(args) {
    while (args.length > 0 && args[args.length - 1] === undefined) args.pop();
    const [json, blobs] = encode(args);
    if (json === undefined) throw new TypeError("Array.prototype or Object.prototype has a toJSON that makes nothing of the arguments");
    return [json, blobs];
  }

  /** `{ value }`, or `{ error }` where the host says what is to be thrown. */
  function outcomeOf(json, bytes) {
    const reply = decode(json, bytes);
    return "thrown" in reply ? { error: toError(reply.thrown) } : reply;
  }

  // ---- one at a time ----------------------------------------------------------------------------------------------
  function invoke(module, name, args) {
    const [json, blobs] = encoded(args);
    // Calls reach the host in the order in which they were made.
    while (queue.length > 0) exchange(hasRoom() ? 0 : undefined, []);
    const [reply, ...bytes] = host.call(module, name, json, blobs);
    const outcome = outcomeOf(reply, bytes);
    if ("error" in outcome) throw outcome.error;
    return outcome.value;
  }

  // ---- many at once -----------------------------------------------------------------------------------------------
  /** What a text has in UTF-8 at most. */
  const room = (text) => (/[\u0080-\uffff]/.test(text) ? 3 * text.length : text.length);

  /** A call as it waits: its arguments are those of now, whatever becomes of the objects. */
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
    // What a promise's own functions hold of it would keep promise and outcome together in memory.
    Object.assign(call, { parts: undefined, resolve: undefined, reject: undefined });
    if ("error" in outcome) reject(outcome.error);
    else resolve(outcome.value);
  }

  /** Whether the host would take the next call; a call that is alone is always taken. */
  function hasRoom() {
    if (outstanding.size === 0) return true;
    return outstanding.size < MAX_OUTSTANDING && load + queue[0].size <= host.capacity();
  }

  /** As many as there is room for. */
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

  /** What the host has left: there are more replies than fit into one answer, and they are to be taken first. */
  function takeBack(left) {
    for (const call of left) {
      outstanding.delete(call.number);
      load -= call.size;
    }
    queue.unshift(...left);
  }

  /**
   * Hands over what is new, and settles what has ended: once all have, or all of `wanted`, or after `wait` milliseconds. Where nothing is
   * wanted in particular, also once some have ended and no others follow.
   */
  function exchange(wait, wanted) {
    const handed = handOver();
    // What is wanted may still be in the queue: then whatever ends makes room for it.
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

  /** The outcomes of all that was given, waited for in here; what is no promise is its own. */
  function outcomes(name, given) {
    if (typeof given?.[Symbol.iterator] !== "function" || typeof given === "string")
      throw new TypeError(`${name} takes a list of calls: ${name}(cities.map((city) => get_forecast.async({ city })))`);
    const entries = [...given].map((one) => {
      const call = calls.get(one);
      if (call === undefined && typeof one?.then === "function")
        throw new TypeError(`${name} waits for what .async gave; other promises are awaited: await Promise.${name}([…])`);
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

  // ---- the functions of modules -----------------------------------------------------------------------------------
  /** Functions of host modules that the guest itself answers: to wait is to stay in here. */
  const OWN = { mcp: { sleep: timers.sleep, all, allSettled } };

  /** What reads `.async` of a module's functions. By module, as modules have many functions. */
  const getters = new Map();

  /** Most functions are never called by it: each gets its own when it is first asked for. */
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

  /** A function of a host module: synchronous, and named as its tool; with `.async`, which gives a promise. */
  function bind(module, name) {
    if (hasOwn(OWN, module) && hasOwn(OWN[module], name)) return OWN[module][name];
    const bound = defineProperty((...args) => invoke(module, name, args), "name", { value: name });
    return defineProperty(bound, "async", getters.get(module) ?? getter(module));
  }

  return { bind, unsettled: () => queue.length + outstanding.size };
};
