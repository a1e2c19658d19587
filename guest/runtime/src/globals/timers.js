// setTimeout and its like, sleep, and performance: one clock, the run's own. Nothing waits in here: when nothing else is to be
// done, the guest leaves the VM until the next timer is due, and the host ends that wait with the run.
(web, { expose }) => {
  const { defineProperty, freeze } = Object;
  /** Waiting timers, the next one last. */
  const waiting = [];
  let count = 0;
  let turning = false;
  /** Where the run hears of what nobody caught. */
  let report = () => {};
  /** Calls out of the VM that may end as well as timers; calls.js connects them. */
  let calls = { areOpen: () => false, exchange: () => {} };

  const now = () => web.elapsed();

  class Timeout {
    #id = ++count;
    due;
    order;
    delay;
    repeats;
    action;
    constructor(action, delay, repeats) {
      Object.assign(this, { action, delay, repeats });
      for (const key of ["due", "order", "delay", "repeats", "action"]) defineProperty(this, key, { enumerable: false });
    }
    // As Node's: a run ends when its handler has settled, whether timers are left or not.
    ref() {
      return this;
    }
    unref() {
      return this;
    }
    hasRef() {
      return true;
    }
    refresh() {
      if (remove(this)) start(this);
      return this;
    }
    [Symbol.toPrimitive]() {
      return this.#id;
    }
  }

  function remove(timer) {
    const index = waiting.indexOf(timer);
    if (index >= 0) waiting.splice(index, 1);
    return index >= 0;
  }

  /** Before those that are due later, behind those that are due at the same time. */
  function start(timer) {
    timer.due = now() + timer.delay;
    timer.order = ++count;
    let [low, high] = [0, waiting.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (waiting[middle].due <= timer.due) high = middle;
      else low = middle + 1;
    }
    waiting.splice(low, 0, timer);
    wake();
    return timer;
  }

  /** There is something to wait for. */
  function wake() {
    if (turning) return;
    turning = true;
    queueMicrotask(turn);
  }

  /** One turn: whatever can go on goes first; then calls that have ended, or the next timer's callback, waited for if need be. */
  function turn() {
    if (!web.isBusy()) {
      const next = waiting.at(-1);
      if (next === undefined && !calls.areOpen()) {
        turning = false;
        return;
      }
      const rest = next === undefined ? undefined : Math.max(0, next.due - now());
      if (calls.areOpen()) calls.exchange(rest);
      else if (rest > 0) web.wait(rest);
      // The host's clock and its wait may differ by a moment: whether a timer is due is asked anew.
      if (rest === 0) fire(waiting.pop());
    }
    queueMicrotask(turn);
  }

  function fire(timer) {
    try {
      timer.action();
    } catch (error) {
      report(error);
    }
    if (timer.repeats && !waiting.includes(timer)) start(timer);
  }

  /** NaN and what is below become the least. */
  const atLeast = (least, milliseconds) => Math.max(least, Number(milliseconds) || 0);

  function timer(name, action, delay, repeats, given) {
    if (typeof action !== "function") throw new TypeError(`${name} takes a function, not ${typeof action}`);
    return start(new Timeout(given.length === 0 ? action : () => action(...given), delay, repeats));
  }
  function setTimeout(action, delay, ...given) {
    return timer("setTimeout", action, atLeast(1, delay), false, given);
  }
  function setInterval(action, delay, ...given) {
    return timer("setInterval", action, atLeast(1, delay), true, given);
  }
  function setImmediate(action, ...given) {
    return timer("setImmediate", action, 0, false, given);
  }
  /** Also of the number that a timer becomes, and of anything else without an effect. */
  function clear(handle) {
    const found = handle instanceof Timeout ? handle : waiting.find((one) => +one === Number(handle));
    if (found === undefined) return;
    found.repeats = false;
    remove(found);
  }
  const clearTimeout = (handle) => clear(handle);
  const clearInterval = (handle) => clear(handle);
  const clearImmediate = (handle) => clear(handle);

  /** `sleep` of `host:mcp`. */
  function sleep(milliseconds) {
    if (typeof milliseconds !== "number" || !(milliseconds >= 0) || milliseconds === Infinity)
      throw new TypeError("sleep takes a number of milliseconds: await sleep(100)");
    return new Promise((resolve) => start(new Timeout(() => resolve(), milliseconds, false)));
  }

  for (const value of [setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate]) expose(value.name, value);

  class Performance {
    now() {
      return now();
    }
    get timeOrigin() {
      return web.started();
    }
    toJSON() {
      return { timeOrigin: this.timeOrigin };
    }
  }
  defineProperty(Performance.prototype, Symbol.toStringTag, { value: "Performance", configurable: true });
  expose("performance", new Performance());

  return freeze({
    now,
    sleep,
    after: (milliseconds, action) => start(new Timeout(action, atLeast(0, milliseconds), false)),
    wake,
    /** Calls are waited for together with timers. */
    connect(these) {
      calls = these;
    },
    uncaught: (error) => report(error),
    /** What a run does about an error that nobody caught. */
    listen(listener) {
      report = listener;
    },
  });
};
