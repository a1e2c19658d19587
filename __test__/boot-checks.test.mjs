// Tests of the start of the command `boot`: what it refuses before it asks a model, what it prints about cached tools, and who may call
// them.
import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { code, MODEL_KEY, model, plan, planned, provider } from './booting.mjs'
import { environment, LIMIT, place, program, run, write } from './command-line.mjs'
import { overHttp } from './serving.mjs'
import { afterwards, endOf, listenTo, waitFor } from './support.mjs'

const number = { type: 'number' }
const add = { ...planned('add', { properties: { a: number, b: number } }), implementation_notes: 'Round nothing.' }
const adding = () => model({ plans: [plan(add)], handlers: { add: [code('return { sum: args.a + args.b }')] } })
const env = { ANTHROPIC_API_KEY: MODEL_KEY }
const words = ({ baseUrl }, ...more) => ['boot', '--prompt', 'Add two numbers', '--base-url', baseUrl, ...more]
const digestIn = ({ stderr }) => /--digest ([0-9a-f]{64})/.exec(stderr)?.[1]

/** Starts a provider. Returns it with the requests that its model got. */
async function local(t) {
  const { generate, asked } = adding()
  return { ...(await provider(t, 'anthropic', { generate })), asked }
}

function starts(t, at, args, more = {}) {
  const child = listenTo(t, process.execPath, [program, ...args], { cwd: at.work, env: environment(at, more), limit: LIMIT })
  return { child, ended: endOf(child) }
}

test('what keeps the tools from being served is told before a model is asked', async (t) => {
  const at = place(t)
  const { baseUrl, asked } = await local(t)
  write(at, 'open.txt', 'host:a-token-of-thirty-two-characters-00\n')
  chmodSync(join(at.work, 'open.txt'), 0o644)
  write(at, 'closed.txt', 'host:a-token-of-thirty-two-characters-00\n')
  chmodSync(join(at.work, 'closed.txt'), 0o600)
  write(at, 'no-key.pem', 'no key')
  for (const [args, expected] of [
    [['--host', '0.0.0.0'], /--token-file/],
    [['--token-file', 'none.txt'], /none\.txt/],
    [['--token-file', 'open.txt'], /open\.txt/],
    [['--tls-cert', 'none.pem', '--tls-key', 'none.pem'], /none\.pem/],
    [['--tls-cert', 'no-key.pem', '--tls-key', 'no-key.pem'], /no-key\.pem/],
    [['--host', '203.0.113.1', '--token-file', 'closed.txt'], /203\.0\.113\.1 is not an address of this machine/],
  ]) {
    const { code, stderr } = await run(at, words({ baseUrl }, '--port', '0', ...args), { env })
    assert.notEqual(code, 0, args.join(' '))
    assert.match(stderr, expected)
    assert.equal(asked.length, 0, `${args.join(' ')}: a model was asked`)
  }
})

test('an interrupt ends the wait for a prompt, and a host cannot give it', async (t) => {
  const at = place(t)
  const { baseUrl } = await local(t)
  const { child, ended } = starts(t, at, ['boot', '--prompt-file', '-', '--base-url', baseUrl, '--port', '0'], env)
  child.stdin.write('Add two')
  const threads = () =>
    readdirSync(`/proc/${child.pid}/task`).map((task) => readFileSync(`/proc/${child.pid}/task/${task}/comm`, 'utf8').trim())
  const catchesInterrupt = () => (BigInt(`0x${/SigCgt:\s*(\w+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))[1]}`) & 2n) !== 0n
  await waitFor('the thread that reads', () => threads().includes('mcp-read') && catchesInterrupt())
  child.kill('SIGINT')
  assert.equal((await ended).code, 130)
  const refused = await run(at, ['boot', '--prompt-file', '-', '--stdio'], { input: 'Add', env })
  assert.equal(refused.code, 2)
  assert.match(refused.stderr, /--prompt-file - cannot be used with --stdio/)
})

test('warnings of the client of models do not reach standard output', async (t) => {
  const at = place(t)
  // The limit of this model is lower than what is requested. The client warns about this.
  const { code, stdout, stderr } = await run(at, words(await local(t), '--stdio', '--model', 'claude-3-haiku-20240307'), { env })
  assert.equal(code, 1)
  assert.match(stderr, /These tools are new/)
  assert.equal(stdout, '')
})

