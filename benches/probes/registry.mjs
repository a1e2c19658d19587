// Measures what a registry of 10,000 servers costs: the list, the first search, and a call, compared with a call of a gateway with one
// server. The servers, and the approvals of all of them, are in the store.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Gateway } from 'hyperlight-mcp'
import { median } from '../lib/statistics.mjs'
import { alternate, beside, entry, milliseconds, pause, perCall } from './common.mjs'

const SERVERS = 10_000
/** The goals, in milliseconds. */
const LIST_MS = 20
const SEARCH_MS = 200
/** The number of later lists. A list also starts a reading in the background, which must not be measured together with the next list. */
const LATER_LISTS = 5
const READING_MS = 1000

/** Opens a gateway whose store has this number of servers besides the fixture server of the config, all of them approved. */
async function opened({ guest, server, storedServers }, count, enable, work) {
  const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-bench-'))
  const stateDir = join(folder, 'state')
  const options = { config: { mcpServers: { fixture: entry(server) } }, workspaceFolder: folder, stateDir, guest }
  const within = async (more, doing) => {
    const gateway = await Gateway.open({ ...options, ...more })
    try {
      return await doing(gateway)
    } finally {
      await gateway.close()
    }
  }
  try {
    await within({}, (gateway) => gateway.approve('fixture'))
    if (count > 0) execFileSync(storedServers, [stateDir, String(count)])
    // A further approval gives the tools of all of them their direct names, as approvals one by one would have done.
    await within({}, (gateway) => gateway.approve('fixture'))
    return await within({ enable }, work)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function list(task, count) {
  return opened(task, count, ['fixture'], async (gateway) => {
    const first = await milliseconds(() => gateway.servers())
    const later = []
    for (let round = 0; round < LATER_LISTS; round += 1) {
      await pause(READING_MS)
      later.push(await milliseconds(() => gateway.servers()))
    }
    if (gateway.servers().length !== count + 1) throw new Error('the store does not have the servers')
    return { first, later: median(later) }
  })
}

async function search(task, count) {
  return opened(task, count, 'approved', async (gateway) => {
    const first = await milliseconds(() => gateway.searchTools('echo a text'))
    return { first, again: await milliseconds(() => gateway.searchTools('echo a text')) }
  })
}

export async function registry(task) {
  const [lists, searches] = [[], []]
  for (let round = 0; round < task.rounds; round += 1) {
    lists.push({ many: await list(task, SERVERS), one: await list(task, 0) })
    searches.push({ many: await search(task, SERVERS), one: await search(task, 0) })
  }
  const calls = await opened(task, 0, ['fixture'], (one) =>
    opened(task, SERVERS, ['fixture'], async (many) => {
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
      rounds: lists.map(({ many }) => ({ value: many.first, reference: LIST_MS })),
      details: [
        beside('a later one (median)', 'ms', lists, ({ many }) => many.later),
        beside('the first one with one server', 'ms', lists, ({ one }) => one.first),
      ],
    },
    manySearch: {
      rounds: searches.map(({ many }) => ({ value: many.first, reference: SEARCH_MS })),
      details: [
        beside('the second one', 'ms', searches, ({ many }) => many.again),
        beside('the first one with one server', 'ms', searches, ({ one }) => one.first),
      ],
    },
    manyCall: { rounds: calls },
  }
}
