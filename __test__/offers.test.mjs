// Tests of resources and prompts for an agent's author and for a guest, and of results that violate their tool's own schema.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { answering, arrived, failure, fixture, folder, mirror, openApproved, openGateway, waitFor, wholeFile } from './support.mjs'

const offering = (...more) => fixture('--resources', '--prompts', ...more)
const gateway = await openApproved(wholeFile, { fixture: offering(), modern: offering('--era', '2026') })
const both = ['fixture', 'modern']
const note = { uri: 'fixture://note.txt', mimeType: 'text/plain', text: 'a note' }

/** Returns the value of an expression in a guest that imports the functions of `host:mcp` for resources and prompts. */
async function inGuest(t, expression, options = {}) {
  const opened = await openApproved(t, { fixture: offering() }, options)
  const sandbox = await opened.sandbox()
  const code = `import { resources, read, prompts, prompt } from "host:mcp";
    const caught = (work) => { try { return work() } catch (error) { return { isError: error instanceof Error, code: error.code } } };
    export const handler = () => (${expression});`
  return sandbox.run(code)
}

test('lists are what was approved, with what reading and filling in take', async () => {
  for (const server of both) {
    const resources = await gateway.resources(server)
    assert.equal(resources.length, 5)
    assert.deepEqual(resources[0], { server, uri: note.uri, name: 'note', title: 'A note', mimeType: 'text/plain' })
    assert.equal(resources.at(-1).uriTemplate, 'fixture://item/{id}')
    const [plain, travel] = await gateway.prompts(server)
    assert.deepEqual(plain, { server, name: 'plain', title: 'A plain prompt', description: 'Takes nothing', arguments: [] })
    assert.deepEqual(travel.arguments[0], { name: 'place', description: 'Where to', required: true })
  }
})

test('a person sees all of it before yes, and one list after the other however long it is', async (t) => {
  const asked = await openGateway(t, { fixture: offering('--paginate', '2') })
  await asked.approve('fixture', (await asked.approvalRequest('fixture')).digest)
  const request = await asked.approvalRequest('fixture')
  assert.deepEqual(
    [request.stage, request.resources.length, request.resourceTemplates.length, request.prompts.length],
    ['manifest', 4, 1, 2],
  )
  assert.equal(request.resourceTemplates[0].usable, true)
  for (const item of [...request.resources, ...request.resourceTemplates, ...request.prompts]) assert.match(item.digest, /^[0-9a-f]{64}$/)
  await asked.approve('fixture', request.digest)
  await asked.enable('fixture')
  assert.equal((await asked.resources('fixture')).length, 5)
})

test('a resource is read as its server gives it, bytes as base64', async () => {
  for (const server of both) {
    assert.deepEqual((await gateway.readResource(server, note.uri)).contents, [note])
    assert.equal((await gateway.readResource(server, 'fixture://item/7')).contents[0].text, 'item 7')
    const [text, blob] = (await gateway.readResource(server, 'fixture://folder')).contents
    assert.deepEqual([text.text, Buffer.from(blob.blob, 'base64').length], ['a', 4])
  }
})

test('a server with very many long templates delays no other server', async (t) => {
  const answers = `const template = (index) => ({ uriTemplate: 'a://' + '{v0,v1,v2,v3,v4,v5,v6,v7,v8,v9,v10,v11}b{+x}b{/y*}b'.repeat(9) + index, name: 't' + index })
    const answers = { 'tools/list': () => ({ tools: [] }), 'resources/list': () => ({ resources: [] }),
      'resources/templates/list': () => ({ resourceTemplates: Array.from({ length: 1_900 }, (_, index) => template(index)) }) }`
  const many = { command: process.execPath, args: answering(answers) }
  const opened = await openApproved(t, { many, mirror })
  await opened.callTool('mirror', 'give', { content: [] })
  const uri = `a://${'b.b/'.repeat(2_000)}`
  assert.match((await failure(opened.readResource('many', uri), 'ERR_UNKNOWN_RESOURCE')).message, /not compared, as there are too many/)
  let read = 0
  const reads = Array.from({ length: 6 }, () => opened.readResource('many', uri).catch(() => read++))
  await opened.callTool('mirror', 'give', { content: [] })
  assert.ok(read < 6, 'the call did not wait for the reads')
  await Promise.all(reads)
})

