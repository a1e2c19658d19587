// An MCP server with the tools of one entry of a catalogue file, for benches/tokens.mjs. It can be listed and approved; its tools do nothing.
//
//   node benches/catalogue-server.mjs FILE SERVER
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [file, name] = process.argv.slice(2)
const { manifest } = JSON.parse(readFileSync(file, 'utf8')).find(({ server }) => server === name)
const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name, version: '1.0.0' },
    instructions: manifest.instructions,
  }),
  'tools/list': () => ({ tools: manifest.tools }),
  'tools/call': () => ({ content: [] }),
}
createInterface(process.stdin).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) return
  const answer = answers[method]
  const outcome = answer ? { result: answer(params) } : { error: { code: -32601, message: `${method} is not known here` } }
  console.log(JSON.stringify({ jsonrpc: '2.0', id, ...outcome }))
})
