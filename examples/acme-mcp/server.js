// A server with one tool, without any dependency: a line of JSON for each message.
import { createInterface } from 'node:readline'

const greet = {
  name: 'greet',
  description: 'Greets a person',
  inputSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
  annotations: { readOnlyHint: true },
}
const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: 'greeter', version: '1.0.0' },
  }),
  'tools/list': () => ({ tools: [greet] }),
  'tools/call': ({ arguments: { name } }) => ({ content: [{ type: 'text', text: `Good morning, ${name}` }] }),
  ping: () => ({}),
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) return
  const answer = answers[method]
  const outcome = answer ? { result: answer(params) } : { error: { code: -32601, message: `there is no method ${method}` } }
  console.log(JSON.stringify({ jsonrpc: '2.0', id, ...outcome }))
})
