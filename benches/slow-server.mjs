// The least MCP server that a Node program can be: one tool, `sleep`, which answers after its time, any number of them at once. For
// bench.mjs, which asks what the server's own runtime adds.
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const tool = {
  name: 'sleep',
  description: 'Waits, then answers',
  inputSchema: { type: 'object', properties: { ms: { type: 'integer' } }, required: ['ms'] },
  annotations: { readOnlyHint: true },
}

const ANSWERS = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'slow', version: '1' } }),
  'tools/list': () => ({ tools: [tool] }),
  'tools/call': async ({ arguments: { ms } }) => {
    await sleep(ms)
    return { content: [{ type: 'text', text: 'slept' }] }
  },
  ping: () => ({}),
}

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) return
  const answer = ANSWERS[method]
  const outcome = answer ? { result: await answer(params) } : { error: { code: -32601, message: `no method ${method}` } }
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...outcome })}\n`)
})
