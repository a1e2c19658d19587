// Tests of everything that outlives a request of a host: saved values with their handles, streams of updates, and tasks.
import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { approved, place, run, small } from './command-line.mjs'
import { ask, stream } from './serve-raw.mjs'
import { overHttp, overStdio, runs, script, served } from './serving.mjs'
import { arrived, fixture, folder, gated, logLines, waitFor } from './support.mjs'

const NEWEST = '2026-07-28'
/** A value that is too long for one answer, so that it is saved. */
const LONG = 'Array.from({ length: 20_000 }, (_, index) => index)'
const savedAs = (result) => /saved\("([0-9a-z]+)"\)/.exec(JSON.stringify(result.structuredContent).replaceAll('\\', ''))[1]
const reading = (id) => ({
  code: `import { saved } from "host:mcp"; export const handler = () => saved(${JSON.stringify(id)}).length`,
  input: null,
  timeoutMs: null,
})
const call = (client, args) => client.callTool({ name: 'run_javascript', arguments: args })
const raw = (url, args, options) => ask(url, 'tools/call', { name: 'run_javascript', arguments: args }, options)

/** A file of tokens, and how to write other lines into it. */
function tokens(at, lines) {
  const path = join(at.home, 'tokens')
  const write = (lines) => {
    writeFileSync(path, lines.join('\n'))
    chmodSync(path, 0o600)
  }
  write(lines)
  return { path, write }
}
const ONE = '1'.repeat(32)
const TWO = '2'.repeat(32)

test('Without a session', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { url } = await served(t, at)
  const client = await overHttp(t, url, { era: NEWEST })

  await t.test('a later run finds saved values by the handle of the result, and by nothing else', async () => {
    const { tools } = await client.listTools()
    const { inputSchema, outputSchema } = tools.find(({ name }) => name === 'run_javascript')
    assert.ok(inputSchema.required.includes('session') && outputSchema.properties.session)
    const first = await runs(client, LONG)
    const { session } = first.structuredContent
    assert.match(session, /^[0-9a-z]{50}$/)
    assert.equal(first._meta['io.hyperlight-mcp/session'], session)
    assert.equal(JSON.parse(first.content[0].text).session, session)
    const id = savedAs(first)
    const { structuredContent } = await call(client, { ...reading(id), session })
    assert.deepEqual(structuredContent, { value: 20_000, session })
    const without = await call(client, { ...reading(id), session: null })
    assert.equal(without.structuredContent.error.code, 'ERR_GUEST_THREW')
    assert.match(without.structuredContent.error.message, /nothing is saved as/)
    assert.equal(without.structuredContent.session, undefined)
    const small = await runs(client, '1')
    assert.deepEqual(small.structuredContent, { value: 1 })
  })

  await t.test('a host can pass the handle on by itself', async () => {
    const first = await runs(client, LONG)
    const { session } = first.structuredContent
    const passed = await ask(url, 'tools/call', {
      name: 'run_javascript',
      arguments: reading(savedAs(first)),
      _meta: { 'io.hyperlight-mcp/session': session },
    })
    assert.deepEqual(passed.structuredContent, { value: 20_000, session })
  })

  await t.test('runs with one handle come one after the other, and each finds what there is', async () => {
    const first = await runs(client, LONG)
    const { session } = first.structuredContent
    const id = savedAs(first)
    const all = await Promise.all([1, 2, 3, 4].map((count) => call(client, { ...(count % 2 ? reading(id) : script(LONG)), session })))
    assert.deepEqual(
      all.map(({ structuredContent }) => structuredContent.session),
      Array(4).fill(session),
    )
    for (const one of [all[0], all[2]]) assert.equal(one.structuredContent.value, 20_000)
    const { structuredContent } = await call(client, { ...reading(savedAs(all[1])), session })
    assert.equal(structuredContent.value, 20_000)
  })

  await t.test('a handle that is not one of this process runs nothing, and says so', async (t) => {
    const other = await served(t, at)
    const elsewhere = await overHttp(t, other.url, { era: NEWEST })
    const { session } = (await runs(elsewhere, LONG)).structuredContent
    const forged = (session.startsWith('a') ? 'b' : 'a') + session.slice(1)
    for (const handle of [session, forged, 'nonsense', 7]) {
      const { isError, structuredContent } = await raw(url, { ...script('1'), session: handle })
      assert.equal(isError, true)
      assert.equal(structuredContent.error.code, 'ERR_UNKNOWN_SESSION')
      assert.match(structuredContent.error.message, /another process.*call again with session null/s)
    }
  })
})

