// The part of the glue code for providers: it calls the functions of registered providers.
// It is evaluated together with glue.js, which passes its functions to this part.
({ entriesOf, invalid, json, settle, traceOf }) => {
  /** The maximum length of an answer, in characters. src/registry/providers/definitions.rs applies the same limit again, in bytes. */
  const MAX_ANSWER = 256 * 1024;

  return {
    /** Returns whether this program is a single executable application of Node, which runs its own code whatever its arguments are. */
    isSingleExecutable: () => process.getBuiltinModule?.("node:sea")?.isSea() === true,

    /** Registers a provider. `start(name, functions)` returns a native promise. */
    async registerProvider(start, name, provider) {
      const method = "Gateway.registerProvider";
      const trace = traceOf();
      if (typeof provider !== "object" || provider === null) throw invalid(method, "provider must be an object with a function servers()");
      for (const [key] of entriesOf(provider, method))
        if (key !== "servers") throw invalid(method, `${key}: unknown key; a provider has a function servers()`);
      if (typeof provider.servers !== "function") throw invalid(method, "servers must be a function");
      const functions = {
        async servers() {
          const text = JSON.stringify(await provider.servers());
          if (typeof text !== "string") throw new Error("its answer is not a list of definitions");
          if (text.length > MAX_ANSWER) throw new Error(`its answer has more than ${MAX_ANSWER} bytes of JSON`);
          return text;
        },
      };
      return settle(start(json([name], method), functions), trace, undefined);
    },
  };
};
