// The part of the glue code for agents, tools for a model, plugins and registrations. It is evaluated together with glue.js, which passes
// its functions to this part.
({ asked, checkAborted, classOf, crossing, entriesOf, failure, invalid, json, said, settle, sink, split, traceOf, watch }) => {
  /** Calls a native constructor. Only the constructor can detect an object that looks like one of the addon's classes but is none. */
  function made(method, make) {
    try {
      return make();
    } catch (error) {
      throw String(error?.code).startsWith("ERR_") ? error : invalid(method, said(error));
    }
  }

  /** Reads the options of a model's tools: plain data as JSON, and the sandbox separately. */
  function toolOptions(options, method) {
    if (typeof (options ?? {}) !== "object") throw invalid(method, "options must be an object");
    const { sandbox, ...others } = Object.fromEntries(entriesOf(options ?? {}, method));
    if (sandbox !== undefined && !(sandbox instanceof classOf("Sandbox"))) throw invalid(method, "sandbox: must be a Sandbox");
    const { data, callbacks, signal, input } = split(others, method);
    for (const key of Object.keys(callbacks)) throw invalid(method, `${key} is a function, but no option of this name takes a function`);
    if (signal !== undefined) data.signal = true;
    if (input !== undefined) data.input = true;
    return [json(data, method), sandbox];
  }

  /** Returns the callbacks in the form that Rust expects: `callbackNames, sink, asked`. */
  function listening(callbacks, method) {
    return [json(Object.keys(callbacks), method), sink(callbacks.onEvent), asked(callbacks)];
  }

  /** Makes the tools. Each tool executes with `start(name, args, callbackNames, sink, asked)`, which returns [native promise, stop]. */
  function toolsOf(definitions, start) {
    return JSON.parse(definitions).map(({ name, description, inputSchema }) => ({
      name,
      description,
      inputSchema,
      async execute(args, options) {
        const trace = traceOf();
        const { signal, callbacks } = split(options, `${name}.execute`);
        checkAborted(signal, "tool call", trace, {});
        const [native, stop] = start(name, modelArguments(args), ...listening(callbacks, name));
        const release = watch(signal, stop);
        try {
          return withContent(await settle(native, trace, signal));
        } finally {
          release();
        }
      },
    }));
  }

  /**
   * Makes the images and sounds of an answer a property that is not enumerable. The JSON of the answer then does not send them to a model
   * as text, which would cost a large number of tokens.
   */
  function withContent(answer) {
    if (!Array.isArray(answer?.content)) return answer;
    const { content, ...rest } = answer;
    return Object.defineProperty(rest, "content", { value: content });
  }

  /**
   * Writes a model's arguments as JSON. A value that JSON cannot represent becomes a string. This string is then reported as a wrong
   * argument.
   */
  function modelArguments(args) {
    try {
      return JSON.stringify(args) ?? (args === undefined ? "null" : JSON.stringify(`(${typeof args})`));
    } catch (error) {
      return JSON.stringify(`(${said(error)})`);
    }
  }

  /** Calls a function for an agent with its own sandbox. Returns the value that a guest would get, or throws the error that it would get. */
  async function callFunction(call, what, tool, errors, general, given) {
    const trace = traceOf();
    const failed = (code, message) => {
      if (errors === "throw") throw failure(code, message);
      return { error: message, code };
    };
    // A second argument that is an object contains the options of the call. Any other number or type of arguments is refused together with
    // the arguments.
    const hasOptions = given.length === 2 && (given[1] === undefined || typeof given[1] === "object");
    const args = hasOptions ? given.slice(0, 1) : given;
    let options;
    try {
      options = split(hasOptions ? given[1] : undefined, what);
    } catch (error) {
      return failed(error.code, error.message);
    }
    const { data, signal, input } = options;
    if (input !== undefined) data.input = true;
    const callbacks = { ...general, ...options.callbacks };
    let encoded;
    try {
      encoded = crossing(args);
    } catch (error) {
      return failed("ERR_INVALID_ARGUMENTS", `the arguments of ${what} are not valid: expected values that JSON can hold: ${said(error)}`);
    }
    checkAborted(signal, "call", trace, {});
    const [native, stop] = call(tool, ...encoded, json(data, what), ...listening(callbacks, what));
    const release = watch(signal, stop);
    try {
      return (await settle(native, trace, signal)).value;
    } finally {
      release();
    }
  }

  return {
    /** Makes an agent. `make(label, data, callbackNames, sink, asked)` returns it. */
    agent(make, name, label, options) {
      if (typeof label !== "string") throw invalid(name, "name must be a string");
      const { data, callbacks, signal, input } = split(options, name);
      if (signal !== undefined) data.signal = true;
      if (input !== undefined) data.input = true;
      return made(name, () => make(label, json(data, name), ...listening(callbacks, name)));
    },

    /** Makes the tools for a model. `make(data, sandbox?)` returns { definitions, execute }. */
    agentTools(make, name, options) {
      const parts = toolOptions(options, name);
      const { definitions, execute } = made(name, () => make(...parts));
      return toolsOf(definitions, execute);
    },

    /** Makes a plugin. `make(data, sandbox?)` returns its native functions. */
    plugin(make, name, gateway, options) {
      const parts = toolOptions(options, name);
      const native = made(name, () => make(...parts));
      const isEnabled = () => native.isEnabled() === "true";
      const switched = (native) => settle(native, traceOf(), undefined);
      const { name: label, version, description, commands } = JSON.parse(native.manifest());
      /** Executes a line that a person typed. The promise resolves even if the line has an error. */
      async function execute(line, options) {
        if (isEnabled()) return gateway.command(line, options);
        const text = "the plugin is off. Switch it on with its enable()";
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

    /** Makes a plugin registration. `make(server, config, callbackNames)` returns { functions, call }. */
    registration(make, name, server) {
      if (typeof server !== "string") throw invalid(name, "argument 1: must be a string");
      make(server, "{}", "[]");
      const module = `mcp-${server}`;
      return {
        name: module,
        declaredModules: [module],
        config: {},
        createHostFunctions(config) {
          const of = "createHostFunctions";
          const { data, callbacks } = split(config, of);
          const { functions, call } = make(server, json(data, of), json(Object.keys(callbacks), of));
          const entries = JSON.parse(functions).map(([identifier, tool]) => [
            identifier,
            (...args) => callFunction(call, `${server}.${tool}`, tool, data.toolErrors, callbacks, args),
          ]);
          return { [module]: Object.fromEntries(entries) };
        },
      };
    },
  };
};