test('A handle belongs to its caller, and ends with the token', async (t) => {
  const at = await approved(t, { fixture: small() })
  const file = tokens(at, [`one:${ONE}`, `two:${TWO}`])
  const { url } = await served(t, at, ['--token-file', file.path])
  const first = await raw(url, script(LONG), { token: ONE })
  const { session } = first.structuredContent
  const again = { ...reading(savedAs(first)), session }
  assert.equal((await raw(url, again, { token: ONE })).structuredContent.value, 20_000)
  const ofAnother = await raw(url, again, { token: TWO })
  assert.equal(ofAnother.structuredContent.error.code, 'ERR_UNKNOWN_SESSION')
  assert.match(ofAnother.structuredContent.error.message, /belongs to another caller/)
  file.write([`two:${TWO}`])
  await ask(url, 'tools/list', {}, { token: TWO })
  file.write([`one:${ONE}`, `two:${TWO}`])
  const ended = await raw(url, again, { token: ONE })
  assert.equal(ended.structuredContent.error.code, 'ERR_UNKNOWN_SESSION')
  assert.match(ended.structuredContent.error.message, /it has ended/)
})

test('A question belongs to the token that made the call, with a name or without', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { url } = await served(t, at, ['--token-file', tokens(at, [ONE, TWO]).path])
  const capabilities = { elicitation: { form: {} } }
  const params = { name: 'run_javascript', arguments: script(`fixture.write_note({ text: 'x' })`) }
  // No session of this protocol has this name, so naming it changes nothing.
  const { requestState, inputRequests } = await ask(url, 'tools/call', params, { token: ONE, capabilities, session: 'x' })
  const [key] = Object.keys(inputRequests)
  const answered = { ...params, requestState, inputResponses: { [key]: { action: 'accept', content: { allow: 'this call' } } } }
  const { error } = await ask(url, 'tools/call', answered, { token: TWO, capabilities })
  assert.match(error.message, /this call is not known here/)
  const { structuredContent } = await ask(url, 'tools/call', answered, { token: ONE, capabilities })
  assert.doesNotMatch(JSON.stringify(structuredContent), /ERR_/)
})

test('A completion that its host gives up is cancelled at the server', async (t) => {
  const log = join(folder(t), 'log')
  const at = await approved(t, { fixture: fixture('--prompts', '--log', log) })
  const { url } = await served(t, at)
  const { prompts } = await ask(url, 'prompts/list')
  const name = prompts.find((prompt) => prompt.name.includes('travel')).name
  const controller = new AbortController()
  const params = { ref: { type: 'ref/prompt', name }, argument: { name: 'place', value: '?' } }
  const given = assert.rejects(ask(url, 'completion/complete', params, { signal: controller.signal }), { name: 'AbortError' })
  const sent = () => logLines(log).find(({ event, method }) => event === 'request' && method === 'completion/complete')
  const { id } = await waitFor('the completion to arrive', sent)
  controller.abort()
  await given
  const told = ({ method, params }) => method === 'notifications/cancelled' && params.requestId === id
  await waitFor('notifications/cancelled', () => logLines(log).some(told))
})

test('In a session there is no handle, and saved values are found without', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { url } = await served(t, at)
  const hosts = [(await overStdio(t, at)).client, (await overStdio(t, at, { era: NEWEST })).client, await overHttp(t, url)]
  for (const client of hosts) {
    const { tools } = await client.listTools()
    assert.ok(!tools.find(({ name }) => name === 'run_javascript').inputSchema.required.includes('session'))
    const first = await runs(client, LONG)
    assert.equal(first.structuredContent.session, undefined)
    assert.equal((await call(client, reading(savedAs(first)))).structuredContent.value, 20_000)
  }
})

