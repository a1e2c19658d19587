// Event, CustomEvent, EventTarget, AbortController and AbortSignal (https://dom.spec.whatwg.org). There is no DOM tree, so events are
// neither captured nor bubbled.
(_web, { expose, dress, platform, need }, timers) => {
  /** Functions with access to private fields of Event, for EventTarget. Agent code must not call them. */
  let begin;
  let end;
  let stopped;

  class Event {
    #type;
    #cancelable;
    #target = null;
    #prevented = false;
    #stopped = false;
    #at = timers.now();
    static {
      platform.push((value) => typeof value === "object" && value !== null && #type in value);
      begin = (event, target) => {
        event.#target = target;
        event.#stopped = false;
      };
      end = (event) => !event.#prevented;
      stopped = (event) => event.#stopped;
    }
    constructor(type, options = undefined) {
      need(arguments, 1, "Event");
      this.#type = `${type}`;
      this.#cancelable = Boolean(options?.cancelable);
    }
    get type() {
      return this.#type;
    }
    get target() {
      return this.#target;
    }
    get currentTarget() {
      return this.#target;
    }
    get cancelable() {
      return this.#cancelable;
    }
    get bubbles() {
      return false;
    }
    get defaultPrevented() {
      return this.#prevented;
    }
    get timeStamp() {
      return this.#at;
    }
    preventDefault() {
      if (this.#cancelable) this.#prevented = true;
    }
    stopPropagation() {}
    stopImmediatePropagation() {
      this.#stopped = true;
    }
  }

  class CustomEvent extends Event {
    #detail;
    constructor(type, options = undefined) {
      super(type, options);
      this.#detail = options?.detail ?? null;
    }
    get detail() {
      return this.#detail;
    }
  }

  class EventTarget {
    /** Entries are { type, callback, once }. */
    #listeners = [];
    static {
      platform.push((value) => typeof value === "object" && value !== null && #listeners in value);
    }
    addEventListener(type, callback, options = undefined) {
      need(arguments, 2, "addEventListener");
      const signal = options?.signal;
      if (callback === null || callback === undefined || signal?.aborted) return;
      const name = `${type}`;
      if (this.#listeners.some((one) => one.type === name && one.callback === callback)) return;
      this.#listeners.push({ type: name, callback, once: Boolean(options?.once) });
      signal?.addEventListener("abort", () => this.removeEventListener(name, callback), { once: true });
    }
    removeEventListener(type, callback) {
      need(arguments, 2, "removeEventListener");
      this.#listeners = this.#listeners.filter((one) => one.type !== `${type}` || one.callback !== callback);
    }
    dispatchEvent(event) {
      if (!(event instanceof Event)) throw new TypeError("dispatchEvent takes an Event");
      begin(event, this);
      const own = this[`on${event.type}`];
      if (typeof own === "function") call(own, this, event);
      for (const listener of this.#listeners) {
        if (listener.type !== event.type || stopped(event) || !this.#listeners.includes(listener)) continue;
        if (listener.once) this.removeEventListener(listener.type, listener.callback);
        call(listener.callback, this, event);
      }
      return end(event);
    }
  }

  /** Calls a listener. An error that it throws ends the run, like an error in a timer's callback, because no other code can catch it. */
  function call(callback, target, event) {
    try {
      if (typeof callback === "function") callback.call(target, event);
      else callback.handleEvent(event);
    } catch (error) {
      timers.uncaught(error);
    }
  }

  let makeSignal = false;
  let abort;
  const signalOf = () => {
    makeSignal = true;
    try {
      return new AbortSignal();
    } finally {
      makeSignal = false;
    }
  };

  class AbortSignal extends EventTarget {
    #aborted = false;
    #reason = undefined;
    onabort = null;
    constructor() {
      if (!makeSignal) throw new TypeError("Illegal constructor: use new AbortController().signal");
      super();
    }
    static {
      abort = (signal, reason) => {
        if (signal.#aborted) return;
        signal.#aborted = true;
        signal.#reason = reason === undefined ? new DOMException("This operation was aborted", "AbortError") : reason;
        signal.dispatchEvent(new Event("abort"));
      };
    }
    get aborted() {
      return this.#aborted;
    }
    get reason() {
      return this.#reason;
    }
    throwIfAborted() {
      if (this.#aborted) throw this.#reason;
    }
    static abort(reason = undefined) {
      const signal = signalOf();
      abort(signal, reason);
      return signal;
    }
    static timeout(milliseconds) {
      need(arguments, 1, "AbortSignal.timeout");
      const signal = signalOf();
      timers.after(milliseconds, () => abort(signal, new DOMException("The operation was aborted due to timeout", "TimeoutError")));
      return signal;
    }
    static any(signals) {
      need(arguments, 1, "AbortSignal.any");
      const all = [...signals];
      const signal = signalOf();
      const done = all.find((one) => one.aborted);
      if (done !== undefined) abort(signal, done.reason);
      else for (const one of all) one.addEventListener("abort", () => abort(signal, one.reason), { once: true });
      return signal;
    }
  }

  class AbortController {
    #signal = signalOf();
    static {
      platform.push((value) => typeof value === "object" && value !== null && #signal in value);
    }
    get signal() {
      return this.#signal;
    }
    abort(reason = undefined) {
      abort(this.#signal, reason);
    }
  }

  for (const type of [Event, CustomEvent, EventTarget, AbortSignal, AbortController]) {
    dress(type);
    expose(type.name, type);
  }
};
