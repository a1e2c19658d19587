// Defines the globals of src/sandbox/fetch_globals within Node. The test itself takes the place of the host that answers the guest's calls.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const SANDBOX = join(dirname(dirname(fileURLToPath(import.meta.url))), 'src/sandbox')
const NAMES = ['fetch', 'Request', 'Response', 'Headers', 'FormData', 'Blob', 'File', 'ReadableStream']
const ALSO = ['ReadableStreamDefaultReader', 'ReadableStreamDefaultController']

/** Returns the module's text, made from the same list of files as src/sandbox/features.rs. */
function moduleText() {
  const list = /FETCH_PARTS[^=]*= \[([^\]]*)\]/.exec(readFileSync(join(SANDBOX, 'features.rs'), 'utf8'))[1]
  const files = [...list.matchAll(/fetch_globals\/(\w+\.js)/g)].map(([, file]) => file)
  const parts = files.map((file) => `{ const part =\n${readFileSync(join(SANDBOX, 'fetch_globals', file), 'utf8')}\npart(web); }\n`)
  return `const web = {};\n${parts.join('')}`
}

/** Defines the globals in this process, in place of Node's. `host` has the functions of the module `fetch:`, which may be async. */
export function defineFetchGlobals(host) {
  const key = Symbol.for('hyperlight-mcp')
  const bind = (module, name) => {
    const call = (...args) => host[name](...args)
    call.async = async (...args) => host[name](...args)
    if (module !== 'fetch:') throw new Error(`the globals call ${module}`)
    return call
  }
  for (const name of [...NAMES, ...ALSO]) delete globalThis[name]
  Object.defineProperty(globalThis, key, { value: { bind }, configurable: true })
  new Function(moduleText())()
  delete globalThis[key]
}