test('A stream of changes', async (t) => {
  const log = join(place(t).home, 'log')
  const at = await approved(t, { fixture: fixture('--log', log, '--resources') })
  const { url } = await served(t, at)
  const note = 'fixture://note.txt'

  for (const transport of ['stdio', 'HTTP']) {
    await t.test(`over ${transport} tells of the resources that it names, and of no others, until it ends`, async (t) => {
      const client = transport === 'HTTP' ? await overHttp(t, url, { era: NEWEST }) : (await overStdio(t, at, { era: NEWEST })).client
      const updates = []
      client.setNotificationHandler('notifications/resources/updated', ({ params }) => updates.push(params.uri))
      const subscription = await client.listen({ resourceSubscriptions: [note] })
      const touch = (uri) => runs(client, `fixture.touch({ uri: '${uri}' })`)
      // The server acknowledges the stream before it has made the subscriptions.
      await waitFor('an update', async () => {
        await touch(note)
        return updates.length > 0
      })
      await touch('fixture://report')
      assert.deepEqual([...new Set(updates)], [note])
      await subscription.close()
      const { length } = updates
      await runs(client, '1')
      await touch(note)
      await runs(client, '1')
      assert.equal(updates.length, length)
    })
  }

  await t.test('that names a resource that nobody has ends with the reason', async (t) => {
    const { received, ended } = await stream(t, url, 'subscriptions/listen', {
      notifications: { resourceSubscriptions: ['fixture://none'] },
    })
    await ended
    assert.match(received.at(-1).error.message, /no server has this resource/)
  })
})

test('A host of 2025-11-25 is told of the resources to which it has subscribed, until it no longer has', async (t) => {
  const at = await approved(t, { fixture: fixture('--resources') })
  const { url } = await served(t, at)
  const [note, other] = ['fixture://note.txt', 'fixture://blob']
  for (const client of [(await overStdio(t, at)).client, await overHttp(t, url)]) {
    const updates = []
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => updates.push(params.uri))
    const touch = (uri) => runs(client, `fixture.touch({ uri: '${uri}' })`)
    for (const uri of [note, other]) await client.subscribeResource({ uri })
    await touch(note)
    await waitFor('the update', () => updates.includes(note))
    await client.unsubscribeResource({ uri: note })
    const before = updates.filter((uri) => uri === note).length
    await touch(note)
    await touch(other)
    await waitFor('the other update', () => updates.includes(other))
    assert.equal(updates.filter((uri) => uri === note).length, before)
  }
})

test('A stream tells only of changes of what its caller sees', async (t) => {
  const at = place(t, { mine: small(), payroll: small() })
  const config = join(at.home, '.hyperagent/config.json')
  const grants = { toolboxes: { mine: ['mine/*'], all: ['*/*'] }, agents: { one: { toolboxes: ['mine'] }, two: { toolboxes: ['all'] } } }
  writeFileSync(config, JSON.stringify({ ...JSON.parse(readFileSync(config, 'utf8')), ...grants }))
  const { url } = await served(t, at, ['--token-file', tokens(at, [`one:${ONE}`, `two:${TWO}`]).path])
  const { received } = await stream(t, url, 'subscriptions/listen', { notifications: { toolsListChanged: true } }, { token: ONE })
  const told = () => received.filter(({ method }) => method === 'notifications/tools/list_changed').length
  const isListed = async (server, token) => {
    const { resources } = await ask(url, 'resources/list', {}, { token })
    return resources.some(({ uri }) => uri === `mcp-types://${server}.d.ts`)
  }
  const approve = async (server, token) => {
    for (const stage of ['command', 'manifest']) {
      const { request } = JSON.parse((await run(at, ['approve', server, '--json'])).stdout).servers[0]
      assert.equal(request.stage, stage)
      await run(at, ['approve', server, '--digest', request.digest])
    }
    await waitFor(`${server} in the list`, () => isListed(server, token))
  }
  await approve('payroll', TWO)
  assert.ok(!(await isListed('payroll', ONE)))
  await approve('mine', ONE)
  await waitFor('the change', () => told() > 0)
  assert.equal(told(), 1)
})

