// A model proposes a server, and a person decides about it in a terminal. Everything is kept in a temporary folder.
//
//   node examples/proposal.mjs [--yes|--no] COMMAND [ARGS…]
//
//   COMMAND   starts an MCP server, for example: npx -y @modelcontextprotocol/server-everything
//   --yes     says yes to all that is shown, --no says no; otherwise you are asked
//
// Exit code 0: the person has decided; 2: it could not be tried.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { stripVTControlCharacters } from 'node:util'
import { Gateway } from 'hyperlight-mcp'

// A model's text may contain colours, cursor movements or line breaks. They are removed before a person reads it.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are removed
const plain = (text) => stripVTControlCharacters(String(text)).replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ')

/** Acts as the model. It is a script here, but it has the same tools as a model. */
async function model(tools, command, args) {
  const call = async (name, args) => {
    const answer = await tools.find((tool) => tool.name === name).execute(args)
    console.log(`  model: ${name} -> ${plain(answer.state ?? answer.error?.code ?? 'done')}`)
    return answer
  }
  const { server } = await call('add_mcp_server', { name: 'My Helper', command, args })
  // It cannot approve, and nothing runs before a person has.
  await call('manage_mcp', { action: 'approve', server })
  await call('manage_mcp', { action: 'enable', server })
  return { server, enable: () => call('manage_mcp', { action: 'enable', server }) }
}

function show(request) {
  if (request.stage === 'command') {
    console.log(`  runs         ${plain([request.command, ...request.args].join(' '))}`)
    console.log(`  environment  ${request.environment.map(plain).join(', ') || '(nothing of yours)'}`)
    for (const name of request.loaders) console.log(`  LOOK         ${plain(name)} can make a program load other code`)
    console.log(`  warning      ${request.warning}`)
    // The box's rights, and what other servers can change of this one.
    for (const sentence of [...(request.box?.allows ?? []), ...(request.changeableBy ?? [])])
      console.log(`               ${plain(sentence)}`)
  } else {
    for (const tool of request.tools) console.log(`  tool         ${plain(tool.name)}: ${plain(tool.description ?? '')}`)
    for (const { reason } of request.findings) console.log(`  LOOK         ${plain(reason)}`)
  }
}

async function main() {
  const words = process.argv.slice(2)
  const always = ['--yes', '--no'].includes(words[0]) ? words.shift() : undefined
  const [command, ...args] = words
  if (!command) throw new Error('usage: proposal.mjs [--yes|--no] COMMAND [ARGS…]')
  if (!always && !process.stdin.isTTY) throw new Error('nobody to ask: stdin is not a terminal (--yes or --no answers in advance)')
  const terminal = always ? undefined : createInterface({ input: process.stdin, output: process.stdout })
  const ask = async (question) =>
    always ? always === '--yes' : /^y(es)?$/i.test((await terminal.question(question).catch(() => 'no')).trim())

  const folder = mkdtempSync(join(tmpdir(), 'proposal-'))
  const gateway = await Gateway.open({
    config: {},
    stateDir: join(folder, 'state'),
    onEvent: (event) => {
      if (event.type !== 'server-proposed') return
      console.log(`\nagent ${event.agent} proposes the server ${event.server}, which it calls "${plain(event.displayName)}"`)
    },
    // Asked by enable(), once for each stage. Only true approves, and exactly what the request shows.
    onServerApproval: async (request) => {
      console.log(`\n${request.server}: may ${request.stage === 'command' ? 'this run' : 'a model read and call this'}?`)
      show(request)
      return ask('Approve? [y/N] ')
    },
  })
  try {
    const agent = gateway.agent('helper')
    const { server, enable } = await model(agent.agentTools({ manage: true }), command, args)
    try {
      await gateway.enable(server)
      await enable()
      console.log(`${server}: approved, with ${gateway.servers()[0].tools.length} tools for agent ${agent.name} alone`)
    } catch (error) {
      if (error.code !== 'ERR_NOT_APPROVED') throw error
      await gateway.removeServer(server)
      console.log(`${server}: refused and removed; ${gateway.servers().length} servers are left`)
    }
  } finally {
    terminal?.close()
    await gateway.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

try {
  await main()
} catch (error) {
  console.error(`proposal: ${error.code ? `${error.code}: ` : ''}${error.message}`)
  process.exitCode = 2
}
