// Tests of `boot` with answers of a model, pages and prompts that are wrong or hostile.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { code, model, plan, planned, SERVICE_KEY, service } from './booting.mjs'
import { folder, openGateway } from './support.mjs'

const number = { type: 'number' }
const string = { type: 'string' }
const add = planned('add', { properties: { a: number, b: number } })
const GOOD = code('return args.a + args.b')

/** Makes the tool `add` from these answers. Returns it with the requests that the model got. */
async function adding(t, answers, more = {}) {
  const gateway = await openGateway(t)
  const { generate, asked } = model({ plans: [plan(add)], handlers: { add: answers } })
  const made = await gateway.boot({ prompt: 'Add', generate, cache: false, ...more })
  const request = await gateway.approvalRequest(made.name)
  return { gateway, made, asked, code: request.generated.tools[0].code }
}

describe('an answer of a model', () => {
  test('that a parser could not read in minutes is refused in seconds, and asked for once more', async (t) => {
    const hostile = code(`return ${'(a=('.repeat(5_000)}y`)
    const { asked, code: kept } = await adding(t, [hostile, GOOD])
    assert.equal(asked.length, 3)
    assert.match(asked[2].user, /the code could not be parsed/)
    assert.equal(kept, 'return args.a + args.b')
  })

  test('that a parser could not read does not keep an abort or the end of the gateway waiting', async (t) => {
    for (const end of ['abort', 'close']) {
      const gateway = await openGateway(t)
      const controller = new AbortController()
      const { generate } = model({ plans: [plan(add)], handlers: { add: [code(`return ${'(a=('.repeat(5_000)}y`)] } })
      const onProgress = ({ type }) => {
        if (type !== 'writing') return
        if (end === 'abort') controller.abort()
        else gateway.close()
      }
      const expected = { code: end === 'abort' ? 'ERR_ABORTED' : 'ERR_CLOSED' }
      await assert.rejects(gateway.boot({ prompt: 'Add', generate, cache: false, signal: controller.signal, onProgress }), expected)
    }
  })

  test('with other ends of lines is kept with plain ones, and one with hidden ends is asked for once more', async (t) => {
    const cacheDir = join(folder(t), 'cache')
    const windows = code('const sum = args.a + args.b\r\nreturn sum').replaceAll(/(?<!\r)\n/g, '\r\n')
    const { gateway, asked, code: kept } = await adding(t, [windows], { cacheDir, cache: undefined })
    assert.deepEqual([kept, asked.length], ['const sum = args.a + args.b\nreturn sum', 2])
    assert.equal((await gateway.boot({ prompt: 'Add', generate: model().generate, cacheDir })).origin, 'cache')
    const hidden = await adding(t, [code('return 1 // or \u2028 return 2'), GOOD])
    assert.match(hidden.asked[2].user, /U\+2028, which is an invisible line end/)
  })

  test('that is a whole function gets its arguments, fetch and the secrets, in its trial too', async (t) => {
    process.env.BOOKS_KEY = SERVICE_KEY
    t.after(() => delete process.env.BOOKS_KEY)
    const local = await service(t)
    const gateway = await openGateway(t)
    const body = `async ({ city }, fetch, secrets) => {
  const headers = { 'x-api-key': secrets.BOOKS_KEY.trim() }
  const response = await fetch('${local.origin}/weather/forecast/' + city, { headers })
  return await response.json()
}`
    const tool = planned('get_forecast', { url: local.url('/weather/forecast/{city}'), properties: { city: string } })
    const { generate, asked } = model({ plans: [plan(tool)], handlers: { get_forecast: [code(body)] } })
    const options = { prompt: `The weather, as in ${local.url('/guide.md')}`, secrets: ['BOOKS_KEY'], allowHosts: [local.host] }
    const made = await gateway.boot({ ...options, generate, cache: false })
    assert.equal(asked.length, 2, asked[2]?.user)
    for (const _ of ['command', 'manifest']) await gateway.approve(made.name, (await gateway.approvalRequest(made.name)).digest)
    await gateway.enable(made.name)
    const result = await gateway.callTool(made.name, 'get_forecast', { city: 'Oslo' })
    assert.deepEqual(result.structuredContent, { city: 'Oslo', days: [-3, -1] })
    assert.equal(local.requests.at(-1).headers['x-api-key'], SERVICE_KEY)
  })
})

// Each schema has a few lines, and an example of it takes more steps than any machine can do, or more bytes than a tool may get.
const ENDLESS = {
  'a pattern of nested repetitions': { type: 'string', pattern: `^${'('.repeat(40)}|a${')*'.repeat(40)}$`, minLength: 2 },
  'a long list of different long texts': {
    type: 'array',
    uniqueItems: true,
    minItems: 1_000,
    items: { type: 'string', default: 'x'.repeat(30_000) },
  },
}

