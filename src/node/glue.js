// What only JavaScript can do well, in one place: values in and out, promises, AbortSignal, the user's callbacks.
// Evaluated once in each environment with the codec that the guest uses as well. Returns the functions that Rust calls.
(codec) => {
  const { encode, decode } = codec;
  /** The addon's classes. */
  let classes = {};

  function failure(code, message) {
    const error = new Error(message);
    error.code = code;
    return error;
  }
  const invalid = (method, problem) => failure("ERR_INVALID_OPTION", `${method}: ${problem}`);

  function toError(described, trace, signal) {
    const { code, message, ...rest } = described;
    const error = Object.assign(new Error(message), { code }, rest);
    if (code === "ERR_ABORTED") {
      error.name = "AbortError";
      if (signal !== undefined) error.cause = signal.reason;
    }
    // The stack of the call, not of the event loop's turn in which the answer came.
    const stack = `${error.name}: ${message}${trace.stack.slice(trace.stack.indexOf("\n"))}`;
    Object.defineProperty(error, "stack", { value: stack, configurable: true, writable: true });
    return error;
  }

  /** A native promise gives [json, …blobs], the JSON being { ok } or { error }; or an instance of a class. */
  async function settle(native, trace, signal) {
    const reply = await native;
    if (!Array.isArray(reply)) return reply;
    const [json, ...blobs] = reply;
    const outcome = decode(json, blobs);
    if ("error" in outcome) throw toError(outcome.error, trace, signal);
    // What has no value to give resolves with undefined.
    return outcome.ok ?? undefined;
  }

  function traceOf() {
    const trace = {};
    Error.captureStackTrace(trace, traceOf);
    return trace;
  }

  /** Options apart: plain data as JSON, functions, and what must not be turned into JSON. */
  function split(options, method) {
    const parts = { data: {}, callbacks: {}, signal: undefined, input: undefined };
    if (options === undefined || options === null) return parts;
    if (typeof options !== "object" || Array.isArray(options)) throw invalid(method, "options must be an object");
    for (const [key, value] of Object.entries(options)) {
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

  function checkSignal(value, method) {
    if (!(value instanceof AbortSignal)) throw invalid(method, "signal must be an AbortSignal");
    return value;
  }

  function json(value, method) {
    try {
      return JSON.stringify(value);
    } catch (error) {
      throw invalid(method, error.message);
    }
  }

  /** What is aborted already is not even started. */
  function checkAborted(signal, what, trace, more) {
    if (signal?.aborted) throw toError({ code: "ERR_ABORTED", message: `the ${what} was aborted`, ...more }, trace, signal);
  }

  /** Calls `stop` when the signal is aborted, or at once if it was. Returns how to stop watching. */
  function watch(signal, stop) {
    if (signal === undefined) return () => {};
    if (signal.aborted) {
      stop();
      return () => {};
    }
    signal.addEventListener("abort", stop, { once: true });
    return () => signal.removeEventListener("abort", stop);
  }

  /** A listener's exception must not end the process, nor vanish. */
  function sink(onEvent) {
    if (onEvent === undefined) return undefined;
    return (events) => {
      for (const event of events) {
        try {
          onEvent(JSON.parse(event));
        } catch (error) {
          process.emitWarning(`onEvent threw: ${error?.stack ?? error}`, "HyperlightMcpWarning");
        }
      }
    };
  }

  /** The callbacks that are asked something, apart from the one that is told. */
  function asked({ onEvent, ...others }) {
    return Object.keys(others).length > 0 ? others : undefined;
  }

  return {
    error: failure,

    decode: (text) => decode(text, []),

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

    /** `start(code, data, callbackNames, sink, asked, inputJson, …inputBlobs)` gives [native promise, stop]. */
    async run(start, name, code, options) {
      const trace = traceOf();
      if (typeof code !== "string") throw invalid(name, "code must be a string");
      const { data, callbacks, signal, input } = split(options, name);
      let encoded;
      try {
        encoded = encode(input ?? null);
      } catch (error) {
        throw failure("ERR_INVALID_VALUE", `the input cannot enter the sandbox: ${error.message}`);
      }
      if (encoded[0] === undefined) throw failure("ERR_INVALID_VALUE", `the input cannot enter the sandbox: it is a ${typeof input}`);
      checkAborted(signal, "run", trace, { logs: [], warnings: [] });
      const [native, stop] = start(
        code,
        json(data, name),
        json(Object.keys(callbacks), name),
        sink(callbacks.onEvent),
        asked(callbacks),
        encoded[0],
        ...encoded[1],
      );
      const release = watch(signal, stop);
      try {
        return await settle(native, trace, signal);
      } finally {
        release();
      }
    },

    /** `start(names, args, data, callbackNames, asked, sink)` gives [native promise, stop]. */
    async callTool(start, name, server, tool, args, options) {
      const trace = traceOf();
      const { data, callbacks, signal, input } = split(options, name);
      if (input !== undefined) data.input = true;
      const parameters = [
        json([server, tool], name),
        toolArguments(args, server, tool),
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

    /** The agent's functions behind one dispatcher. `reply(id, json, …blobs)` hands an answer back. */
    hostModule(functions, reply, info) {
      const name = "Sandbox.hostModule";
      if (typeof functions !== "object" || functions === null) throw invalid(name, "functions must be an object of functions");
      const known = new Map(Object.entries(functions));
      for (const [key, value] of known) if (typeof value !== "function") throw invalid(name, `${key} must be a function`);
      async function dispatch([id, key, text, ...blobs]) {
        let answer;
        try {
          const value = await known.get(key)(...decode(text, blobs));
          answer = encode({ ok: value ?? null });
        } catch (error) {
          answer = encode({ error: { message: String(error?.message ?? error) } });
        }
        reply(id, answer[0], ...answer[1]);
      }
      if (typeof (info ?? {}) !== "object") throw invalid(name, "info must be an object");
      return [dispatch, json(info ?? {}, name), ...known.keys()];
    },

    /** `make(data, sandbox?)` gives { definitions, execute }. */
    agentTools(make, name, options) {
      const { definitions, execute } = make(...toolOptions(options, name));
      return toolsOf(definitions, execute);
    },

    /** `make(data, sandbox?)` gives the functions that a plugin is made of. */
    plugin(make, name, gateway, options) {
      const native = make(...toolOptions(options, name));
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

    /** `await using` for the classes. */
    install(exports) {
      classes = exports;
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

  /** Options of the tools of a model: plain data as JSON, and the sandbox apart. */
  function toolOptions(options, method) {
    if (typeof (options ?? {}) !== "object") throw invalid(method, "options must be an object");
    const { sandbox, ...others } = options ?? {};
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

  /** What a model passed, as JSON. What JSON cannot carry is a text that says so: it is answered as any other wrong argument. */
  function modelArguments(args) {
    try {
      return JSON.stringify(args) ?? (args === undefined ? "null" : JSON.stringify(`(${typeof args})`));
    } catch (error) {
      return JSON.stringify(`(${error.message})`);
    }
  }

  /** A function for another sandbox: what a guest would get, or what it would throw. */
  async function callFunction(call, what, tool, errors, args) {
    const trace = traceOf();
    let encoded;
    try {
      encoded = encode(args);
    } catch (error) {
      const message = `the arguments of ${what} are not valid: expected what JSON can carry: ${error.message}`;
      if (errors === "throw") throw failure("ERR_INVALID_ARGUMENTS", message);
      return { error: message, code: "ERR_INVALID_ARGUMENTS" };
    }
    const { value } = await settle(call(tool, encoded[0], ...encoded[1]), trace, undefined);
    return value;
  }

  /** A tool's arguments as JSON, with base64 text for bytes: what an MCP server can read. */
  function toolArguments(args, server, tool) {
    const invalidArguments = (problem) =>
      failure("ERR_INVALID_ARGUMENTS", `the arguments of ${server}.${tool} must be one object of plain data: ${problem}`);
    let encoded;
    try {
      encoded = encode(args ?? {});
    } catch (error) {
      throw invalidArguments(error.message);
    }
    const [text, blobs] = encoded;
    if (text === undefined) throw invalidArguments(`not a ${typeof args}`);
    return text.includes("$bytes") ? JSON.stringify(JSON.parse(text, base64(blobs))) : text;
  }

  /** A reviver that puts base64 text where the placeholders are: what an MCP server can read. */
  function base64(blobs) {
    return (_key, value) => {
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, "$bytes")) return value;
      if (Array.isArray(value.$bytes)) return Object.fromEntries(value.$bytes);
      return Buffer.from(blobs[value.$bytes]).toString("base64");
    };
  }
};
