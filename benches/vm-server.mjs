// A minimal MCP server over Streamable HTTP, for bench.mjs. Its tool is code that runs in Node's `vm`, in a new context for each call,
// because no state may stay from one call to the next. The code is its argument. The server prints its URL.
import { createServer } from 'node:http'
import { createContext, Script } from 'node:vm'

const script = new Script(`(async (args) => {${process.argv[2]}\n})(JSON.parse(input))`)
const TOOLS = [{ name: 'is_prime', description: 'Says whether a number is prime', inputSchema: { type: 'object' } }]

const ANSWERS = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'vm', version: '1' } }),
  'tools/list': () => ({ tools: TOOLS }),
  'tools/call': async ({ arguments: input }) => {
    const value = await script.runInContext(createContext({ input: JSON.stringify(input) }), { timeout: 30_000 })
    return { content: [{ type: 'text', text: JSON.stringify(value) }], structuredContent: value }
  },
}

const server = createServer(async (request, response) => {
  // There is no stream of messages without a request.
  if (request.method !== 'POST') return response.writeHead(405).end()
  let body = ''
  for await (const chunk of request) body += chunk
  const { id, method, params } = JSON.parse(body)
  if (id === undefined) return response.writeHead(202).end()
  const result = await ANSWERS[method](params)
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id, result }))
})
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`))
