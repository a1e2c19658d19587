// A minimal MCP server in Node, for bench.mjs. `sleep` answers after its time, for any number of calls at once. `big_text` and `big_image`
// answer with this number of bytes. These results are made only once, so that the server takes almost none of a call's time.
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const tool = (name, description, argument) => ({
  name,
  description,
  inputSchema: { type: 'object', properties: { [argument]: { type: 'integer' } }, required: [argument] },
  annotations: { readOnlyHint: true },
})

const TOOLS = [
  tool('sleep', 'Waits, then answers', 'ms'),
  tool('big_text', 'Returns text of exactly that many bytes', 'bytes'),
  tool('big_image', 'Returns an image of that size', 'bytes'),
]

const CONTENT = {
  sleep: async ({ ms }) => {
    await sleep(ms)
    return { type: 'text', text: 'slept' }
  },
  big_text: ({ bytes }) => ({ type: 'text', text: 'a'.repeat(bytes) }),
  big_image: ({ bytes }) => ({ type: 'image', mimeType: 'image/png', data: Buffer.alloc(bytes, 'some bytes').toString('base64') }),
}

/** Results as they are written, by the name and the arguments of the call. */
const made = new Map()

async function call({ name, arguments: input }) {
  const key = name + JSON.stringify(input)
  if (!made.has(key) || name === 'sleep') made.set(key, JSON.stringify({ content: [await CONTENT[name](input)] }))
  return made.get(key)
}

const ANSWERS = {
  initialize: ({ protocolVersion }) =>
    JSON.stringify({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'node', version: '1' } }),
  'tools/list': () => JSON.stringify({ tools: TOOLS }),
  'tools/call': call,
  ping: () => '{}',
}

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) return
  const answer = ANSWERS[method]
  const outcome = answer ? `"result":${await answer(params)}` : '"error":{"code":-32601,"message":"no such method"}'
  process.stdout.write(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},${outcome}}\n`)
})