test('tools of the cache say from when they are and where they reach, and a host gets an entry that starts them', async (t) => {
  const at = place(t)
  const given = await local(t)
  const first = await run(at, words(given, '--stdio', '--secret', 'BOOKS_KEY@books.example'), {
    env: { ...env, BOOKS_KEY: 'a-key-of-books' },
  })
  const args = ['--secret', 'BOOKS_KEY@books.example', '--stdio', '--locked', '--digest', digestIn(first)]
  const { child, ended } = starts(t, at, ['boot', '--prompt', 'Add two numbers', ...args], { BOOKS_KEY: 'a-key-of-books' })
  await waitFor('the entry', () => /\n\}\n/.test(child.output.stderr) || child.exitCode !== null)
  const { stderr } = child.output
  assert.match(stderr, /1 tool from the cache, made at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: no model is asked/)
  assert.match(stderr, /the tools may reach nothing/)
  const [entry] = Object.values(JSON.parse(stderr.slice(stderr.indexOf('{\n'), stderr.lastIndexOf('}') + 1)).mcpServers)
  assert.deepEqual(entry.env, { BOOKS_KEY: '<the value of BOOKS_KEY>' })
  assert.ok(!stderr.includes('a-key-of-books') && !stderr.includes(MODEL_KEY))
  assert.equal(child.output.stdout, '')
  child.kill('SIGTERM')
  await ended
  // A host starts the program as the entry says, in a separate folder.
  const host = listenTo(t, entry.command, entry.args, { cwd: '/', env: environment(at, { BOOKS_KEY: 'a-key-of-books' }), limit: LIMIT })
  const end = endOf(host)
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'host', version: '1' } }
  host.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params })}\n`)
  await waitFor('an answer', () => host.output.stdout.includes('"id":1') || host.exitCode !== null)
  assert.match(host.output.stdout, /"serverInfo"/, host.output.stderr)
  host.stdin.end()
  assert.equal((await end).code, 0)
})

test('a dry run prints the notes, and which secrets are sent where', async (t) => {
  const at = place(t)
  const given = { ...env, BOOKS_KEY: 'a-key-of-books' }
  const dry = await run(at, words(await local(t), '--dry-run', '--secret', 'BOOKS_KEY@books.example'), { env: given })
  assert.match(dry.stdout, /\n {2}notes: Round nothing\.\n/)
  assert.match(dry.stdout, /\nsends: the value of BOOKS_KEY to books\.example\n$/)
})

test('the mode of a folder that exists stays, and a folder that others may read is told of', async (t) => {
  const at = place(t)
  const given = await local(t)
  const there = join(at.work, 'there')
  mkdirSync(there)
  chmodSync(there, 0o755)
  symlinkSync('there', join(at.work, 'link'))
  for (const named of ['there', 'link']) {
    const { stderr } = await run(at, words(given, '--dry-run', '--cache-dir', named), { env })
    assert.match(stderr, /warning: other users may list the folder of made tools .*there \(mode 755\)/)
    assert.equal(statSync(there).mode & 0o777, 0o755)
  }
  await run(at, words(given, '--dry-run', '--cache-dir', 'made'), { env })
  assert.equal(statSync(join(at.work, 'made')).mode & 0o777, 0o700)
})

test('grants of other agents take the tools from no caller', async (t) => {
  const at = place(t, {})
  const given = await local(t)
  for (const command of [
    ['toolboxes', 'readers', 'weather/*'],
    ['grant', 'somebody', 'readers'],
  ])
    assert.equal((await run(at, command)).code, 0)
  const token = 'a-token-of-thirty-two-characters-00'
  writeFileSync(join(at.work, 'tokens'), `host:${token}\n`, { mode: 0o600 })
  const first = await run(at, words(given, '--port', '0'), { env })
  const { child, ended } = starts(t, at, words(given, '--port', '0', '--token-file', 'tokens', '--digest', digestIn(first)))
  await waitFor('an address', () => /serving .* at (http\S+)/.test(child.output.stderr) || child.exitCode !== null)
  const client = await overHttp(t, /serving .* at (http\S+)/.exec(child.output.stderr)?.[1], { token })
  const { tools } = await client.listTools()
  assert.deepEqual(
    tools.map(({ name }) => name),
    ['add'],
  )
  assert.deepEqual((await client.callTool({ name: 'add', arguments: { a: 2, b: 3 } })).structuredContent, { sum: 5 })
  afterwards(t, () => child.kill('SIGTERM'))
  child.kill('SIGTERM')
  await ended
})
