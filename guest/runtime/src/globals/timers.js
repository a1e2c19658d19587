// Defines setTimeout and the other timer functions, sleep, and performance. All use the run's clock. If there is no other work, the guest
// leaves the VM until the next timer is due; the host ends this wait when the run ends.
(web, { expose }) => {
  const { defineProperty, freeze } = Object;
  /** Waiting timers; the timer that is due next is last. */
  const waiting = [];
  let count = 0;
  let turning = false;
  /** Receives errors that no code caught. */
  let report = () => {};
  /** Pending tool calls, which the event loop waits for together with timers. calls.js sets this through `connect`. */
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
    // A run ends when its handler has settled, even if timers remain. So ref and unref have no effect.
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

  /** Inserts a timer into `waiting`. Timers that are due at the same time run in the order in which they were started. */
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

  /** Starts the event loop if it is not running. Called when a new timer or call is added. */
  function wake() {
    if (turning) return;
    turning = true;
    queueMicrotask(turn);
  }

  /**
   * One turn of the event loop. Pending jobs run first. Then it waits for tool calls to end or for the next timer, and runs that timer's
   * callback.
   */
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
      // The host's wait may end slightly before the timer is due on the host's clock. So the next turn compares the time again.
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

  /** Returns the milliseconds, or `least` if they are smaller or NaN. */
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
  /** Stops a timer. The handle may also be the timer's number. Any other handle has no effect. */
  function clear(handle) {
    const found = handle instanceof Timeout ? handle : waiting.find((one) => +one === Number(handle));
    if (found === undefined) return;
    found.repeats = false;
    remove(found);
  }
  const clearTimeout = (handle) => clear(handle);
  const clearInterval = (handle) => clear(handle);
  const clearImmediate = (handle) => clear(handle);

  /** Implements `sleep` of `host:mcp`. */
  function sleep(milliseconds) {
    if (typeof milliseconds !== "number" || !(milliseconds >= 0) || milliseconds === Infinity)
      throw new TypeError("sleep takes a finite, non-negative number of milliseconds, for example await sleep(100)");
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
    /** Sets the pending calls that the event loop waits for together with timers. */
    connect(these) {
      calls = these;
    },
    uncaught: (error) => report(error),
    /** Sets the function that receives errors that no code caught. */
    listen(listener) {
      report = listener;
    },
  });
};
