// Runs the code of one provider package in a process of its own, and writes the answer of the code. process.rs starts the process, and ends
// it. Standard input is a socket: one line of JSON comes in, the order; then the lines `starts`, and `text JSON` or `problem JSON`, go out.
// The code can write to the socket too: then this is its answer. It has no environment variables, no arguments and no other streams. It
// cannot import files outside its package by mistake, because a person has approved only the digest of the package. It cannot start programs
// with Node's own functions, because these could continue after the end of this process. This is not a sandbox: approved code can
// circumvent it (docs/THREAT-MODEL.md, T23).
{
  const { readSync, writeFileSync } = require('node:fs')
  const threads = require('node:worker_threads')
  const loading = require('node:module')
  const { sep } = require('node:path')
  const { pathToFileURL } = require('node:url')
  const SOCKET = 0
  const post = (line) => writeFileSync(SOCKET, `${line}\n`)
  const { file, folder, limit } = order()
  for (const name of Object.keys(process.env)) delete process.env[name]
  process.execArgv.length = 0
  const { stringify } = JSON
  const { byteLength } = Buffer
  const { isBuiltin } = loading

  const refusal = (specifier) => new Error(`it imports "${specifier}", which is not in its package; bundle what it needs`)

  const resolveRequired = loading._resolveFilename
  loading._resolveFilename = function (specifier, ...rest) {
    const found = resolveRequired.call(this, specifier, ...rest)
    if (!isBuiltin(found) && !found.startsWith(folder + sep)) throw refusal(specifier)
    return found
  }
  const start = pathToFileURL(folder + sep).href
  const hooks = `
    import { isBuiltin } from "node:module";
    export async function resolve(specifier, context, next) {
      const found = await next(specifier, context);
      if (isBuiltin(found.url) || found.url.startsWith("data:") || found.url.startsWith(${stringify(start)})) return found;
      throw new Error('it imports "' + specifier + '", which is not in its package; bundle what it needs');
    }`
  loading.register(`data:text/javascript,${encodeURIComponent(hooks)}`)

  withhold()

  /**
   * Removes every function from the code that starts a thread, a program or native code. No function here keeps an original function, so a
   * debugger cannot find one.
   */
  function withhold() {
    const refusing = (name) =>
      function refused() {
        throw new Error(`it uses ${name}, and the code of a provider cannot start threads or programs`)
      }
    const take = (holder, names, label) => {
      for (const name of names)
        if (typeof holder?.[name] === 'function')
          Object.defineProperty(holder, name, {
            value: refusing(`${label}.${name}`),
            configurable: true,
            enumerable: true,
            writable: true,
          })
    }
    const programs = require('node:child_process')
    take(programs, Object.keys(programs), 'child_process')
    take(threads, ['Worker'], 'worker_threads')
    take(require('node:cluster'), ['fork', 'Worker'], 'cluster')
    // The hooks of a module run in a separate thread.
    take(loading, ['register'], 'module')
    take(process, ['binding', '_linkedBinding', 'dlopen', 'execve'], 'process')
    try {
      // A debugger of this process could call every function in the process.
      take(require('node:inspector/promises'), ['Session', 'open'], 'inspector')
      take(require('node:inspector'), ['Session', 'open'], 'inspector')
    } catch {
      // This version of Node has no debugger.
    }
    loading.syncBuiltinESMExports()
  }

  /** Reads the order: a line of JSON. */
  function order() {
    const read = []
    const part = Buffer.alloc(4096)
    while (read.at(-1)?.at(-1) !== 10) {
      const count = readSync(SOCKET, part)
      // The gateway has ended.
      if (count === 0) process.exit(1)
      read.push(Buffer.from(part.subarray(0, count)))
    }
    return JSON.parse(Buffer.concat(read).toString())
  }

  /**
   * Calls the function `servers`. It may be a separate export, or a method of the default export. CommonJS puts the default export one
   * level deeper.
   */
  async function answer() {
    const exported = await import(pathToFileURL(file))
    const holder = [exported, exported.default, exported.default?.default].find((one) => typeof one?.servers === 'function')
    if (holder === undefined) throw new Error('it exports no function servers()')
    const text = stringify(await holder.servers())
    if (typeof text !== 'string') throw new Error('its answer is not a list of definitions')
    if (byteLength(text) > limit) throw new Error(`its answer has more than ${limit} bytes of JSON`)
    return text
  }

  const refuse = (thrown) => post(`problem ${stringify(String(thrown?.message ?? thrown).slice(0, 1000))}`)
  process.setUncaughtExceptionCaptureCallback(refuse)
  post('starts')
  answer().then((text) => post(`text ${text}`), refuse)
}
