// Implementation of scripts/catalogue-check: opens a gateway with the catalogue, and approves each server that needs no key, which starts it.
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { Gateway } from '../../index.mjs'

/** Servers that are started at the same time. */
const LANES = 2
/** Time for one server, in milliseconds: npx and uvx fetch all that it consists of. */
const LIMIT = 240_000
/** Variables that npx and uvx need to reach a registry here. A server itself gets none of them. */
const NEEDED = /^(npm_config_|pip_|uv_|ssl_cert_|node_extra_ca_certs$|https?_proxy$|no_proxy$)/i

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
const chosen = process.argv.slice(2)
const unknown = chosen.filter((name) => !gateway.servers().some((server) => server.name === name))
if (unknown.length > 0) throw new Error(`the catalogue has no ${unknown.join(', ')}`)
const waiting = gateway.servers().filter(({ name, state }) => (chosen.length > 0 ? chosen.includes(name) : state !== 'not-ready'))
const failed = []
let passed = 0

async function lane() {
  for (let server = waiting.shift(); server !== undefined; server = waiting.shift()) {
    const started = Date.now()
    try {
      await gateway.approve(server.name)
      const { tools } = gateway.servers().find(({ name }) => name === server.name)
      passed += 1
      console.log(`started ${server.name}: ${tools.length} tools, ${((Date.now() - started) / 1000).toFixed(1)} s`)
    } catch (error) {
      failed.push(server.name)
      console.log(`FAILED  ${server.name}: ${error.code}: ${error.message}`)
    }
    await gateway.disable(server.name).catch(() => {})
  }
}

await Promise.all(Array.from({ length: LANES }, lane))
await gateway.close()
for (const name of failed) console.log(`FAILED: ${name}`)
console.log(`${passed} passed, ${failed.length} failed`)
process.exitCode = failed.length > 0 ? 1 : 0