test('what was not approved is not asked for', async () => {
  for (const server of both) {
    for (const uri of ['fixture://ask', 'fixture://item/a/b', 'fixture://item/%2e%2e', 'file:///etc/passwd', '']) {
      await failure(gateway.readResource(server, uri), 'ERR_UNKNOWN_RESOURCE')
      await failure(gateway.subscribe(server, uri), 'ERR_UNKNOWN_RESOURCE')
    }
    await failure(gateway.getPrompt(server, 'other'), 'ERR_UNKNOWN_PROMPT')
    await failure(gateway.complete(server, { type: 'ref/prompt', name: 'other' }, { name: 'x', value: '' }), 'ERR_UNKNOWN_PROMPT')
  }
  await failure(gateway.readResource('nobody', note.uri), 'ERR_UNKNOWN_SERVER')
  await failure(gateway.resources('nobody'), 'ERR_UNKNOWN_SERVER')
})

test('a prompt is filled in with texts, and asks the person of its own call', async () => {
  for (const server of both) {
    const filled = await gateway.getPrompt(server, 'travel', { place: 'Rome', days: 3 })
    assert.equal(filled.description, 'A journey to Rome')
    assert.deepEqual(filled.messages[0], { role: 'user', content: { type: 'text', text: 'Plan 3 days in Rome.' } })
    const onElicit = ({ message }) => ({ action: 'accept', content: { answer: `there (${message})` } })
    assert.equal((await gateway.getPrompt(server, 'travel', { place: '?' }, { onElicit })).description, 'A journey to there (Where to?)')
    await failure(gateway.getPrompt(server, 'travel'), 'ERR_PROTOCOL')
    await failure(gateway.getPrompt(server, 'travel', { place: ['Rome'] }), 'ERR_INVALID_ARGUMENTS')
    await failure(gateway.getPrompt(server, 'travel', 'Rome'), 'ERR_INVALID_ARGUMENTS')
  }
})

test('arguments are completed, with what was chosen before', async () => {
  for (const server of both) {
    const travel = { type: 'ref/prompt', name: 'travel' }
    const places = await gateway.complete(server, travel, { name: 'place', value: 'Pa' })
    assert.deepEqual(places, { values: ['Paris', 'Parma'], total: 2, hasMore: false })
    const days = await gateway.complete(server, travel, { name: 'days', value: '' }, { context: { place: 'Rome' } })
    assert.deepEqual(days.values, ['1'])
    const items = await gateway.complete(server, { type: 'ref/resource', uri: 'fixture://item/{id}' }, { name: 'id', value: '' })
    assert.deepEqual([items.values.length, items.total, items.hasMore], [100, 250, true])
  }
})

test('wrong arguments and options are named', async () => {
  const travel = { type: 'ref/prompt', name: 'travel' }
  for (const [attempt, word] of [
    [() => gateway.readResource('fixture', 5), /argument 2/],
    [() => gateway.readResource('fixture', note.uri, { timeoutms: 5 }), /timeoutms/],
    [() => gateway.readResource('fixture', note.uri, { onAproval() {} }), /onAproval/],
    [() => gateway.getPrompt('fixture', 'plain', {}, { timeoutMs: -1 }), /timeoutMs/],
    [() => gateway.complete('fixture', { type: 'ref/tool', name: 'x' }, { name: 'x', value: '' }), /ref\/tool/],
    [() => gateway.complete('fixture', travel, { name: 'place' }), /value/],
    [() => gateway.complete('fixture', travel, { name: 'place', value: '' }, { context: 'Rome' }), /context/],
    [() => gateway.subscribe('fixture'), /Gateway.subscribe/],
    [() => gateway.resources({}), /argument 1/],
  ]) {
    assert.match((await failure(attempt, 'ERR_INVALID_OPTION')).message, word)
  }
})