test('A run of a client that knows tasks', async (t) => {
  const log = join(place(t).home, 'log')
  const at = await approved(t, { fixture: gated('--log', log) })
  const file = tokens(at, [`one:${ONE}`, `two:${TWO}`])
  const { url } = await served(t, at, ['--token-file', file.path])
  const capabilities = { extensions: { 'io.modelcontextprotocol/tasks': {} }, elicitation: { form: {} } }
  const options = { token: ONE, capabilities }
  const begin = (body) => raw(url, script(body), options)
  const get = (taskId, more) => ask(url, 'tasks/get', { taskId }, { ...options, ...more })
  const until = (taskId, status) =>
    waitFor(status, async () => {
      const task = await get(taskId)
      return task.status === status && task
    })

  await t.test('gives the same, whether it is a task or not, and is none where the client knows none', async () => {
    const begun = await begin('1 + 1')
    // A busy machine may need more time.
    const { structuredContent } = begun.resultType === 'task' ? (await until(begun.taskId, 'completed')).result : begun
    assert.equal(structuredContent.value, 2)
    const { capabilities: served } = await ask(url, 'server/discover', {}, options)
    assert.ok(served.extensions['io.modelcontextprotocol/tasks'])
    const asked = await raw(url, script(`fixture.write_note({ text: 'x' })`), { token: ONE, capabilities: { elicitation: { form: {} } } })
    assert.equal(asked.resultType, 'input_required')
  })

  await t.test('asks as a task, whose answers go to its run', async () => {
    const created = await begin(`fixture.write_note({ text: 'as a task' })`)
    assert.equal(created.resultType, 'task')
    const { inputRequests, pollIntervalMs, ttlMs } = await until(created.taskId, 'input_required')
    assert.ok(pollIntervalMs > 0 && ttlMs > 0)
    const [[key, request]] = Object.entries(inputRequests)
    assert.match(request.params.message, /"write_note" of the MCP server "fixture"/)
    assert.equal(arrived(log, 'write_note').length, 0)
    const inputResponses = { [key]: { action: 'accept', content: { allow: 'this call' } } }
    const updated = await ask(url, 'tasks/update', { taskId: created.taskId, inputResponses }, options)
    assert.equal(updated.error, undefined)
    const { result } = await until(created.taskId, 'completed')
    assert.doesNotMatch(JSON.stringify(result.structuredContent), /ERR_/)
    assert.equal(arrived(log, 'write_note').length, 1)
  })

  await t.test('is nobody else’s, and ends when its caller cancels it', async () => {
    const { length } = arrived(log, 'write_note')
    const { taskId } = await begin(`fixture.write_note({ text: 'never' })`)
    for (const method of ['tasks/get', 'tasks/cancel', 'tasks/update']) {
      const { error } = await ask(url, method, { taskId, inputResponses: {} }, { ...options, token: TWO })
      assert.match(error.message, /no such task: .* for the caller that started them/)
    }
    await ask(url, 'tasks/cancel', { taskId }, options)
    await until(taskId, 'cancelled')
    assert.equal(arrived(log, 'write_note').length, length)
  })

  await t.test('becomes one where it takes its time, and its end is told later', async () => {
    const created = await begin('fixture.sleep({ ms: 3_000 })')
    assert.deepEqual([created.resultType, created.status], ['task', 'working'])
    const { result } = await until(created.taskId, 'completed')
    assert.match(JSON.stringify(result.structuredContent), /slept/)
  })

  await t.test('keeps what it has saved for the next one', async () => {
    const created = await begin(`(fixture.sleep({ ms: 3_000 }), ${LONG})`)
    assert.equal(created.resultType, 'task')
    const { result } = await until(created.taskId, 'completed')
    const { session } = result.structuredContent
    const { structuredContent } = await raw(url, { ...reading(savedAs(result)), session }, options)
    assert.deepEqual(structuredContent, { value: 20_000, session })
  })
})

test('A host’s folders narrow those that the config lets a server know, in its own calls', async (t) => {
  const { home } = place(t)
  const [work, project, secret] = ['work', 'work/project', 'secret'].map((name) => join(home, name))
  for (const path of [project, secret]) mkdirSync(path, { recursive: true })
  const at = await approved(t, {
    newer: { ...fixture('--era', '2026'), roots: [work] },
    older: { ...fixture(), roots: [work] },
    none: fixture(),
  })
  const uris = (...paths) => paths.map((path) => ({ uri: pathToFileURL(path).href }))
  let asked = 0
  const onRoots = () => {
    asked += 1
    return { roots: uris(project, secret) }
  }
  const { url } = await served(t, at)
  const told = async (client, server) => {
    const code = `import * as server from "host:mcp-${server}"; export const handler = () => server.roots({})`
    const { structuredContent } = await call(client, { code, input: null, timeoutMs: null })
    assert.ok(structuredContent.value?.roots, JSON.stringify(structuredContent))
    // A model does not see the path of the home folder.
    return structuredContent.value.roots.map(({ uri }) => basename(uri))
  }
  for (const era of ['2025-11-25', NEWEST]) {
    const client = await overHttp(t, url, { era, onRoots })
    const other = await overHttp(t, url, { era, name: 'Other' })
    assert.deepEqual(await told(client, 'newer'), ['project'])
    assert.deepEqual(await told(other, 'newer'), ['work'])
    assert.deepEqual(await told(client, 'older'), ['work'])
    assert.deepEqual(await told(client, 'none'), [])
  }
  assert.equal(asked, 2)
})
