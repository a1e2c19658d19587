// Measures what a registry of 10,000 servers costs: the list, the first search, and a call, compared with a call of a gateway with one
// server.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Gateway } from 'hyperlight-mcp'
import { alternate, beside, entry, milliseconds, perCall } from './common.mjs'

const SERVERS = 10_000
/** The goals, in milliseconds. */
const LIST_MS = 20
const SEARCH_MS = 200

/** Makes a base layer with this number of servers: the config of another program, in a separate workspace. */
function workspace(count) {
  const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-bench-'))
  const servers = {}
  for (let index = 0; index < count; index += 1) {
    const env = { API_KEY: `\${API_KEY_${index % 100}:-none}`, LEVEL: 'info' }
    servers[`server-${index}`] = { command: 'npx', args: ['-y', `@example/server-${index}`], env }
  }
  mkdirSync(join(folder, '.cursor'))
  writeFileSync(join(folder, '.cursor/mcp.json'), JSON.stringify({ mcpServers: servers }))
  return folder
}

async function opened({ guest, server }, count, work) {
  const workspaceFolder = workspace(count)
  const config = { base: ['cursor'], mcpServers: { fixture: entry(server) } }
  try {
    const gateway = await Gateway.open({ config, workspaceFolder, stateDir: join(workspaceFolder, 'state'), guest })
    try {
      await gateway.approve('fixture')
      await gateway.enable('fixture')
      return await work(gateway)
    } finally {
      await gateway.close()
    }
  } finally {
    rmSync(workspaceFolder, { recursive: true, force: true })
  }
}

async function listAndSearch(task) {
  return opened(task, SERVERS, async (gateway) => {
    const search = await milliseconds(() => gateway.searchTools('echo a text'))
    const searchAgain = await milliseconds(() => gateway.searchTools('echo a text'))
    const first = await milliseconds(() => gateway.servers())
    // A call of servers() reads in the background. This must not be measured together with the next call.
    await new Promise((resolve) => setTimeout(resolve, 1000))
    const list = await milliseconds(() => gateway.servers())
    return { search, searchAgain, first, list }
  })
}

export async function registry(task) {
  const found = []
  for (let round = 0; round < task.rounds; round += 1) found.push(await listAndSearch(task))
  const calls = await opened(task, 1, (one) =>
    opened(task, SERVERS, async (many) => {
      const [beside, among] = [await one.sandbox(), await many.sandbox()]
      const call = (sandbox) => perCall(sandbox, 'mcp-fixture', 'echo_text({ text: "hello" })', task)
      return alternate(
        task.rounds,
        async () => ({ reference: await call(beside) }),
        async () => ({ value: await call(among) }),
      )
    }),
  )
  return {
    manyList: {
      rounds: found.map(({ list }) => ({ value: list, reference: LIST_MS })),
      details: [beside('the first one', 'ms', found, ({ first }) => first)],
    },
    manySearch: {
      rounds: found.map(({ search }) => ({ value: search, reference: SEARCH_MS })),
      details: [beside('the second one', 'ms', found, ({ searchAgain }) => searchAgain)],
    },
    manyCall: { rounds: calls },
  }
}
