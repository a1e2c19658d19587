// The part of the glue code for providers: it runs the code of packages in worker threads, and calls the functions of registered providers.
// It is evaluated together with glue.js, which passes its functions to this part.
({ entriesOf, invalid, json, settle, traceOf }) => {
  // Tests and programs may replace these functions later.
  const { setTimeout, clearTimeout, setInterval, clearInterval } = globalThis;
  /** The time limit for the code of a package, in milliseconds. It begins when the thread has started. */
  const TIME = 2_000;
  /** The time limit for the start of a thread, in milliseconds. On a busy machine, the start can take long. */
  const START_TIME = 10_000;
  /** The maximum length of an answer, in characters. src/registry/providers/definitions.rs applies the same limit again, in bytes. */
  const MAX_ANSWER = 256 * 1024;
  const RESOURCES = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 16, codeRangeSizeMb: 16, stackSizeMb: 2 };
  /**
   * The memory, in bytes, by which the process may grow while the code of one package runs. `RESOURCES` limits only the heap of the thread,
   * and no buffers. It is not possible to find out which thread has taken memory. So if the limit is exceeded, the code of all packages
   * that runs at that time is ended.
   */
  const MEMORY = 512 * 1024 * 1024;
  /** The number of bytes that are added to `MEMORY` for each further package whose code runs at the same time. */
  const FURTHER_MEMORY = 128 * 1024 * 1024;
  /** The pause between two measurements of the memory, in milliseconds. */
  const LOOK = 20;
  /** The number of threads that are running. */
  let running = 0;

  /**
   * Runs a file in a separate thread, and returns its answer as JSON. The thread sends two messages through a port that the code of the
   * package does not have: `{ starts }`, then `{ text }` or `{ problem }`. Later messages are not read, so a flood of messages does not
   * reach this thread.
   */
  function inWorker(source, file, folder) {
    const threads = process.getBuiltinModule?.("node:worker_threads");
    if (threads === undefined) throw new Error("the code of packages needs Node 20.16 or newer");
    const { port1: port, port2 } = new threads.MessageChannel();
    const before = process.memoryUsage.rss();
    const worker = new threads.Worker(source, {
      eval: true,
      name: "hyperlight-mcp-provider",
      argv: [],
      env: {},
      execArgv: [],
      stdin: false,
      stdout: true,
      stderr: true,
      resourceLimits: RESOURCES,
      workerData: { file, folder, limit: MAX_ANSWER, port: port2 },
      transferList: [port2],
    });
    running += 1;
    return new Promise((resolve, reject) => {
      let state = "starting";
      const end = (settlement, value) => {
        if (state === "ended") return;
        state = "ended";
        running -= 1;
        clearTimeout(timer);
        clearInterval(looks);
        port.removeAllListeners("message");
        port.close();
        // A thread that waits in a system call ends only when that call ends, and this code does not wait for that. With `terminate` alone,
        // the process would stay alive until then. For this reason, `unref` follows.
        worker.terminate();
        worker.unref();
        settlement(value);
      };
      const fail = (problem) => end(reject, new Error(problem));
      let timer = setTimeout(() => fail("its thread did not start"), START_TIME);
      const looks = setInterval(() => {
        const most = MEMORY + (running - 1) * FURTHER_MEMORY;
        if (process.memoryUsage.rss() - before > most)
          fail(`the process grew by more than ${most / 1024 / 1024} MiB of memory while it ran`);
      }, LOOK);
      const receive = (message) => {
        if (state === "starting" && message?.starts === true) {
          state = "running";
          clearTimeout(timer);
          timer = setTimeout(() => fail(`it did not answer within ${TIME / 1000} s`), TIME);
        } else if (state === "running" && typeof message?.text === "string" && message.text.length <= MAX_ANSWER)
          end(resolve, message.text);
        else fail(typeof message?.problem === "string" ? message.problem : "its thread sent something other than an answer");
      };
      port.on("message", receive);
      port.once("messageerror", () => fail("its thread sent something other than an answer"));
      worker.on("error", (thrown) => fail(String(thrown?.message ?? thrown)));
      worker.once("exit", () => {
        // Node may report the end of a thread before the thread's last message.
        while (state !== "ended") {
          const last = threads.receiveMessageOnPort(port);
          if (last === undefined) break;
          receive(last.message);
        }
        fail("its thread ended before it answered");
      });
    });
  }

  return {
    /** Returns the function that runs the code of packages: `load(file, folder)` resolves with JSON. */
    providerLoader: (source) => ({ load: (file, folder) => inWorker(source, file, folder) }),

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
