// A minimal MCP server in Node, for bench.mjs. `download` reads the answer of a URL to its end, and answers with the number of its bytes.
import { get } from 'node:http'
import { createInterface } from 'node:readline'

const TOOL = {
  name: 'download',
  description: 'Reads the answer of a URL, and returns its number of bytes',
  inputSchema: { type: 'object', properties: { url: { type: 'string' } }, required: ['url'] },
  annotations: { readOnlyHint: true },
}

const download = (url) =>
  new Promise((resolve, reject) => {
    get(url, (answer) => {
      let bytes = 0
      answer.on('data', (part) => {
        bytes += part.length
      })
      answer.on('end', () => resolve(bytes))
    }).on('error', reject)
  })

const ANSWERS = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'download', version: '1' } }),
  'tools/list': () => ({ tools: [TOOL] }),
  'tools/call': async ({ arguments: { url } }) => ({ content: [{ type: 'text', text: String(await download(url)) }] }),
  ping: () => ({}),
}

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) return
  const result = await ANSWERS[method](params)
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`)
})
