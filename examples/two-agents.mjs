// Two agents on one gateway, with different toolboxes: each sees and calls exactly what it is granted.
//
//   node examples/two-agents.mjs
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Gateway } from 'hyperlight-mcp'

const server = 'node_modules/@modelcontextprotocol/server-everything/dist/index.js'
const stateDir = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-two-agents-'))
const gateway = await Gateway.open({
  stateDir,
  config: {
    mcpServers: { everything: { command: 'node', args: [server], confirm: 'never' } },
    toolboxes: { talkers: ['everything/echo'], counters: ['everything/get-*', '!everything/get-env'] },
    agents: { greeter: { toolboxes: ['talkers'] } },
  },
})
try {
  // A person would look at the requests first: examples/approve.mjs.
  await gateway.approve('everything')
  await gateway.enable('everything')
  // Grants of agents that the config does not name are made at run time, and kept.
  await gateway.grant('accountant', 'counters')

  for (const name of ['greeter', 'accountant']) {
    const agent = gateway.agent(name)
    const { functions } = await agent.moduleInfo('everything')
    console.log(`${name}: ${functions.map((one) => one.name).join(', ')}`)
    await agent.close()
  }

  const greeter = gateway.agent('greeter')
  console.log((await greeter.callTool('everything', 'echo', { message: 'hello' })).content[0].text)
  await greeter.callTool('everything', 'get-sum', { a: 1, b: 2 }).catch((error) => console.log(`${error.code}: ${error.message}`))
  console.log((await gateway.explainGrant('accountant', 'everything', 'get-env')).reason)
} finally {
  await gateway.close()
  rmSync(stateDir, { recursive: true, force: true })
}