describe('a plan', () => {
  for (const [what, schema] of Object.entries(ENDLESS)) {
    const tool = planned('add', { properties: { a: schema } })
    const hostile = () => model({ plans: [plan(tool)], handlers: { add: [code('return 1')] } })

    test(`with ${what} makes a tool that was not tried, and delays no other call`, async (t) => {
      const gateway = await openGateway(t)
      // A gateway has two worker threads.
      const boots = [1, 2, 3].map((number) => gateway.boot({ prompt: `Add ${number}`, generate: hostile().generate, cache: false }))
      const { generate } = model({ plans: [plan(add)], handlers: { add: [GOOD] } })
      const other = await gateway.boot({ prompt: 'Add', generate, cache: false })
      assert.deepEqual(other.warnings, [])
      for (const { warnings } of await Promise.all(boots))
        assert.match(warnings.join(), /the code of "add" was not tried: no arguments could be made/)
    })

    test(`with ${what} does not keep an abort or the end of the gateway waiting`, async (t) => {
      for (const end of ['abort', 'close']) {
        const gateway = await openGateway(t)
        const controller = new AbortController()
        const onProgress = ({ type }) => {
          if (type !== 'compiling') return
          if (end === 'abort') controller.abort()
          else gateway.close()
        }
        const boot = gateway.boot({ prompt: 'Add', generate: hostile().generate, cache: false, signal: controller.signal, onProgress })
        await assert.rejects(boot, { code: end === 'abort' ? 'ERR_ABORTED' : 'ERR_CLOSED' })
        await gateway.close()
      }
    })
  }

  test('with more patterns than are compiled is asked for once more', async (t) => {
    const gateway = await openGateway(t)
    const patterns = Array.from({ length: 100 }, (_, number) => ({ pattern: `^\\w{1,${50 + number}}$` }))
    const large = planned('add', { properties: { a: { anyOf: patterns } } })
    const { generate, asked } = model({ plans: [plan(large), plan(add)], handlers: { add: [GOOD] } })
    await gateway.boot({ prompt: 'Add', generate, cache: false })
    assert.match(asked[1].user, /its input schema has more than 64 patterns after its references are replaced/)
  })
})

describe('a page', () => {
  test('that names hosts which are none makes tools once, with a warning', async (t) => {
    const local = await service(t)
    local.set('/guide.md', 'text/markdown', 'GET https://{region}.api.test/ or https://*.example.com/ or https://example..com/x')
    const cacheDir = join(folder(t), 'cache')
    const gateway = await openGateway(t)
    const prompt = `Add, as in ${local.url('/guide.md')}, not as on https://$HOST/x`
    const { generate } = model({ plans: [plan(add)], handlers: { add: [GOOD] } })
    const made = await gateway.boot({ prompt, generate, cacheDir, allowHosts: [local.host] })
    const told = made.warnings.find((warning) => warning.includes('cannot reach some hosts'))
    for (const part of ['{region}.api.test', '*.example.com', 'example..com', '$host']) assert.ok(told.includes(part), told)
    assert.deepEqual(made.hosts, ['http://127.0.0.1', local.origin])
    const again = await gateway.boot({ prompt, generate: model().generate, cacheDir, allowHosts: [local.host] })
    assert.equal(again.origin, 'cache')
  })
})

describe('the page of an approval', () => {
  const shown = async (t, hosts, body) => {
    const gateway = await openGateway(t)
    const tool = {
      name: 'one',
      description: 'One.',
      inputSchema: {},
      endpoints: [],
      notes: '',
      needsNetwork: true,
      readOnly: true,
      code: body,
    }
    await gateway.setGenerated('made', { tools: [tool], hosts })
    return (await gateway.command('/mcp approve made')).text
  }

  test('shows the layout of code, and calls only invisible characters invisible', async (t) => {
    const plain = await shown(t, ['a.example'], `if (args.a) {\n\treturn "\\u{1F600}"\n${' '.repeat(13)}// deep\n}`)
    assert.match(plain, /2 \| {5}return "\\\\u\{1F600\}"/)
    assert.match(plain, /3 \| {14}\/\/ deep/)
    assert.doesNotMatch(plain, /invisible|blanks/)
    assert.match(await shown(t, ['a.example'], 'return 1 // \u200b'), /contains invisible characters/)
    assert.match(await shown(t, ['a.example'], `${' '.repeat(4_000)}return 1`), /\[3960 blanks\]return 1/)
  })

  test('marks hosts below which anyone can get a name', async (t) => {
    const marked = await shown(t, ['*.amazonaws.com', '*.a.example'], 'return 1')
    assert.match(marked.replaceAll(/\s+/g, ' '), /anybody can register a host name that is covered by \*\.amazonaws\.com/)
    assert.doesNotMatch(marked, /below \*\.a\.example/)
  })
})
