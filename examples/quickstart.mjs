import { Gateway } from 'hyperlight-mcp'

const server = 'node_modules/@modelcontextprotocol/server-everything/dist/index.js'
const gateway = await Gateway.open({ config: { mcpServers: { everything: { command: 'node', args: [server] } } } })
console.log(await gateway.approvalRequest('everything')) // the command to approve: a person reads it before the next line
await gateway.approve('everything') // approves the command and its tools; kept for the next time
await gateway.enable('everything')
const sandbox = await gateway.sandbox()
const code = `import { echo } from "host:mcp-everything";
  export const handler = ({ name }) => echo({ message: "hello, " + name });`
console.log((await sandbox.run(code, { input: { name: 'world' } })).value) // Echo: hello, world
await gateway.close()
