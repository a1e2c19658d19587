// Implementation of scripts/catalogue-check: opens a gateway with the catalogue, and approves each server that needs no key, which starts it. The
// names of its tools are compared with those that were recorded for this version of its package.
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { parseArgs } from 'node:util'
import { Gateway } from '../../index.mjs'
import { difference, keyless, record, recorded, sampled } from './catalogue-record.mjs'

/** Servers that are started at the same time. */
const LANES = 2
/** Time for one server, in milliseconds: npx and uvx fetch all that it consists of. */
const LIMIT = 240_000
/** Variables that npx and uvx need to reach a registry here. A server itself gets none of them. */
const NEEDED = /^(npm_config_|pip_|uv_|ssl_cert_|node_extra_ca_certs$|https?_proxy$|no_proxy$)/i

const { values, positionals: chosen } = parseArgs({
  options: { record: { type: 'boolean' }, sample: { type: 'string' } },
  allowPositionals: true,
})

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'hyperlight-mcp-catalogue-')))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

/** Returns the path of a program, or nothing. */
function found(program) {
  try {
    return execFileSync('which', [program], { encoding: 'utf8' }).trim()
  } catch {
    return undefined
  }
}

/** Writes programs that set the variables and start the real ones, as servers do not get the variables. Returns their folder. */
function wrappers() {
  const path = join(folder, 'bin')
  mkdirSync(path)
  const own = { ...(process.env.PIP_CERT && { SSL_CERT_FILE: process.env.PIP_CERT }) }
  const all = { ...own, ...Object.fromEntries(Object.entries(process.env).filter(([name]) => NEEDED.test(name))) }
  const lines = Object.entries(all).map(([name, value]) => `export ${name}='${value.replaceAll("'", "'\\''")}'`)
  for (const program of ['npx', 'uvx']) {
    const real = found(program)
    if (real === undefined) throw new Error(`${program} is not installed`)
    writeFileSync(join(path, program), `#!/bin/sh\n${lines.join('\n')}\nexec '${real}' "$@"\n`)
    chmodSync(join(path, program), 0o755)
  }
  return path
}

process.env.PATH = [wrappers(), process.env.PATH].join(delimiter)
const workspaceFolder = join(folder, 'workspace')
mkdirSync(workspaceFolder)
const gateway = await Gateway.open({
  config: { catalogue: true },
  stateDir: join(folder, 'state'),
  workspaceFolder,
  limits: { connectTimeoutMs: LIMIT },
})
const startable = gateway.servers().filter(({ state }) => state !== 'not-ready')
const unknown = chosen.filter((name) => !gateway.servers().some((server) => server.name === name))
if (unknown.length > 0) throw new Error(`the catalogue has no ${unknown.join(', ')}`)
const wanted = values.sample === undefined ? startable : sampled(startable, Number(values.sample), Date.now())
const waiting = chosen.length > 0 ? gateway.servers().filter(({ name }) => chosen.includes(name)) : wanted
const packages = new Map(keyless().map((definition) => [definition.name, definition.package]))
const [before, started, failed] = [recorded(), {}, []]

/** Starts a server, and returns a line about it. */
async function start(name) {
  const begun = Date.now()
  await gateway.approve(name)
  const tools = gateway.servers().find((server) => server.name === name).tools
  const text = `${name}: ${tools.length} tools, ${((Date.now() - begun) / 1000).toFixed(1)} s`
  // A server that needs a key and was named is not recorded: nobody else could repeat it.
  if (!packages.has(name)) return `started ${text}`
  started[name] = { package: packages.get(name), tools }
  const differs = difference(before[name], started[name])
  if (values.record || differs === undefined) return `started ${text}`
  failed.push(name)
  return `FAILED  ${text}; its record differs (${differs}): look at it, then --record ${name}`
}

async function lane() {
  for (let server = waiting.shift(); server !== undefined; server = waiting.shift()) {
    const { name } = server
    try {
      console.log(await start(name))
    } catch (error) {
      failed.push(name)
      console.log(`FAILED  ${name}: ${error.code}: ${error.message}`)
    }
    await gateway.disable(name).catch(() => {})
  }
}

await Promise.all(Array.from({ length: LANES }, lane))
await gateway.close()
if (values.record) record(started)
for (const name of failed) console.log(`FAILED: ${name}`)
console.log(`${Object.keys(started).length} started, ${failed.length} failed`)
process.exitCode = failed.length > 0 ? 1 : 0
