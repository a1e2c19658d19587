// Measures what a host's run costs over HTTP, compared with the same calls made directly, and many hosts at once for a minute.
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { Gateway } from 'hyperlight-mcp'
import { median, percentile } from '../lib/statistics.mjs'
import { alternate, beside, entry, milliseconds, pause } from './common.mjs'

const program = fileURLToPath(new URL('../../bin/hyperlight-mcp.mjs', import.meta.url))
const CALLS = 10
/** The time that a run may need in addition to its calls, in milliseconds. */
const OWN_MS = 10
const CLIENTS = 64
/** The number of runs with a pause before each, and the pause in milliseconds. A VM is made ready during the pause. */
const RESTED = 10
const REST_MS = 200
const code = `import { echo_text } from 'host:mcp-echo'
  export const handler = () => { for (let i = 0; i < ${CALLS}; i += 1) echo_text({ text: 'hello' }); return ${CALLS} }`

/** Starts `hyperlight-mcp serve` with an approved server. */
async function served(folder, server) {
  const [config, stateDir] = [join(folder, 'config.json'), join(folder, 'state')]
  writeFileSync(config, JSON.stringify({ mcpServers: { echo: entry(server) } }))
  const gateway = await Gateway.open({ configPath: config, stateDir })
  await gateway.approve('echo')
  await gateway.close()
  const words = ['serve', '--http', '0', '--config', config, '--state', stateDir]
  const child = spawn(process.execPath, [program, ...words], { stdio: ['ignore', 'ignore', 'pipe'] })
  for await (const line of createInterface({ input: child.stderr })) {
    const url = /serving (http\S+)/.exec(line)?.[1]
    if (url) {
      child.stderr.resume()
      return { url, child }
    }
  }
  throw new Error(`serve ended with exit code ${child.exitCode}`)
}

async function host(url) {
  const client = new Client({ name: 'bench', version: '0' })
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  return client
}

/** Makes one run of ten calls. Throws an error if the run does not return its value. */
async function run(client) {
  const { structuredContent } = await client.callTool({ name: 'run_javascript', arguments: { code, input: null, timeoutMs: null } })
  if (structuredContent?.value !== CALLS) throw new Error(JSON.stringify(structuredContent))
}

const callEcho = (client) => client.callTool({ name: 'echo_text', arguments: { text: 'hello' } })

async function tenDirect(client) {
  for (let call = 0; call < CALLS; call += 1) await callEcho(client)
}

/** Returns the milliseconds of each piece of work. Each client does one piece after the other until the time is over. */
async function during(time, clients, work) {
  const until = performance.now() + time
  const of = async (client) => {
    const times = []
    while (performance.now() < until) times.push(await milliseconds(() => work(client)))
    return times
  }
  return (await Promise.all(clients.map(of))).flat()
}

/** Memory of a process, in MiB. */
const memory = (pid) => Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024

/** The number of times that the memory is read during the load. The memory rises and falls with the number of VMs. */
const LOOKS = 30

/** Lets all clients work for this time. Returns the memory of the server, read at regular intervals. */
async function load(child, clients, time) {
  const seen = []
  const watching = (async () => {
    for (let look = 0; look < LOOKS; look += 1) {
      await pause(time / LOOKS)
      seen.push(memory(child.pid))
    }
  })()
  const times = await during(time, clients, run)
  await watching
  return { times, seen }
}

/** Returns the milliseconds of runs as a host with a model makes them: when the next run comes, a VM is ready for it. */
async function rested(client) {
  const times = []
  for (let count = 0; count < RESTED; count += 1) {
    await pause(REST_MS)
    times.push(await milliseconds(() => run(client)))
  }
  return { rested: figures(times) }
}

const figures = (times) => ({ p50: percentile(times, 50), p99: percentile(times, 99) })

export async function serve({ rounds, calls, server }) {
  const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-bench-'))
  const { url, child } = await served(folder, server)
  const direct = new Client({ name: 'bench', version: '0' })
  await direct.connect(new StdioClientTransport({ command: server, stderr: 'ignore' }))
  const cores = availableParallelism()
  // A run with fewer calls is only a trial.
  const minute = calls < 1000 ? calls * 10 : 60_000
  try {
    const clients = await Promise.all(Array.from({ length: CLIENTS }, () => host(url)))
    const [first] = clients
    await during(minute / 30, [first], run)
    await during(minute / 30, [direct], tenDirect)
    const each = async (name, clients, work) => ({ [name]: figures(await during(minute / 30, clients, work)) })
    const found = await alternate(
      rounds,
      () => each('alone', [first], run),
      () => each('direct', [direct], tenDirect),
      () => rested(first),
      () => each('cores', clients.slice(0, cores), run),
    )
    const { times, seen } = await load(child, clients, minute)
    const many = figures(times)
    return {
      serveRun: {
        rounds: found.map(({ alone, direct }) => ({ value: alone.p50, reference: direct.p50 + OWN_MS })),
        details: [
          beside('ten calls made directly', 'ms', found, ({ direct }) => direct.p50),
          beside('a run whose VM was ready', 'ms', found, ({ rested }) => rested.p50),
        ],
      },
      serveTail: { rounds: found.map(({ cores }) => ({ value: cores.p99, reference: cores.p50 })) },
      serveLoad: {
        rounds: [{ value: median(seen.slice(-LOOKS / 3)), reference: median(seen.slice(LOOKS / 6, LOOKS / 2)) }],
        details: [
          { title: `runs in ${minute / 1000} s, none of which failed`, unit: '', values: [times.length] },
          { title: 'a run, p50', unit: 'ms', values: [many.p50] },
          { title: 'a run, p99', unit: 'ms', values: [many.p99] },
          { title: 'the most memory at a look', unit: 'MiB', values: [Math.max(...seen)] },
        ],
      },
    }
  } finally {
    await direct.close()
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
}
