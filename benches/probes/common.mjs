// Code that the probes share: a gateway with servers, the baseline beside it, and calls that are timed within the guest.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { Gateway } from 'hyperlight-mcp'
import { median } from '../lib/statistics.mjs'

export const ONE = 'export const handler = () => 1'

export async function milliseconds(work) {
  const started = performance.now()
  await work()
  return performance.now() - started
}

export const pause = (time) => new Promise((resolve) => setTimeout(resolve, time))

/** Runs `work` with a gateway on these servers, all approved and enabled. Its state is new unless `stateDir` is given. */
export async function withGateway({ servers = {}, guest, stateDir, ...options }, work) {
  const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-bench-'))
  try {
    const gateway = await Gateway.open({ config: { mcpServers: servers }, stateDir: stateDir ?? join(folder, 'state'), guest, ...options })
    try {
      for (const name of Object.keys(servers)) {
        await gateway.approve(name)
        await gateway.enable(name)
      }
      return await work(gateway)
    } finally {
      await gateway.close()
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Returns the config entry of a server whose calls need no permission. */
export const entry = (command, ...args) => ({ command, args, confirm: 'never' })

/**
 * The usual way to call tools, as the module `host:baseline` of a sandbox. Each function is JavaScript on Node's main thread. It calls the
 * tool with the TypeScript SDK over stdio, and returns the same values as our own modules. `close` ends the connection.
 */
export async function baseline(sandbox, command, ...args) {
  const client = new Client({ name: 'baseline', version: '0' })
  await client.connect(new StdioClientTransport({ command, args, stderr: 'ignore' }))
  await client.listTools()
  const content = async (name, input) => (await client.callTool({ name, arguments: input })).content[0]
  const text = (name) => async (input) => (await content(name, input)).text
  sandbox.hostModule('baseline', {
    echo_text: text('echo_text'),
    big_text: text('big_text'),
    big_image: async (input) => {
      const { mimeType, data } = await content('big_image', input)
      const bytes = Buffer.from(data, 'base64')
      return { mimeType, data: new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length) }
    },
    nothing: () => [],
  })
  return { close: () => client.close() }
}

/**
 * Returns code that makes a call many times in one run, and returns the microseconds of one call: the median over batches, so that other
 * work of the machine has little effect. Reading the clock is itself a host call, so it is read once for each batch.
 */
const timed = (module, call) => `
  import * as tools from "host:${module}";
  export function handler({ batches, size, warmUp }) {
    for (let i = 0; i < warmUp; i += 1) tools.${call};
    const times = [];
    for (let batch = 0; batch < batches; batch += 1) {
      const started = performance.now();
      for (let i = 0; i < size; i += 1) tools.${call};
      times.push((performance.now() - started) * 1000 / size);
    }
    return times;
  }`

/** Returns the microseconds of a call from the guest. The calls are made in batches. */
export async function perCall(sandbox, module, call, { calls, size = 20, warmUp = 50 }) {
  const { value } = await sandbox.run(timed(module, call), { input: { batches: Math.ceil(calls / size), size, warmUp } })
  return median(value)
}

/**
 * Runs all steps one after the other, in each round. Every second round has the reverse order, because the first step may find colder
 * caches.
 */
export async function alternate(rounds, ...steps) {
  const measured = []
  for (let round = 0; round < rounds; round += 1) {
    const found = {}
    for (const step of round % 2 === 0 ? steps : steps.toReversed()) Object.assign(found, await step())
    measured.push(found)
  }
  return measured
}

/** Returns a line of details for a row, with one value for each round. */
export const beside = (title, unit, measured, of) => ({ title, unit, values: measured.map(of) })

/** Returns the private memory of this process in MiB. */
function privateMemory() {
  globalThis.gc()
  const found = readFileSync('/proc/self/smaps_rollup', 'utf8').matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm)
  return [...found].reduce((sum, [, size]) => sum + Number(size), 0) / 1024
}

/** Returns the same when it no longer changes. Other threads and V8's heap allocate and release memory for some time. */
export async function settledMemory() {
  const seen = [privateMemory()]
  while (seen.length < 100) {
    await pause(50)
    seen.unshift(privateMemory())
    if (seen.length >= 5 && Math.max(...seen.slice(0, 5)) - Math.min(...seen.slice(0, 5)) < 0.05) break
  }
  return seen[0]
}