test('a request that was aborted is not made, and one in progress is cancelled', async () => {
  const reason = new Error('enough')
  const early = await failure(gateway.readResource('fixture', note.uri, { signal: AbortSignal.abort(reason) }), 'ERR_ABORTED')
  assert.deepEqual([early.name, early.cause], ['AbortError', reason])
  const controller = new AbortController()
  const asking = gateway.getPrompt(
    'fixture',
    'travel',
    { place: '?' },
    {
      signal: controller.signal,
      onElicit() {
        controller.abort(reason)
        return new Promise(() => {})
      },
    },
  )
  assert.equal((await failure(asking, 'ERR_ABORTED')).cause, reason)
})

test('a resource that changes is an event as long as it is watched', async (t) => {
  for (const era of [[], ['--era', '2026']]) {
    const events = []
    const onEvent = (event) => event.type === 'resource-updated' && events.push(event)
    const watching = await openApproved(t, { fixture: offering(...era) }, { onEvent })
    await watching.subscribe('fixture', note.uri)
    await watching.callTool('fixture', 'touch')
    await waitFor('the event', () => events.length === 1)
    assert.deepEqual(events[0], { type: 'resource-updated', server: 'fixture', uri: note.uri })
    await watching.unsubscribe('fixture', note.uri)
    await watching.close()
  }
})

test('filters hide resources, templates and prompts, and what does not exist is told', async (t) => {
  const warnings = []
  const onEvent = (event) => event.type === 'warning' && warnings.push(event.message)
  const filters = {
    allowResources: ['fixture://note.txt', 'fixture://item/*', 'nothing:*'],
    denyResources: ['fixture://item/1*'],
    denyPrompts: ['travel'],
  }
  const filtered = await openApproved(t, { fixture: { ...offering(), ...filters } }, { onEvent })
  assert.deepEqual(
    (await filtered.resources('fixture')).map(({ uri, uriTemplate }) => uri ?? uriTemplate),
    ['fixture://note.txt', 'fixture://item/{id}'],
  )
  assert.equal((await filtered.prompts('fixture')).length, 1)
  assert.equal((await filtered.readResource('fixture', 'fixture://item/2')).contents.length, 1)
  await failure(filtered.readResource('fixture', 'fixture://item/12'), 'ERR_UNKNOWN_RESOURCE')
  await failure(filtered.readResource('fixture', 'fixture://blob'), 'ERR_UNKNOWN_RESOURCE')
  assert.ok(
    warnings.some((message) => message.includes('"nothing:*", which allowResources names')),
    warnings.join('\n'),
  )
})

test('a guest lists, reads and fills in, synchronously', async (t) => {
  const run = await inGuest(
    t,
    `({
      listed: [resources("fixture").length, resources().length, prompts("fixture").map((entry) => entry.name)],
      note: read("fixture", "fixture://note.txt"),
      blob: read("fixture", "fixture://blob").data,
      folder: read("fixture", "fixture://folder").length,
      filled: prompt("fixture", "travel", { place: "Rome" }),
      plain: prompt("fixture", "plain").messages[0].content,
    })`,
  )
  assert.deepEqual(run.value.listed, [5, 5, ['plain', 'travel']])
  assert.deepEqual(run.value.note, note)
  assert.deepEqual(
    run.value.blob,
    Uint8Array.from({ length: 16 }, (_, index) => (index * 7) % 256),
  )
  assert.equal(run.value.folder, 2)
  assert.deepEqual(run.value.filled.messages.slice(0, 2), [
    { role: 'user', content: 'Plan 7 days in Rome.' },
    { role: 'assistant', content: 'With pleasure.' },
  ])
  assert.equal(run.value.plain, 'Say hello.')
  assert.deepEqual(run.warnings, [])
})

test('a guest gets an exception with a code for what it may not have, and too much is cut', async (t) => {
  const { value, warnings } = await inGuest(
    t,
    `[caught(() => read("fixture", "fixture://ask")), caught(() => read("fixture")), caught(() => prompt("fixture", "other")),
      caught(() => read("fixture", "fixture://blob")), read("fixture", "fixture://large").text.length]`,
    { limits: { maxResponseBytes: 256 } },
  )
  const codes = value.slice(0, 3).map(({ isError, code }) => isError && code)
  assert.deepEqual(codes, ['ERR_UNKNOWN_RESOURCE', 'ERR_INVALID_ARGUMENTS', 'ERR_UNKNOWN_PROMPT'])
  assert.equal(value[3].data.length, 16)
  assert.ok(value[4] <= 256)
  assert.match(warnings.join(), /fixture:\/\/large was cut from 1048576 to 256 bytes/)
})

