// Runs the code of one provider package in a worker thread, and posts the answer of the code: { text } or { problem }. The thread has no
// environment variables, no arguments and no streams of this process, and providers.js ends it. The code has no port to this process, and
// its output is dropped here. Otherwise Node would read any amount of messages and output on its main thread. The code cannot import files
// outside its package by mistake, because a person has approved only the digest of the package. It cannot start threads or programs with
// Node's own functions. Such threads or programs would continue, and could use more and more memory, while this thread waits in a system
// call and cannot be ended. This is not a sandbox: approved code can circumvent it (docs/THREAT-MODEL.md, T23).
{
  const threads = require("node:worker_threads");
  const { Writable } = require("node:stream");
  const loading = require("node:module");
  const { sep } = require("node:path");
  const { pathToFileURL } = require("node:url");
  const { file, folder, limit, port } = threads.workerData;
  delete threads.workerData.port;
  threads.parentPort.close();
  const post = port.postMessage.bind(port);
  for (const name of ["stdout", "stderr"]) {
    const dropping = new Writable({ write: (_chunk, _encoding, done) => done() });
    Object.defineProperty(process, name, { value: dropping, configurable: true, enumerable: true });
  }
  const { stringify } = JSON;
  const { isBuiltin } = loading;

  const refusal = (specifier) => new Error(`it imports "${specifier}", which is not in its package; bundle what it needs`);

  const resolveRequired = loading._resolveFilename;
  loading._resolveFilename = function (specifier, ...rest) {
    const found = resolveRequired.call(this, specifier, ...rest);
    if (!isBuiltin(found) && !found.startsWith(folder + sep)) throw refusal(specifier);
    return found;
  };
  const start = pathToFileURL(folder + sep).href;
  const hooks = `
    import { isBuiltin } from "node:module";
    export async function resolve(specifier, context, next) {
      const found = await next(specifier, context);
      if (isBuiltin(found.url) || found.url.startsWith("data:") || found.url.startsWith(${stringify(start)})) return found;
      throw new Error('it imports "' + specifier + '", which is not in its package; bundle what it needs');
    }`;
  loading.register(`data:text/javascript,${encodeURIComponent(hooks)}`);

  withhold();

  /**
   * Removes every function from the code that starts a thread, a program or native code. No function here keeps an original function, so a
   * debugger cannot find one.
   */
  function withhold() {
    const refusing = (name) =>
      function refused() {
        throw new Error(`it uses ${name}, and the code of a provider cannot start threads or programs`);
      };
    const take = (holder, names, label) => {
      for (const name of names)
        if (typeof holder?.[name] === "function")
          Object.defineProperty(holder, name, {
            value: refusing(`${label}.${name}`),
            configurable: true,
            enumerable: true,
            writable: true,
          });
    };
    const programs = require("node:child_process");
    take(programs, Object.keys(programs), "child_process");
    take(threads, ["Worker"], "worker_threads");
    take(require("node:cluster"), ["fork", "Worker"], "cluster");
    // The hooks of a module run in a separate thread.
    take(loading, ["register"], "module");
    take(process, ["binding", "_linkedBinding", "dlopen", "execve"], "process");
    try {
      // A debugger of this process could call every function in the process.
      take(require("node:inspector/promises"), ["Session", "open"], "inspector");
      take(require("node:inspector"), ["Session", "open"], "inspector");
    } catch {
      // This version of Node has no debugger.
    }
    loading.syncBuiltinESMExports();
  }

  /**
   * Calls the function `servers`. It may be a separate export, or a method of the default export. CommonJS puts the default export one
   * level deeper.
   */
  async function answer() {
    const exported = await import(pathToFileURL(file));
    const holder = [exported, exported.default, exported.default?.default].find((one) => typeof one?.servers === "function");
    if (holder === undefined) throw new Error("it exports no function servers()");
    const text = stringify(await holder.servers());
    if (typeof text !== "string") throw new Error("its answer is not a list of definitions");
    if (text.length > limit) throw new Error(`its answer has more than ${limit} bytes of JSON`);
    return text;
  }

  const refuse = (thrown) => post({ problem: String(thrown?.message ?? thrown).slice(0, 1000) });
  // Without this callback, Node would copy the thrown value to the main thread, with all its buffers.
  process.setUncaughtExceptionCaptureCallback(refuse);
  post({ starts: true });
  answer().then((text) => post({ text }), refuse);
}
