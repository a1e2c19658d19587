// Work that only JavaScript can do well, in one place: values in and out, promises, AbortSignal, the user's callbacks.
// Evaluated once in each environment with the codec that the guest uses as well. Returns the functions that Rust calls.
(codec) => {
  const { encode } = codec;
  const { hasOwn, getOwnPropertyDescriptor, getPrototypeOf } = Object;
  const { apply } = Reflect;
  const { isArray } = Array;
  const MARK = "$bytes";
  /** The same number stands in src/limits.rs. */
  const MAX_BLOBS = 10_000;
  /** The length of a text about something thrown. */
  const MAX_TEXT = 16 * 1024;
  // Taken from where nobody's own properties stand in their way.
  const tagOf = getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get;
  const isAborted = getOwnPropertyDescriptor(AbortSignal.prototype, "aborted").get;
  const reasonOf = getOwnPropertyDescriptor(AbortSignal.prototype, "reason").get;
  const { addEventListener, removeEventListener } = EventTarget.prototype;
  /** What is stopped by each AbortSignal that is listened to. */
  const watchers = new WeakMap();
  /** The addon's classes. */
  let classes = {};

  /** Describes something thrown. It may be anything, with getters and traps of its own: this never throws. */
  function said(thrown, field = "message") {
    try {
      return String(thrown?.[field] ?? thrown).slice(0, MAX_TEXT);
    } catch {
      return "what was thrown throws while it is read";
    }
  }

  /** Value → [json, blobs], both fit to cross. Throws where they are not, and whatever the value's own getters throw. */
  function crossing(value) {
    const [text, blobs] = encode(value);
    if (blobs.length > MAX_BLOBS) throw new RangeError(`it has ${blobs.length} Uint8Arrays, and at most ${MAX_BLOBS} cross together`);
    for (const blob of blobs)
      if (apply(tagOf, blob, []) !== "Uint8Array") throw new TypeError("it has an object that only looks like a Uint8Array");
    return [text, blobs];
  }

  /**
   * (json, blobs) → value, as the codec's own `decode`; without a call for each part, as a reviver would be, and without recursion: what
   * crosses may be large, and this is Node's main thread. What a guest handed over was checked by the host.
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
          // Its own fields are looked into; it is never a placeholder itself.
          value = isArray(part) ? Object.fromEntries(part) : typeof part === "number" ? blobs[part] : undefined;
          holder[key] = value;
          if (!isArray(part)) continue;
        }
        open.push(value);
      }
    }
    return whole[0];
  }

  /** The class of every error of the package. Enumerable fields only, as of any object: `name` is its prototype's. */
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
    // The stack of the call, not of the event loop's turn in which the answer came. Whoever prepares stacks may have made anything of it.
    if (typeof trace.stack === "string") {
      const [, ...lines] = trace.stack.split("\n");
      const stack = [`${error.name}: ${message}`, ...lines].join("\n");
      Object.defineProperty(error, "stack", { value: stack, configurable: true, writable: true });
    }
    return error;
  }

  /** A native promise gives [json, …blobs], the JSON being { ok } or { error }; or an instance of a class. */
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
      throw toError({ code: "ERR_INTERNAL", message: `an answer cannot be read: ${said(error)}` }, trace, signal);
    }
    if ("error" in outcome) throw toError(outcome.error, trace, signal);
    // A method without a value resolves with undefined.
    return outcome.ok ?? undefined;
  }

  /** The code of an error of ours; all else that a native promise rejects with is a defect. */
  function codeOf(error) {
    const code = said(error, "code");
    return code.startsWith("ERR_") ? code : "ERR_INTERNAL";
  }

  function traceOf() {
    const trace = {};
    Error.captureStackTrace(trace, traceOf);
    return trace;
  }

  /** Options apart: plain data as JSON, functions, and what must not be turned into JSON. */
  function split(options, method) {
    const bare = () => Object.create(null);
    const parts = { data: bare(), callbacks: bare(), signal: undefined, input: undefined };
    if (options === undefined || options === null) return parts;
    if (typeof options !== "object" || isArray(options)) throw invalid(method, "options must be an object");
    for (const [key, value] of entriesOf(options, method)) {
      if (value === undefined) continue;
      // JSON would make null of these, and null would be taken for a default.
      if (key !== "input" && (value === null || (typeof value === "number" && !Number.isFinite(value))))
        throw invalid(method, `${key}: must not be ${value}`);
      if (key === "signal") parts.signal = checkSignal(value, method);
      else if (key === "input") parts.input = value;
      else if (typeof value === "function") parts.callbacks[key] = value;
      else parts.data[key] = value;
    }
    return parts;
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
      // It only looks like one.
    }
    throw invalid(method, "signal must be an AbortSignal");
  }

  function json(value, method) {
    try {
      return JSON.stringify(value);
    } catch (error) {
      throw invalid(method, said(error));
    }
  }

  /** Throws if the signal was aborted before the start. */
  function checkAborted(signal, what, trace, more) {
    if (signal !== undefined && apply(isAborted, signal, []))
      throw toError({ code: "ERR_ABORTED", message: `the ${what} was aborted`, ...more }, trace, signal);
  }

  /** Calls `stop` when the signal is aborted, or at once if it was. Returns how to stop watching. */
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

  /** One listener for all that is pending under a signal: Node warns of a leak from the eleventh on. */
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

  /** A listener's exception must not end the process, nor vanish: whether it is thrown, or the rejection of the promise that it gave. */
  function sink(onEvent) {
    if (onEvent === undefined) return undefined;
    const warn = (thrown) => process.emitWarning(`onEvent threw: ${said(thrown, "stack")}`, "HyperlightMcpWarning");
    return (events) => {
      for (const event of events) (async () => onEvent(JSON.parse(event)))().catch(warn);
    };
  }

  /** The callbacks that are asked something, apart from the one that is told. */
  function asked({ onEvent, ...others }) {
    return Object.keys(others).length > 0 ? others : undefined;
  }

  return {
    error: failure,

    parse: (text) => JSON.parse(text),

    path: (url) => decodeURIComponent(new URL(url).pathname),

    /** A method whose arguments are plain data. `start(json)` gives a native promise. */
    async method(start, name, args) {
      return settle(start(json(args, name)), traceOf(), undefined);
    },

    /** A factory: `start(data, callbackNames, sink, asked)` gives a native promise. */
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

    /** `start(code, data, callbackNames, sink, asked, inputJson, inputBlobs)` gives [native promise, stop]. */
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

    /** `start(names, argsJson, argsBlobs, data, callbackNames, asked, sink)` gives [native promise, stop]. */
    async callTool(start, name, server, tool, args, options) {
      const trace = traceOf();
      const { data, callbacks, signal, input } = split(options, name);
      if (input !== undefined) data.input = true;
      const parameters = [
        json([server, tool], name),
        ...toolArguments(args, server, tool),
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

    /** The agent's functions behind one dispatcher. `reply(id, json, blobs)` hands an answer back: every call gets one. */
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
      // It never rejects: nobody waits for it, and Node would end for that.
      async function dispatch([id, key, text, ...blobs]) {
        // The run has ended before its call was begun, or the turn has taken its time.
        if (id === undefined) return;
        const answer = await answerOf(key, text, blobs);
        try {
          reply(id, ...answer);
        } catch (thrown) {
          try {
            reply(id, ...failed(thrown));
          } catch {
            // The environment ends, and with it whoever waits.
          }
        }
      }
      if (typeof (info ?? {}) !== "object") throw invalid(name, "info must be an object");
      return [dispatch, json(info ?? {}, name), ...known.keys()];
    },

    /** `make(data, sandbox?)` gives { definitions, execute }. */
    agentTools(make, name, options) {
      const parts = toolOptions(options, name);
      const { definitions, execute } = made(name, () => make(...parts));
      return toolsOf(definitions, execute);
    },

    /** `make(data, sandbox?)` gives the functions that a plugin is made of. */
    plugin(make, name, gateway, options) {
      const parts = toolOptions(options, name);
      const native = made(name, () => make(...parts));
      const isEnabled = () => native.isEnabled() === "true";
      const switched = (native) => settle(native, traceOf(), undefined);
      const { name: label, version, description, commands } = JSON.parse(native.manifest());
      /** Typed by a person: it resolves, whatever was typed. */
      async function execute(line, options) {
        if (isEnabled()) return gateway.command(line, options);
        const text = "the plugin is off: switch it on with its enable()";
        return { ok: false, data: { error: { code: "ERR_PLUGIN_OFF", message: text } }, text };
      }
      return Object.freeze({
        name: label,
        version,
        description,
        get enabled() {
          return isEnabled();
        },
        get approved() {
          return native.isApproved() === "true";
        },
        manifest: () => JSON.parse(native.manifest()),
        approve(digest) {
          if (typeof digest !== "string") throw invalid("Plugin.approve", "digest must be a string");
          native.approve(digest);
        },
        enable: () => switched(native.enable()),
        disable: () => switched(native.disable()),
        tools: () => (isEnabled() ? toolsOf(native.definitions(), native.execute) : []),
        commands: () => (isEnabled() ? commands.map(({ name, description }) => ({ name, description, execute })) : []),
        modules: () => JSON.parse(native.modules()),
      });
    },

    /** `make(server, config)` gives { functions, call }. */
    registration(make, name, server) {
      if (typeof server !== "string") throw invalid(name, "argument 1: must be a string");
      make(server, "{}");
      const module = `mcp-${server}`;
      return {
        name: module,
        declaredModules: [module],
        config: {},
        createHostFunctions(config) {
          const data = split(config, "createHostFunctions").data;
          const { functions, call } = make(server, json(data, "createHostFunctions"));
          const entries = JSON.parse(functions).map(([identifier, tool]) => [
            identifier,
            (...args) => callFunction(call, `${server}.${tool}`, tool, data.toolErrors, args),
          ]);
          return { [module]: Object.fromEntries(entries) };
        },
      };
    },

    /** Exports the class of the errors, and has `await using` take the other classes. */
    install(exports) {
      classes = exports;
      exports.HyperlightMcpError = HyperlightMcpError;
      for (const name of ["Gateway", "Sandbox"]) {
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

  /** Calls a native constructor: it alone finds an object that only looks like one of ours. */
  function made(method, make) {
    try {
      return make();
    } catch (error) {
      throw String(error?.code).startsWith("ERR_") ? error : invalid(method, said(error));
    }
  }

  /** Options of the tools of a model: plain data as JSON, and the sandbox apart. */
  function toolOptions(options, method) {
    if (typeof (options ?? {}) !== "object") throw invalid(method, "options must be an object");
    const { sandbox, ...others } = Object.fromEntries(entriesOf(options ?? {}, method));
    if (sandbox !== undefined && !(sandbox instanceof classes.Sandbox)) throw invalid(method, "sandbox: must be a Sandbox");
    const { data, callbacks, signal, input } = split(others, method);
    for (const key of Object.keys(callbacks)) throw invalid(method, `${key}: unknown option, or a function where a value belongs`);
    if (signal !== undefined) data.signal = true;
    if (input !== undefined) data.input = true;
    return [json(data, method), sandbox];
  }

  /** Tools that execute by `start(name, args)`, which gives [native promise, stop]. */
  function toolsOf(definitions, start) {
    return JSON.parse(definitions).map(({ name, description, inputSchema }) => ({
      name,
      description,
      inputSchema,
      async execute(args, options) {
        const trace = traceOf();
        const { signal } = split(options, `${name}.execute`);
        checkAborted(signal, "tool call", trace, {});
        const [native, stop] = start(name, modelArguments(args));
        const release = watch(signal, stop);
        try {
          return await settle(native, trace, signal);
        } finally {
          release();
        }
      },
    }));
  }

  /** Writes a model's arguments as JSON. A value that JSON cannot carry becomes a text that says so: it is answered as any other wrong argument. */
  function modelArguments(args) {
    try {
      return JSON.stringify(args) ?? (args === undefined ? "null" : JSON.stringify(`(${typeof args})`));
    } catch (error) {
      return JSON.stringify(`(${said(error)})`);
    }
  }

  /** A function for another sandbox: what a guest would get, or what it would throw. */
  async function callFunction(call, what, tool, errors, args) {
    const trace = traceOf();
    let encoded;
    try {
      encoded = crossing(args);
    } catch (error) {
      const message = `the arguments of ${what} are not valid: expected what JSON can carry: ${said(error)}`;
      if (errors === "throw") throw failure("ERR_INVALID_ARGUMENTS", message);
      return { error: message, code: "ERR_INVALID_ARGUMENTS" };
    }
    const { value } = await settle(call(tool, ...encoded), trace, undefined);
    return value;
  }

  /** A tool's arguments: [json, blobs]. */
  function toolArguments(args, server, tool) {
    const invalidArguments = (problem) =>
      failure("ERR_INVALID_ARGUMENTS", `the arguments of ${said(server)}.${said(tool)} must be one object of plain data: ${problem}`);
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
