// The part of the addon that is easier in JavaScript: conversion of values, promises, AbortSignal, and the user's callbacks. It is evaluated once in
// each environment, with the codec that the guest also uses, tools.js and providers.js. It returns the functions that Rust calls.
(codec, toolsOfModel, providersOfNode) => {
  const { encode } = codec;
  const { hasOwn, getOwnPropertyDescriptor, getPrototypeOf } = Object;
  const { apply } = Reflect;
  const { isArray } = Array;
  const MARK = "$bytes";
  /** The maximum number of `Uint8Array`s in one value. The same limit is in src/limits.rs. */
  const MAX_BLOBS = 10_000;
  /** The maximum length of a text that describes a thrown value. */
  const MAX_TEXT = 16 * 1024;
  // Getters and methods of the prototypes, so that an object's own properties cannot replace them.
  const tagOf = getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get;
  const isAborted = getOwnPropertyDescriptor(AbortSignal.prototype, "aborted").get;
  const reasonOf = getOwnPropertyDescriptor(AbortSignal.prototype, "reason").get;
  const { addEventListener, removeEventListener } = EventTarget.prototype;
  /** The functions to call when each watched AbortSignal is aborted. */
  const watchers = new WeakMap();
  /** The addon's classes. */
  let classes = {};

  /** Describes a thrown value, which may be anything, even an object whose getters throw. This function never throws. */
  function said(thrown, field = "message") {
    try {
      return String(thrown?.[field] ?? thrown).slice(0, MAX_TEXT);
    } catch {
      return "the thrown value cannot be read: reading it throws";
    }
  }

  /** Encodes a value as [json, blobs]. Throws if the value cannot cross the VM boundary, or if its getters throw. */
  function crossing(value) {
    const [text, blobs] = encode(value);
    if (blobs.length > MAX_BLOBS) throw new RangeError(`it has ${blobs.length} Uint8Arrays, and at most ${MAX_BLOBS} are allowed`);
    for (const blob of blobs)
      if (apply(tagOf, blob, []) !== "Uint8Array") throw new TypeError("it has an object that is not a real Uint8Array");
    return [text, blobs];
  }

  /**
   * Decodes (json, blobs) like the codec's `decode`, but without a reviver call for each part and without recursion, because values may be large and
   * this runs on Node's main thread. The host has already checked values from a guest.
   */
  function decode(text, blobs) {
    const whole = [JSON.parse(text)];
    if (!text.includes(MARK)) return whole[0];
    const open = [whole];
    while (open.length > 0) {
      const holder = open.pop();
      const keys = isArray(holder) ? undefined : Object.keys(holder);
      const count = keys === undefined ? holder.length : keys.length;
      for (let index = 0; index < count; index++) {
        const key = keys === undefined ? index : keys[index];
        let value = holder[key];
        if (typeof value !== "object" || value === null) continue;
        if (!isArray(value) && hasOwn(value, MARK)) {
          const part = value[MARK];
          // The fields of an escaped object are decoded too, but the object itself is never a placeholder.
          value = isArray(part) ? Object.fromEntries(part) : typeof part === "number" ? blobs[part] : undefined;
          holder[key] = value;
          if (!isArray(part)) continue;
        }
        open.push(value);
      }
    }
    return whole[0];
  }

  /** The class of all errors of the package. `name` is on the prototype, so only `code` and other own fields are enumerable. */
  class HyperlightMcpError extends Error {
    constructor(code, message) {
      super(message);
      this.code = code;
    }
  }
  Object.defineProperty(HyperlightMcpError.prototype, "name", { value: "HyperlightMcpError", configurable: true, writable: true });

  const failure = (code, message) => new HyperlightMcpError(code, message);
  const invalid = (method, problem) => failure("ERR_INVALID_OPTION", `${method}: ${problem}`);

  function toError(described, trace, signal) {
    const { code, message, ...rest } = described;
    const error = Object.assign(failure(code ?? "ERR_INTERNAL", message), rest);
    if (code === "ERR_ABORTED") {
      error.name = "AbortError";
      if (signal !== undefined) error.cause = apply(reasonOf, signal, []);
    }
    // The error gets the stack of the call, not of the event-loop turn in which the answer arrived. A custom `prepareStackTrace` may return any type.
    if (typeof trace.stack === "string") {
      const [, ...lines] = trace.stack.split("\n");
      const stack = [`${error.name}: ${message}`, ...lines].join("\n");
      Object.defineProperty(error, "stack", { value: stack, configurable: true, writable: true });
    }
    return error;
  }

  /**
   * Awaits a native promise. That promise resolves with [json, …blobs], in which the JSON is { ok } or { error }, or with a class instance.
   */
  async function settle(native, trace, signal) {
    let reply;
    try {
      reply = await native;
    } catch (error) {
      throw toError({ code: codeOf(error), message: said(error) }, trace, signal);
    }
    if (!isArray(reply)) return reply;
    const [json, ...blobs] = reply;
    let outcome;
    try {
      outcome = decode(json, blobs);
    } catch (error) {
      throw toError({ code: "ERR_INTERNAL", message: `an answer of the addon cannot be read: ${said(error)}` }, trace, signal);
    }
    if ("error" in outcome) throw toError(outcome.error, trace, signal);
    // A method without a return value resolves with undefined.
    return outcome.ok ?? undefined;
  }

  /** Returns the code of a package error. Any other error of a native promise is a defect of the addon. */
  function codeOf(error) {
    const code = said(error, "code");
    return code.startsWith("ERR_") ? code : "ERR_INTERNAL";
  }

  function traceOf() {
    const trace = {};
    Error.captureStackTrace(trace, traceOf);
    return trace;
  }

  /** Separates options into plain data, callbacks, the signal and the input. Signal and input are not plain data. */
  function split(options, method) {
    const bare = () => Object.create(null);
    const parts = { data: bare(), callbacks: bare(), signal: undefined, input: undefined };
    if (options === undefined || options === null) return parts;
    if (typeof options !== "object" || isList(options, method)) throw invalid(method, "options must be an object");
    for (const [key, value] of entriesOf(options, method)) {
      if (value === undefined) continue;
      // JSON writes NaN and Infinity as null, and null would be read as a default.
      if (key !== "input" && (value === null || (typeof value === "number" && !Number.isFinite(value))))
        throw invalid(method, `${key}: must not be ${value}`);
      if (key === "signal") parts.signal = checkSignal(value, method);
      else if (key === "input") parts.input = value;
      else if (typeof value === "function") parts.callbacks[key] = value;
      else parts.data[key] = value;
    }
    return parts;
  }

  /** Returns whether a value is an array. Throws for a revoked Proxy, because this cannot be determined for it. */
  function isList(value, method) {
    try {
      return isArray(value);
    } catch (error) {
      throw invalid(method, said(error));
    }
  }

  /** Reads an object's entries. An error of its getters is reported as a problem of the object. */
  function entriesOf(object, method) {
    try {
      return Object.entries(object);
    } catch (error) {
      throw invalid(method, said(error));
    }
  }

  function checkSignal(value, method) {
    try {
      apply(isAborted, value, []);
      if (value instanceof AbortSignal) return value;
    } catch {
      // The value is not a real AbortSignal.
    }
    throw invalid(method, "signal must be an AbortSignal");
  }

  /** Refuses NaN and Infinity. JSON writes them as null, and null would be read as a default. */
  function finite(key, value) {
    if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${key}: must not be ${value}`);
    return value;
  }

  function json(value, method) {
    try {
      return JSON.stringify(value, finite);
    } catch (error) {
      throw invalid(method, said(error));
    }
  }

  /** Throws if the signal was aborted before the start. */
  function checkAborted(signal, what, trace, more) {
    if (signal !== undefined && apply(isAborted, signal, []))
      throw toError({ code: "ERR_ABORTED", message: `the ${what} was aborted`, ...more }, trace, signal);
  }

  /** Calls `stop` when the signal is aborted, or immediately if it was aborted before. Returns a function that stops watching. */
  function watch(signal, stop) {
    if (signal === undefined) return () => {};
    if (apply(isAborted, signal, [])) {
      stop();
      return () => {};
    }
    const watching = watchers.get(signal) ?? listen(signal);
    watching.stops.add(stop);
    return () => {
      watching.stops.delete(stop);
      if (watching.stops.size > 0 || watchers.get(signal) !== watching) return;
      watchers.delete(signal);
      apply(removeEventListener, signal, ["abort", watching.listener]);
    };
  }

  /** Adds one listener for all operations of a signal, because Node warns about a leak if a signal has more than ten listeners. */
  function listen(signal) {
    const watching = {
      stops: new Set(),
      listener() {
        watchers.delete(signal);
        for (const stop of watching.stops) stop();
      },
    };
    watchers.set(signal, watching);
    apply(addEventListener, signal, ["abort", watching.listener, { once: true }]);
    return watching;
  }

  /** Wraps onEvent. An exception or a rejected promise of the listener becomes a process warning and does not end the process. */
  function sink(onEvent, name = "onEvent") {
    if (onEvent === undefined) return undefined;
    const warn = (thrown) => process.emitWarning(`${name} threw: ${said(thrown, "stack")}`, "HyperlightMcpWarning");
    return (events) => {
      for (const event of events) (async () => onEvent(JSON.parse(event)))().catch(warn);
    };
  }

  /** Returns the callbacks that answer questions: all callbacks except `onEvent`. Returns undefined if there are none. */
  function asked({ onEvent, ...others }) {
    return Object.keys(others).length > 0 ? others : undefined;
  }

  return {
    error: failure,

    parse: (text) => JSON.parse(text),

    path: (url) => decodeURIComponent(new URL(url).pathname),

    /** Runs a method whose arguments are plain data. `start(json)` returns a native promise. */
    async method(start, name, args) {
      return settle(start(json(args, name)), traceOf(), undefined);
    },

    /** Runs a factory. `start(data, callbackNames, sink, asked)` returns a native promise. */
    async open(start, name, options) {
      const trace = traceOf();
      const { data, callbacks, signal, input } = split(options, name);
      if (signal !== undefined) data.signal = true;
      if (input !== undefined) data.input = true;
      return settle(
        start(json(data, name), json(Object.keys(callbacks), name), sink(callbacks.onEvent), asked(callbacks)),
        trace,
        undefined,
      );
    },

    /** Runs code. `start(code, data, callbackNames, sink, asked, inputJson, inputBlobs)` returns [native promise, stop]. */
    async run(start, name, code, options) {
      const trace = traceOf();
      if (typeof code !== "string") throw invalid(name, "code must be a string");
      const { data, callbacks, signal, input } = split(options, name);
      let encoded;
      try {
        encoded = crossing(input ?? null);
      } catch (error) {
        throw failure("ERR_INVALID_VALUE", `the input cannot enter the sandbox: ${said(error)}`);
      }
      if (encoded[0] === undefined) throw failure("ERR_INVALID_VALUE", `the input cannot enter the sandbox: it is a ${typeof input}`);
      checkAborted(signal, "run", trace, { logs: [], warnings: [] });
      const [native, stop] = start(
        code,
        json(data, name),
        json(Object.keys(callbacks), name),
        sink(callbacks.onEvent),
        asked(callbacks),
        ...encoded,
      );
      const release = watch(signal, stop);
      try {
        return await settle(native, trace, signal);
      } finally {
        release();
      }
    },

    /** Makes tools from a prompt. `start(data, callbackNames, sink, functions)` returns [native promise, stop]. */
    async boot(start, name, options) {
      const trace = traceOf();
      const { data, callbacks, signal, input } = split(options, name);
      if (input !== undefined) data.input = true;
      const { generate, onProgress } = callbacks;
      const given = [json(data, name), json(Object.keys(callbacks), name), sink(onProgress, "onProgress")];
      checkAborted(signal, "boot", trace, {});
      // When the promise is settled for any reason, the requests that have no answer yet are aborted.
      const ended = new AbortController();
      const model = {
        async generate(request) {
          try {
            const text = await generate({ ...request, signal: ended.signal });
            if (typeof text !== "string") throw new TypeError(`generate must return the model's text, not ${typeof text}`);
            return text;
          } catch (thrown) {
            if (isRefusal(thrown)) return { refused: said(thrown) };
            throw thrown;
          }
        },
      };
      const [native, stop] = start(...given, model);
      const release = watch(signal, stop);
      try {
        return await settle(native, trace, signal);
      } finally {
        release();
        ended.abort();
      }
    },

    /** Calls a tool. `start(names, argsJson, argsBlobs, data, callbackNames, asked, sink)` returns [native promise, stop]. */
    async callTool(start, name, ...given) {
      const trace = traceOf();
      const { names, args, options } = calledTool(name, given);
      const { data, callbacks, signal, input } = split(options, name);
      if (input !== undefined) data.input = true;
      const parameters = [
        json(names, name),
        ...toolArguments(args, names),
        json(data, name),
        json(Object.keys(callbacks), name),
        asked(callbacks),
        sink(callbacks.onEvent),
      ];
      checkAborted(signal, "call", trace, {});
      const [native, stop] = start(...parameters);
      const release = watch(signal, stop);
      try {
        return await settle(native, trace, signal);
      } finally {
        release();
      }
    },

    /** Puts the agent's functions behind one dispatcher. `reply(id, json, blobs)` returns an answer to Rust; every call gets one. */
    hostModule(functions, reply, info) {
      const name = "Sandbox.hostModule";
      if (typeof functions !== "object" || functions === null) throw invalid(name, "functions must be an object of functions");
      const known = new Map(entriesOf(functions, name));
      for (const [key, value] of known) if (typeof value !== "function") throw invalid(name, `${key} must be a function`);
      const failed = (thrown) => encode({ error: { message: said(thrown) } });
      async function answerOf(key, text, blobs) {
        try {
          const value = await known.get(key)(...decode(text, blobs));
          return crossing({ ok: value ?? null });
        } catch (thrown) {
          return failed(thrown);
        }
      }
      // The dispatcher never rejects. No code awaits it, and Node would exit on an unhandled rejection.
      async function dispatch([id, key, text, ...blobs]) {
        // There is no call to start: the run of the call has already ended, or the time of this turn is used up.
        if (id === undefined) return;
        const answer = await answerOf(key, text, blobs);
        try {
          reply(id, ...answer);
        } catch (thrown) {
          try {
            reply(id, ...failed(thrown));
          } catch {
            // The environment is ending, and nobody waits for the answer any more.
          }
        }
      }
      if (typeof (info ?? {}) !== "object") throw invalid(name, "info must be an object");
      return [dispatch, json(info ?? {}, name), ...known.keys()];
    },

    ...toolsOfModel({
      asked,
      checkAborted,
      classOf: (name) => classes[name],
      crossing,
      entriesOf,
      failure,
      invalid,
      json,
      said,
      settle,
      sink,
      split,
      traceOf,
      watch,
    }),

    ...providersOfNode({ entriesOf, invalid, json, settle, traceOf }),

    /** Exports the error class, and adds `Symbol.asyncDispose` to the other classes for `await using`. */
    install(exports) {
      classes = exports;
      exports.HyperlightMcpError = HyperlightMcpError;
      for (const name of ["Gateway", "Agent", "Sandbox", "ServedGateway"]) {
        const close = {
          configurable: true,
          writable: true,
          value() {
            return this.close();
          },
        };
        if (Symbol.asyncDispose !== undefined) Object.defineProperty(exports[name].prototype, Symbol.asyncDispose, close);
      }
    },
  };

  /** Returns whether a model has refused to answer. Such an error has `refused: true`. */
  function isRefusal(thrown) {
    try {
      return thrown?.refused === true;
    } catch {
      return false;
    }
  }

  /** Distinguishes the two forms of a call: `callTool(server, tool, args, options)` and `callTool(name, args, options)`. */
  function calledTool(method, [first, second, third, fourth]) {
    const hasOneName = method.endsWith(".callTool") && typeof first === "string" && (second == null || typeof second === "object");
    if (hasOneName) return { names: [first], args: second, options: third };
    return { names: [first, second], args: third, options: fourth };
  }

  /** Encodes a tool's arguments as [json, blobs]. */
  function toolArguments(args, names) {
    const what = names.map((name) => said(name)).join(".");
    const invalidArguments = (problem) =>
      failure("ERR_INVALID_ARGUMENTS", `the arguments of ${what} must be one object of plain data: ${problem}`);
    let encoded;
    try {
      encoded = crossing(args ?? {});
    } catch (error) {
      throw invalidArguments(said(error));
    }
    if (encoded[0] === undefined) throw invalidArguments(`not a ${typeof args}`);
    return encoded;
  }
};
