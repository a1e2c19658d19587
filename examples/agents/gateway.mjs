// Shared by the examples of this folder: a gateway with one server, and the question to a model.
import { fileURLToPath } from 'node:url'
import { Gateway } from 'hyperlight-mcp'

export const question = 'Add 20 and 22 with the server "everything", by code, and tell me the sum.'

export async function openGateway() {
  const server = fileURLToPath(import.meta.resolve('@modelcontextprotocol/server-everything/dist/index.js'))
  const gateway = await Gateway.open({
    config: { mcpServers: { everything: { command: process.execPath, args: [server] } } },
    // A model can propose a server; only a person approves it.
    onEvent: ({ type, request }) => type === 'approval-proposed' && console.log('to be approved:', request),
    // Asked before a tool is called that is not approved as read-only.
    onApproval: ({ server, tool, args }) => {
      console.log('may it be called?', `${server}.${tool}`, args)
      return 'deny'
    },
  })
  // Here the author of the example says yes. An agent shows `await gateway.approvalRequest(name)` to a person first.
  await gateway.approve('everything')
  await gateway.enable('everything')
  return gateway
}