test('reading runs under the gate where all is confirmed', async (t) => {
  const questions = []
  const log = join(folder(t), 'log')
  const strict = await openApproved(t, { fixture: { ...offering('--log', log), confirm: 'always' } })
  await failure(strict.readResource('fixture', note.uri), 'ERR_CALL_DENIED')
  assert.equal(arrived(log, undefined).filter((line) => line.method === 'resources/read').length, 0)
  const onApproval = (question) => questions.push(question) && 'once'
  assert.deepEqual((await strict.readResource('fixture', note.uri, { onApproval })).contents, [note])
  assert.deepEqual([questions.length, questions[0].tool, questions[0].args], [1, 'resources/read', { uri: note.uri }])
})

test('no tool has the name of a request, so a question, a denial and a row of the audit are of the one or of the other', async (t) => {
  const questions = []
  const server = { ...offering('--extra-tool', 'resources/read', '--extra-tool', 'read'), confirm: 'always' }
  const gateway = await openApproved(t, { fixture: server })
  const onApproval = (question) => questions.push(question) && 'once'
  await failure(gateway.callTool('fixture', 'resources/read', { uri: note.uri }, { onApproval }), 'ERR_UNKNOWN_TOOL')
  await gateway.readResource('fixture', note.uri, { onApproval })
  await gateway.callTool('fixture', 'read', {}, { onApproval })
  assert.deepEqual(
    questions.map(({ tool, method }) => [tool, method]),
    [
      ['resources/read', 'resources/read'],
      ['read', 'tools/call'],
    ],
  )
})

test('a result that breaks its own outputSchema is a warning, or refused', async (t) => {
  const warnings = []
  const onEvent = (event) => event.type === 'warning' && warnings.push(event.message)
  const entries = { lenient: fixture(), strict: { ...fixture(), schemaViolations: 'error' } }
  const checking = await openApproved(t, entries, { onEvent })
  assert.equal((await checking.callTool('lenient', 'bad_output')).structuredContent.number, 'seven')
  assert.match(warnings.join(), /lenient\.bad_output breaks the tool's own outputSchema: structuredContent/)
  const error = await failure(checking.callTool('strict', 'bad_output'), 'ERR_OUTPUT_SCHEMA')
  assert.match(error.message, /strict\.bad_output/)
  const sandbox = await checking.sandbox()
  const run = await sandbox.run('import { bad_output } from "host:mcp-lenient"; export const handler = () => bad_output()')
  assert.deepEqual([run.value.number, run.warnings.length], ['seven', 1])
  const refused = await sandbox.run('import { bad_output } from "host:mcp-strict"; export const handler = () => bad_output()')
  assert.equal(refused.value.code, 'ERR_OUTPUT_SCHEMA')
  assert.equal((await checking.callTool('strict', 'structured', { name: 'x' })).structuredContent.name, 'x')
})

test('what becomes of such results can be settled for all servers', async (t) => {
  const strict = await openApproved(
    t,
    { fixture: fixture(), lenient: { ...fixture(), schemaViolations: 'warn' } },
    { schemaViolations: 'error' },
  )
  await failure(strict.callTool('fixture', 'bad_output'), 'ERR_OUTPUT_SCHEMA')
  assert.equal((await strict.callTool('lenient', 'bad_output')).isError, false)
  const wrong = await failure(openGateway(t, {}, { schemaViolations: 'Error' }), 'ERR_INVALID_OPTION')
  assert.match(wrong.message, /schemaViolations/)
})

test('a server that offers none of this has empty lists', async (t) => {
  const plain = await openApproved(t, { mirror })
  assert.deepEqual([await plain.resources('mirror'), await plain.prompts('mirror')], [[], []])
})
