// Measures one client in one repetition of connections.mjs, in a separate process, and prints the figures as JSON.
//
//   node --expose-gc connections-probe.mjs '{ "subject": "gateway" | "sdk", "server": …, "calls": …, "floods": […] }'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const { subject, server, calls, floods } = JSON.parse(process.argv[2])
const WARM_UP = 200
const AT_ONCE = 64
const CONNECTS = 10
const CONNECTIONS = 16

const milliseconds = async (work) => {
  const started = performance.now()
  await work()
  return performance.now() - started
}
const sorted = (values) => values.toSorted((a, b) => a - b)
const at = (values, share) => sorted(values)[Math.min(values.length - 1, Math.floor(values.length * share))]

/** Makes this number of calls with this number of callers. Returns the calls per second, and the microseconds of a call. */
async function rate(call, count, callers) {
  for (let index = 0; index < WARM_UP; index += 1) await call()
  const times = []
  const caller = async () => {
    for (let index = 0; index < count / callers; index += 1) times.push(await milliseconds(call))
  }
  const elapsed = await milliseconds(() => Promise.all(Array.from({ length: callers }, caller)))
  return { perSecond: (times.length * 1000) / elapsed, median: at(times, 0.5) * 1000, p99: at(times, 0.99) * 1000 }
}

/** Returns the private memory of this process in KiB. V8 releases unused memory some time after a collection. */
async function privateMemory() {
  for (let index = 0; index < 5; index += 1) {
    globalThis.gc()
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  const found = readFileSync('/proc/self/smaps_rollup', 'utf8').matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm)
  return [...found].reduce((sum, [, size]) => sum + Number(size), 0)
}

/**
 * Measures a client. `open` starts a server, reads its tools and makes one call, like the first use of a server. It returns a function for
 * further calls, and one that closes the connection.
 */
async function measure(open) {
  const { call, close } = await open('first')
  // This comes first, because memory that the calls leave in the heap would hide it.
  const before = await privateMemory()
  const more = []
  for (let index = 0; index < CONNECTIONS; index += 1) more.push(await open(`more${index}`))
  const memory = ((await privateMemory()) - before) / CONNECTIONS
  for (const connection of more) await connection.close()
  const connects = []
  for (let index = 0; index < CONNECTS; index += 1) {
    let opened
    connects.push(
      await milliseconds(async () => {
        opened = await open('more0')
      }),
    )
    await opened.close()
  }
  const sequential = await rate(call, calls, 1)
  const many = await rate(call, calls, AT_ONCE)
  await close()
  return { sequential, many, connect: at(connects, 0.5), memory }
}

/** Returns the p99 of calls of another server without and with a server that floods. The two are measured directly after each other. */
async function flooded(gateway, open) {
  const { call } = await open('first')
  const p99 = {}
  for (const kind of floods) {
    const still = (await rate(call, calls, 1)).p99
    await gateway.enable(`flood-${kind}`)
    // The flood begins with the first call. It does not matter whether this call gets an answer.
    const begun = gateway.callTool(`flood-${kind}`, 'echo_text', { text: 'begin' }, { timeoutMs: 1000 }).catch(() => {})
    await begun
    p99[kind] = { still, flooded: (await rate(call, calls, 1)).p99 }
    await gateway.disable(`flood-${kind}`)
  }
  return p99
}

async function withGateway(folder) {
  const { Gateway } = await import('hyperlight-mcp')
  const names = ['first', ...Array.from({ length: CONNECTIONS }, (_, index) => `more${index}`)]
  const entry = (...args) => ({ command: server, args, confirm: 'never' })
  const servers = names.map((name) => [name, entry()]).concat(floods.map((kind) => [`flood-${kind}`, entry('--flood', kind)]))
  const gateway = await Gateway.open({
    config: { mcpServers: Object.fromEntries(servers) },
    stateDir: join(folder, 'state'),
    limits: { maxConnections: CONNECTIONS + 1, maxServers: servers.length },
    // An agent has a listener too, so messages of servers reach JavaScript.
    onEvent: () => {},
  })
  for (const [name] of servers) {
    await gateway.approve(name)
    await gateway.disable(name) // which ends the connection over which its tools were read
  }
  const open = async (name) => {
    await gateway.enable(name)
    const call = () => gateway.callTool(name, 'echo_text', { text: 'hello' })
    await call()
    return { call, close: () => gateway.disable(name) }
  }
  const figures = await measure(open)
  figures.floods = await flooded(gateway, open)
  await gateway.close()
  return figures
}

async function withSdk() {
  const { Client } = await import('@modelcontextprotocol/client')
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio')
  return measure(async () => {
    const client = new Client({ name: 'bench', version: '0' })
    await client.connect(new StdioClientTransport({ command: server, stderr: 'ignore' }))
    await client.listTools()
    const call = () => client.callTool({ name: 'echo_text', arguments: { text: 'hello' } })
    await call()
    return { call, close: () => client.close() }
  })
}

const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-bench-'))
try {
  console.log(JSON.stringify(await (subject === 'sdk' ? withSdk() : withGateway(folder))))
} finally {
  rmSync(folder, { recursive: true, force: true })
}
