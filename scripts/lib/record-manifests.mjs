// Implementation of scripts/record-manifests: a small MCP client over stdio. It announces the same client capabilities as
// src/client/inbound/handler.rs, as some servers list fewer tools to a client with fewer capabilities. It stores the fields of
// `catalog::Manifest`.
import { execFileSync, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { gitServer } from './tools.mjs'

const FOLDER = 'tests/manifests'
const VERSION = '2025-11-25'
const capabilities = { sampling: {}, elicitation: { form: {}, url: {} } }
const TOOL = ['name', 'title', 'description', 'inputSchema', 'outputSchema', 'annotations', 'execution']
const RESOURCE = ['uri', 'name', 'title', 'description', 'mimeType']
const TEMPLATE = ['uriTemplate', 'name', 'title', 'description', 'mimeType']

const work = realpathSync(mkdtempSync(join(tmpdir(), 'hyperlight-mcp-record-')))
const program = (name) => `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`
const servers = {
  filesystem: [process.execPath, program('filesystem'), work],
  memory: [process.execPath, program('memory')],
  everything: [process.execPath, program('everything')],
  git: [gitServer(), '--repository', work],
}

/** Returns the fields with these names that exist, in this order. */
const pick = (object, names) => Object.fromEntries(names.filter((name) => object[name] != null).map((name) => [name, object[name]]))

function prompt(listed) {
  const argument = (each) => ({ ...pick(each, ['name', 'title', 'description']), ...(each.required && { required: true }) })
  return {
    ...pick(listed, ['name', 'title', 'description']),
    ...(listed.arguments?.length && { arguments: listed.arguments.map(argument) }),
  }
}

/** Starts a server and returns a function that sends requests to it. Requests of the server get no answer. */
function connect([command, ...args]) {
  const env = { ...process.env, MEMORY_FILE_PATH: join(work, 'memory.jsonl') }
  const child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'ignore'] })
  const pending = new Map()
  createInterface(child.stdout).on('line', (line) => {
    const { id, method, result, error } = JSON.parse(line)
    if (method === undefined) pending.get(id)?.(error ? Promise.reject(new Error(error.message)) : result)
  })
  const send = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  let last = 0
  const ask = (method, params = {}) =>
    new Promise((resolve, reject) => {
      child.once('exit', () => reject(new Error(`${command} ended`)))
      pending.set(++last, resolve)
      send({ id: last, method, params })
    })
  return { child, send, ask }
}

async function record(command) {
  const { child, send, ask } = connect(command)
  const listed = async (method, kind) => {
    const all = []
    let cursor
    do {
      const page = await ask(method, { cursor })
      all.push(...page[kind])
      cursor = page.nextCursor
    } while (cursor)
    return all
  }
  const about = await ask('initialize', { protocolVersion: VERSION, capabilities, clientInfo: { name: 'record-manifests', version: '1' } })
  send({ method: 'notifications/initialized' })
  // Some servers register their tools only after `notifications/initialized`. The answer to the ping comes later.
  await ask('ping')
  const { tools, resources, prompts } = about.capabilities
  const manifest = {
    protocolVersion: about.protocolVersion,
    serverName: about.serverInfo.name,
    serverVersion: about.serverInfo.version,
    instructions: about.instructions,
    tools: tools ? (await listed('tools/list', 'tools')).map((each) => pick(each, TOOL)) : [],
    resources: resources && (await listed('resources/list', 'resources')).map((each) => pick(each, RESOURCE)),
    resourceTemplates: resources && (await listed('resources/templates/list', 'resourceTemplates')).map((each) => pick(each, TEMPLATE)),
    prompts: prompts && (await listed('prompts/list', 'prompts')).map(prompt),
  }
  child.kill()
  // Empty lists are left out, as in `catalog::Manifest`, except the list of tools. No path of this machine is stored.
  const kept = Object.entries(manifest).filter(([name, value]) => name === 'tools' || value?.length !== 0)
  const text = JSON.stringify(Object.fromEntries(kept), null, 2)
  return `${text.replaceAll(work, '/work').replaceAll(process.cwd(), '/hyperlight-mcp')}\n`
}

try {
  execFileSync('git', ['init', '--quiet', work])
  mkdirSync(FOLDER, { recursive: true })
  for (const [name, command] of Object.entries(servers)) {
    writeFileSync(join(FOLDER, `${name}.json`), await record(command))
    console.log(`${FOLDER}/${name}.json`)
  }
} finally {
  rmSync(work, { recursive: true, force: true })
}
