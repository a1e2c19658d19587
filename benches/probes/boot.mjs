// Measures a call of a booted tool beside the same code in Node's `vm` over the same transport, 64 callers at once, and the start of
// `boot`.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { percentile } from '../lib/statistics.mjs'
import { alternate, beside, milliseconds } from './common.mjs'

const path = (name) => fileURLToPath(new URL(name, import.meta.url))
const program = path('../../bin/hyperlight-mcp.mjs')
const PROMPT = 'A tool is_prime that says whether a whole number is prime'
const CODE = `for (let d = 2; d * d <= args.n; d++) if (args.n % d === 0) return { prime: false }
return { prime: args.n > 1 }`
const NUMBER = 1_000_003
const CALLERS = 64
/** The goal for the start of `boot`, in milliseconds. */
const START_GOAL = 1000

const PLAN = {
  tools: [
    {
      name: 'is_prime',
      description: 'Says whether a number is prime.',
      input_schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false },
      endpoints: [],
      implementation_notes: 'Divide by all numbers up to the root.',
      needs_network: false,
      read_only: true,
    },
  ],
}

/** A provider whose model plans one tool and writes its code. Returns its base URL. */
async function provider() {
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const isPlan = JSON.parse(body)
      .messages.at(-1)
      .content.every(({ text }) => !text.startsWith('# Tool\n'))
    const text = isPlan ? JSON.stringify(PLAN) : `\`\`\`js\n${CODE}\n\`\`\``
    const message = { type: 'message', id: '1', model: 'm', role: 'assistant', content: [{ type: 'text', text }], stop_reason: 'end_turn' }
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ ...message, usage: { input_tokens: 1, output_tokens: 1 } }))
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${server.address().port}/v1`, close: () => server.close() }
}

/** Starts a server, and waits for a line of one of its streams that contains the wanted text. */
async function started(words, stream, wanted, options = {}) {
  const stdio = ['ignore', 'ignore', 'ignore']
  stdio[stream === 'stdout' ? 1 : 2] = 'pipe'
  const child = spawn(process.execPath, words, { stdio, ...options })
  const exited = new Promise((resolve) => child.once('exit', resolve))
  const said = []
  for await (const line of createInterface({ input: child[stream] })) {
    said.push(line)
    const found = wanted.exec(line)?.[1]
    if (found) {
      child[stream].resume()
      return { found, child, exited }
    }
  }
  throw new Error(`${words.slice(0, 2).join(' ')} ended: ${said.join(' ').slice(0, 500)}`)
}

/** Ends a server, and waits until it has ended. */
async function end({ child, exited }) {
  child.kill('SIGTERM')
  await exited
}

async function caller(url) {
  const client = new Client({ name: 'bench', version: '0' })
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  return client
}

/** Makes one call. After a wrong answer, the whole measurement fails. */
async function call(client) {
  const { structuredContent, content } = await client.callTool({ name: 'is_prime', arguments: { n: NUMBER } })
  if (structuredContent?.prime !== true) throw new Error(`a call failed: ${JSON.stringify(content)}`)
}

/**
 * Returns the calls per second of all clients, and the milliseconds of the calls. Each client makes one call after the other until the time
 * is over.
 */
async function during(time, clients) {
  const begun = performance.now()
  const of = async (client) => {
    const times = []
    while (performance.now() < begun + time) times.push(await milliseconds(() => call(client)))
    return times
  }
  const times = (await Promise.all(clients.map(of))).flat()
  const rate = (times.length * 1000) / (performance.now() - begun)
  return { rate, p50: percentile(times, 50), p99: percentile(times, 99), count: times.length }
}

/** Prepares the command `boot` in a separate folder. Its tool is made and approved. */
async function prepared(folder) {
  const model = await provider()
  const env = { PATH: process.env.PATH, HOME: folder, ANTHROPIC_API_KEY: 'none', ANTHROPIC_BASE_URL: model.url }
  const words = [program, 'boot', '--prompt', PROMPT, '--port', '0']
  const start = (more = []) => started([...words, ...more], 'stderr', /serving .* at (http\S+)/, { cwd: folder, env })
  try {
    const { found: digest, exited } = await started(words, 'stderr', /--digest ([0-9a-f]{64})/, { cwd: folder, env })
    await exited
    await end(await start(['--digest', digest]))
  } finally {
    // All later starts use the cache.
    model.close()
  }
  return start
}

async function startTimes(start) {
  const timed = async (more) => {
    let server
    const time = await milliseconds(async () => {
      server = await start(more)
    })
    await end(server)
    return time
  }
  return { hit: await timed([]), locked: await timed(['--locked']) }
}

export async function boot({ rounds, calls }) {
  const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-bench-'))
  const children = []
  // A run with fewer calls is only a trial.
  const time = calls < 1000 ? calls * 10 : 5000
  try {
    const start = await prepared(folder)
    const starts = await alternate(rounds, () => startTimes(start))
    const ours = await start(['--locked'])
    children.push(ours.child)
    const plain = await started([path('../vm-server.mjs'), CODE], 'stdout', /(http\S+)/)
    children.push(plain.child)
    const of = (url) => Promise.all(Array.from({ length: CALLERS }, () => caller(url)))
    const [booted, vm] = [await of(ours.found), await of(plain.found)]
    await during(time / 5, booted.slice(0, 1))
    await during(time / 5, vm.slice(0, 1))
    const found = await alternate(
      rounds,
      async () => ({ one: await during(time, booted.slice(0, 1)) }),
      async () => ({ vmOne: await during(time, vm.slice(0, 1)) }),
      async () => ({ many: await during(time, booted) }),
      async () => ({ vmMany: await during(time, vm) }),
    )
    return rows(starts, found)
  } finally {
    for (const child of children) child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
}

const rows = (starts, found) => ({
  bootCall: {
    rounds: found.map(({ one, vmOne }) => ({ value: one.rate, reference: vmOne.rate })),
    details: [beside('a call, p50', 'ms', found, ({ one }) => one.p50), beside('in vm, p50', 'ms', found, ({ vmOne }) => vmOne.p50)],
  },
  bootMany: {
    rounds: found.map(({ many, one }) => ({ value: many.rate, reference: one.rate })),
    details: [
      beside('a call, p50', 'ms', found, ({ many }) => many.p50),
      beside('a call, p99', 'ms', found, ({ many }) => many.p99),
      beside('calls of a round, none of which failed', '', found, ({ many }) => many.count),
      beside('in vm', 'calls/s', found, ({ vmMany }) => vmMany.rate),
    ],
  },
  bootStart: {
    rounds: starts.map(({ locked }) => ({ value: locked, reference: START_GOAL })),
    details: [beside('without --locked, from the cache', 'ms', starts, ({ hit }) => hit)],
  },
})
