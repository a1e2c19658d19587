// Tests of the complete way from a prompt to the calls of its tools: local services with documentation, a model whose answers were written
// for the test, and a gateway or a host that calls the tools.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { code, model, plan, planned, SERVICE_KEY, service } from './booting.mjs'
import { folder, openGateway } from './support.mjs'

const text = (result) => result.content.map((block) => block.text).join()
const string = { type: 'string' }
const number = { type: 'number' }

async function approve(gateway, { name }) {
  for (const stage of ['command', 'manifest']) {
    const request = await gateway.approvalRequest(name)
    assert.equal(request.stage, stage)
    await gateway.approve(name, request.digest)
  }
  await gateway.enable(name)
}

/** Makes tools, and approves them. */
async function booted(gateway, options) {
  const made = await gateway.boot({ cache: false, ...options })
  await approve(gateway, made)
  return { ...made, call: (tool, args = {}) => gateway.callTool(made.name, tool, args) }
}

/** Opens a gateway with one tool that has this body as its code, and may send requests to the service. */
async function withCode(t, local, body, more = {}) {
  const gateway = await openGateway(t)
  const tool = planned('attempt', { url: local.url('/api/x') })
  const { generate } = model({ plans: [plan(tool)], handlers: { attempt: [code(body)] } })
  return booted(gateway, { prompt: `Use ${local.url('/guide.md')}`, generate, allowHosts: [local.host], ...more })
}

const getJson = (path) => `const response = await fetch(${path})
if (!response.ok) throw new Error('status ' + response.status)
return await response.json()`

describe('tools from documentation', () => {
  const allBooks = (origin) => `const all = []
let page = 1
while (page !== null) {
  const response = await fetch('${origin}/api/books?page=' + page, { headers: { 'x-api-key': secrets.BOOKS_KEY } })
  if (!response.ok) throw new Error('status ' + response.status + ': ' + await response.text())
  const body = await response.json()
  all.push(...body.books)
  page = body.next
}
return { titles: all.map((book) => book.title) }`

  const four = (local) => ({
    prompt: ['/rest.json', '/openapi.json', '/guide.md', '/page.html'].map(local.url).join('\n'),
    allowHosts: [local.host],
    secrets: ['BOOKS_KEY'],
  })

  const answersOf = (local) => ({
    plans: [
      plan(
        planned('list_books', { url: local.url('/api/books') }),
        planned('get_thing_7', { url: local.url('/things/things7/{id}'), properties: { id: string } }),
        planned('get_forecast', { url: local.url('/weather/forecast/{city}'), properties: { city: string } }),
        planned('get_rates', { url: local.url('/rates/latest') }),
        planned('add', { properties: { a: number, b: number } }),
      ),
    ],
    handlers: {
      list_books: [code(allBooks(local.origin))],
      get_thing_7: [code(getJson(`'${local.origin}/things/things7/' + encodeURIComponent(args.id)`))],
      get_forecast: [code(getJson(`'${local.origin}/weather/forecast/' + encodeURIComponent(args.city)`))],
      get_rates: [code(getJson(`'${local.origin}/rates/latest'`))],
      add: [code('return { sum: args.a + args.b }')],
    },
  })

  test('as JSON, OpenAPI, Markdown and HTML become tools that get the right data, and a second start asks no model', async (t) => {
    process.env.BOOKS_KEY = SERVICE_KEY
    t.after(() => delete process.env.BOOKS_KEY)
    const local = await service(t)
    const cacheDir = join(folder(t), 'cache')
    const gateway = await openGateway(t)
    const { generate, asked } = model(answersOf(local))
    const steps = []
    const made = await gateway.boot({ ...four(local), cacheDir, generate, onProgress: (step) => steps.push(step) })
    assert.match(made.name, /^boot-[0-9a-f]{8}$/)
    assert.equal(made.origin, 'model')
    assert.deepEqual(made.hosts, [`http://127.0.0.1`, local.origin])
    assert.deepEqual(
      steps.filter(({ type }) => type === 'written').map(({ done }) => done),
      [1, 2, 3, 4, 5],
    )
    assert.equal(asked.length, 6)
    await assert.rejects(gateway.callTool(made.name, 'add', { a: 1, b: 2 }), { code: 'ERR_NOT_APPROVED' })
    const request = await gateway.approvalRequest(made.name)
    assert.equal(request.digest, made.digest)
    assert.deepEqual(request.generated.secrets, [{ name: 'BOOKS_KEY', host: local.origin }])
    await approve(gateway, made)
    const value = async (tool, args) => (await gateway.callTool(made.name, tool, args)).structuredContent
    assert.deepEqual(await value('list_books', {}), { titles: [1, 2, 3, 4, 5, 6, 7].map((number) => `Book ${number}`) })
    assert.deepEqual(await value('get_thing_7', { id: '42' }), { id: '42', number: 7 })
    assert.deepEqual(await value('get_forecast', { city: 'Oslo' }), { city: 'Oslo', days: [-3, -1] })
    assert.deepEqual(await value('get_rates', {}), { EUR: 1, NOK: 11.5 })
    assert.deepEqual(await value('add', { a: 2, b: 40 }), { sum: 42 })
    const missing = await gateway.callTool(made.name, 'get_forecast', { city: 'Nowhere' })
    assert.equal(missing.isError, true)
    assert.match(text(missing), /status 404.*line 2/s)

    const silent = model()
    const again = await gateway.boot({ ...four(local), cacheDir, generate: silent.generate })
    assert.deepEqual([again.origin, again.digest, again.createdAt], ['cache', made.digest, made.createdAt])
    await gateway.enable(again.name)
    assert.deepEqual(await value('add', { a: 1, b: 2 }), { sum: 3 })
    local.requests.length = 0
    const locked = await gateway.boot({ ...four(local), cacheDir, locked: true })
    assert.deepEqual([locked.origin, local.requests.length], ['locked', 0])

    const rows = await gateway.audit({ kind: 'fetch', tool: 'list_books' })
    assert.deepEqual(
      rows.map(({ server, host, method, outcome }) => [server, host, method, outcome]),
      [1, 2, 3].map(() => [made.name, local.origin, 'GET', 'ok']),
    )
    // The model and the cache have never received the key. In a response that contains the key, a placeholder replaces it.
    const kept = readdirSync(cacheDir).map((file) => readFileSync(join(cacheDir, file), 'utf8'))
    for (const seen of [JSON.stringify(asked), JSON.stringify(made), JSON.stringify(request), JSON.stringify(rows), ...kept])
      assert.ok(!seen.includes(SERVICE_KEY))
  })

  test('a prompt without a URL makes tools that compute, and the code of one that fails is asked for once more', async (t) => {
    const gateway = await openGateway(t)
    const { generate, asked } = model({
      plans: ['no JSON', `Sure!\n\`\`\`json\n${plan(planned('is_prime', { properties: { n: { type: 'integer' } } }))}\n\`\`\``],
      handlers: {
        is_prime: [
          code('return process.version'),
          code('if (args.n < 2) return false\nfor (let d = 2; d * d <= args.n; d++) if (args.n % d === 0) return false\nreturn true'),
        ],
      },
    })
    const { call, hosts } = await booted(gateway, { prompt: 'Is a number prime?', generate, name: 'primes' })
    assert.deepEqual(hosts, [])
    assert.equal(asked.length, 4)
    assert.match(asked[3].user, /line 1: "process" does not exist/)
    assert.equal(text(await call('is_prime', { n: 97 })), 'true')
    assert.equal(text(await call('is_prime', { n: 91 })), 'false')
  })

  test('code that fails in its trial is asked for once more with its error and its line', async (t) => {
    const gateway = await openGateway(t)
    const { generate, asked } = model({
      plans: [plan(planned('add', { properties: { a: number, b: number } }))],
      handlers: { add: [code('const x = args.a\nreturn x()'), code('return args.a + args.b')] },
    })
    await gateway.boot({ prompt: 'Add', generate, cache: false })
    assert.match(asked[2].user, /called with \{.*it fails: .*line 2/s)
  })

  test('code that refuses the value of its trial is asked for once more, and is kept with a warning if it still does', async (t) => {
    const refusing = code('if (args.isbn !== "0306406152") throw new Error("no ISBN: " + args.isbn)\nreturn "a book"')
    const tool = planned('find', { properties: { isbn: string } })
    for (const [answers, warning] of [
      [[refusing, code('return "any book"')], undefined],
      [[refusing], /the tool "find" is kept, because the model has written such code twice: called with \{"isbn":.*no ISBN: /],
    ]) {
      const gateway = await openGateway(t)
      const { generate, asked } = model({ plans: [plan(tool)], handlers: { find: [...answers] } })
      const { warnings, call } = await booted(gateway, { prompt: 'Find a book', generate })
      assert.equal(asked.length, 3)
      assert.match(asked[2].user, /called with \{"isbn":.*no ISBN: /)
      assert.equal(warnings.length, warning ? 1 : 0)
      if (warning) assert.match(warnings[0], warning)
      assert.match(text(await call('find', { isbn: '0306406152' })), /book/)
    }
  })

  test('in a trial, only the failure that a missing network causes is excused', async (t) => {
    const local = await service(t)
    const tool = planned('get', { url: local.url('/api/x') })
    const address = local.url('/guide.md')
    for (const [body, requests] of [
      // The network is off in the trial, so these fail there only for this reason.
      [`const response = await fetch('${address}')\nreturn response.status`, 2],
      [`const response = await fetch('${address}').catch(() => null)\nreturn response.status`, 2],
      [`try { await fetch('${address}') } catch (error) { throw new Error('no answer: ' + error.message) }`, 2],
      // These fail before any fetch, or for a reason that a network would not change.
      [`if (!args.never) throw new Error('no name')\nreturn (await fetch('${address}')).status`, 3],
      [`const got = fetch('${address}').catch(() => {})\nawait got\nreturn new Function('return missing_name')()`, 3],
    ]) {
      const gateway = await openGateway(t)
      const { generate, asked } = model({ plans: [plan(tool)], handlers: { get: [code(body), code('return 1')] } })
      await gateway.boot({ prompt: `Use ${address}`, generate, allowHosts: [local.host], cache: false })
      assert.equal(asked.length, requests, body)
    }
  })

  test('a dry run returns the plan alone, and adds no server', async (t) => {
    const gateway = await openGateway(t)
    const { generate, asked } = model({ plans: [plan(planned('add', { properties: { a: number } }))] })
    const made = await gateway.boot({ prompt: 'Add', generate, cache: false, dryRun: true })
    assert.deepEqual([made.plan.tools.map(({ name }) => name), made.digest, asked.length, gateway.servers()], [['add'], undefined, 1, []])
  })
})

describe('what cannot be made', () => {
  const tool = plan(planned('add', { properties: { a: number } }))
  const cases = {
    'an empty prompt': [{ prompt: ' ' }, {}, 'ERR_BOOT_PROMPT'],
    'a plan without tools': [{}, { plans: ['{"tools": []}'] }, 'ERR_BOOT_NO_TOOLS'],
    'prose instead of a plan': [{}, { plans: ['I would plan some tools.'] }, 'ERR_BOOT_PLAN'],
    'HTML instead of a plan': [{}, { plans: ['<!doctype html><html></html>'] }, 'ERR_BOOT_PLAN'],
    'an endpoint on a host that the prompt does not name': [
      { prompt: 'x' },
      { plans: [plan(planned('a', { url: 'https://evil.example/' }))] },
      'ERR_BOOT_PLAN',
    ],
    'a refusal': [{}, { plans: ['{"refusal": "no"}'] }, 'ERR_BOOT_REFUSED'],
    'code that does not parse twice': [{}, { plans: [tool], handlers: { add: [code('return (')] } }, 'ERR_BOOT_HANDLER'],
    'code that imports': [{}, { plans: [tool], handlers: { add: [code('return await import("node:fs")')] } }, 'ERR_BOOT_HANDLER'],
    'code that never ends its function': [{}, { plans: [tool], handlers: { add: [code('for (;;) {')] } }, 'ERR_BOOT_HANDLER'],
    'code that closes its function': [{}, { plans: [tool], handlers: { add: [code('return 1 }; {')] } }, 'ERR_BOOT_HANDLER'],
    'a model that throws': [{}, {}, 'ERR_BOOT_MODEL'],
    'locked without tools in the cache': [{ locked: true, cache: true }, {}, 'ERR_BOOT_NOT_CACHED'],
    'a secret whose variable is not set': [{ secrets: ['NOT_SET@a.example'] }, {}, 'ERR_BOOT_SECRET'],
    'a secret without a host': [{ secrets: ['NOT_SET'] }, {}, 'ERR_INVALID_OPTION'],
    'a host that is none': [{ allowHosts: ['a/b'] }, {}, 'ERR_INVALID_OPTION'],
    'a name that cannot be a server': [{ name: 'Not A Name' }, {}, 'ERR_INVALID_OPTION'],
    'no function that asks a model': [{ generate: undefined }, {}, 'ERR_INVALID_OPTION'],
  }
  for (const [what, [options, answers, expected]] of Object.entries(cases)) {
    test(`${what} is ${expected}`, async (t) => {
      const gateway = await openGateway(t)
      const { generate } = model(answers)
      const cache = options.cache ? { cacheDir: join(folder(t), 'cache') } : { cache: false }
      const given = { prompt: 'Add', generate, ...options, ...cache }
      if (options.cache) delete given.cache
      await assert.rejects(gateway.boot(given), { code: expected })
      assert.deepEqual(gateway.servers(), [])
    })
  }

  test('a refusal that generate throws is told as such', async (t) => {
    const gateway = await openGateway(t)
    const refusing = () => Promise.reject(Object.assign(new Error('not this'), { refused: true }))
    await assert.rejects(gateway.boot({ prompt: 'Add', generate: refusing, cache: false }), {
      code: 'ERR_BOOT_REFUSED',
      message: /not this/,
    })
  })

  test('an abort and the end of the gateway end the request to the model', async (t) => {
    for (const end of ['abort', 'close']) {
      const gateway = await openGateway(t)
      const controller = new AbortController()
      const ended = {}
      const aborted = new Promise((resolve) => (ended.resolve = resolve))
      const generate = ({ signal }) => {
        signal.addEventListener('abort', () => ended.resolve())
        if (end === 'abort') controller.abort()
        else gateway.close()
        return new Promise(() => {})
      }
      const code = end === 'abort' ? 'ERR_ABORTED' : 'ERR_CLOSED'
      await assert.rejects(gateway.boot({ prompt: 'Add', generate, cache: false, signal: controller.signal }), { code })
      await aborted
    }
  })
})

describe('code that a model wrote', () => {
  // Names that do not exist are refused before the code runs. This code uses them in ways that a parser cannot see.
  const reach = (expression) => `const world = (() => {}).constructor('return this')
const found = await (async (global) => ${expression})(world())
return { found: String(found) }`
  const nothing = {
    'process by a constructor': reach("typeof global['process']"),
    'require by a constructor': reach("global['require']('node:fs')"),
    'a module of a server': reach("global['require']('host:mcp').call('x', 'y')"),
    'import by a constructor': `const load = (async () => {}).constructor('name', 'return import(name)')\nreturn String(await load('node:fs'))`,
    'a host module by import': `const load = (async () => {}).constructor('name', 'return import(name)')\nreturn String(await load('host:mcp'))`,
    'Deno and Bun': reach("typeof global['Deno'] + typeof global['Bun']"),
    'a worker': reach("new (global['Worker'])('x')"),
    'web assembly': reach("global['WebAssembly'].compile(new Uint8Array(8))"),
    'a socket': reach("new (global['WebSocket'])('ws://127.0.0.1')"),
    'an older request': reach("new (global['XMLHttpRequest'])()"),
    'files of QuickJS': reach("global['std'].open('/etc/passwd', 'r')"),
    'the system of QuickJS': reach("global['os'].exec(['id'])"),
    'a script of QuickJS': reach("global['loadScript']('/etc/passwd')"),
  }
  const blocked = (local) => ({
    'another host': [
      "await fetch('https://evil.example/')",
      /Fetch blocked: domain "evil.example" not in whitelist. Add it to your prompt to allow access\./,
    ],
    'another port': ["await fetch('http://127.0.0.1:1/')", /Fetch blocked/],
    'localhost by name': ["await fetch('http://localhost/')", /Fetch blocked: domain "localhost"/],
    'the metadata of a cloud': ["await fetch('http://169.254.169.254/latest/meta-data')", /Fetch blocked: domain "169.254.169.254"/],
    'a number as a host': ["await fetch('http://2130706433:1/')", /Fetch blocked/],
    'IPv6 of this machine': ["await fetch('http://[::1]/')", /Fetch blocked/],
    'a file': ["await fetch('file:///etc/passwd')", /Fetch (blocked|failed)/],
    'a user in the URL': [`await fetch('${local.origin.replace('//', '//user:pass@')}/guide.md')`, /user|credentials/],
    'a redirect to another host': [`await fetch('${local.url('/away?to=https://evil.example/')}')`, /Fetch blocked: domain "evil.example"/],
    'a redirect to a private address': [`await fetch('${local.url('/away?to=http://10.0.0.1/')}')`, /Fetch blocked/],
    'a redirect to a file': [`await fetch('${local.url('/away?to=file:///etc/passwd')}')`, /Fetch (blocked|failed)/],
    'a line break in a header': [`await fetch('${local.url('/guide.md')}', { headers: { a: 'b\\r\\nx-evil: 1' } })`, /header/i],
    'a method of a tunnel': [`await fetch('${local.url('/guide.md')}', { method: 'CONNECT' })`, /method/i],
  })

  test('finds nothing of this machine in its VM', async (t) => {
    const local = await service(t)
    for (const [what, body] of Object.entries(nothing)) {
      const gateway = await openGateway(t)
      // The trial may already refuse the code. If it does not, the call of the tool has no effect.
      const { generate } = model({ plans: [plan(planned('attempt'))], handlers: { attempt: [code(body)] } })
      let result
      try {
        const { call } = await booted(gateway, { prompt: `Try, as in ${local.url('/none')}`, generate, allowHosts: [local.host] })
        result = text(await call('attempt'))
      } catch (error) {
        assert.equal(error.code, 'ERR_BOOT_HANDLER', what)
        continue
      }
      assert.match(
        result,
        /undefined|not a function|not defined|not a constructor|is not|no module|cannot|could not|null/i,
        `${what}: ${result}`,
      )
      assert.doesNotMatch(result, /root:|uid=|\[object|\[Module/, what)
      await gateway.close()
    }
  })

  test('fetches from the hosts of the prompt alone', async (t) => {
    const local = await service(t)
    for (const [what, [expression, expected]] of Object.entries(blocked(local))) {
      // A fetch from which no request can be made already fails in the trial.
      const attempt = await withCode(t, local, `const response = ${expression}\nreturn { status: response.status }`).catch((error) => error)
      if (attempt instanceof Error) {
        assert.equal(attempt.code, 'ERR_BOOT_HANDLER', what)
        assert.match(attempt.message, expected, what)
        continue
      }
      const { call } = attempt
      const before = local.requests.length
      const result = await call('attempt')
      assert.equal(result.isError, true, what)
      assert.match(text(result), expected, what)
      assert.ok(
        local.requests.slice(before).every(({ url, headers }) => url.startsWith('/away') && headers['x-evil'] === undefined),
        what,
      )
    }
  })

  test('reaches no private address that nobody allows', async (t) => {
    const local = await service(t)
    const { generate } = model({
      plans: [plan(planned('get', { url: local.url('/guide.md') }))],
      handlers: { get: [code(`return (await fetch('${local.url('/guide.md')}')).status`)] },
    })
    const gateway = await openGateway(t)
    const { call, warnings } = await booted(gateway, { prompt: `Use ${local.url('/guide.md')}`, generate })
    assert.match(warnings.join(), /cannot be read/)
    const result = await call('get')
    assert.equal(result.isError, true)
    assert.match(text(result), /has an address that is not on the public internet/)
    assert.deepEqual(local.requests, [])
  })

  test('that only reads can send GET and HEAD alone', async (t) => {
    const local = await service(t)
    const tool = planned('post', { url: local.url('/guide.md') })
    const handlers = { post: [code(`return (await fetch('${local.url('/guide.md')}', { method: 'POST', body: 'x' })).status`)] }
    const gateway = await openGateway(t)
    const { generate } = model({ plans: [plan(tool)], handlers })
    const { call } = await booted(gateway, { prompt: local.url('/guide.md'), generate, allowHosts: [local.host] })
    assert.match(text(await call('post')), /the method POST can change something/)
    assert.ok(local.requests.every(({ method }) => method === 'GET'))
  })

  test('has a placeholder instead of a key, which is sent to its own host alone', async (t) => {
    process.env.OTHER_KEY = SERVICE_KEY
    t.after(() => delete process.env.OTHER_KEY)
    const [local, other] = [await service(t), await service(t)]
    const gateway = await openGateway(t)
    const body = `const sent = { headers: { 'x-api-key': secrets.OTHER_KEY } }
if (args.read) return secrets.OTHER_KEY
return await (await fetch(args.url, sent)).text()`
    const tool = planned('send', { url: local.url('/api/books'), properties: { url: string, read: { type: 'boolean' } } })
    const { generate } = model({ plans: [plan(tool)], handlers: { send: [code(body)] } })
    const prompt = `Use ${local.url('/guide.md')} and ${other.url('/guide.md')}`
    const allowHosts = [local.host, other.host]
    const { call } = await booted(gateway, { prompt, generate, allowHosts, secrets: [`OTHER_KEY@${local.origin}`] })
    assert.match(text(await call('send', { url: '', read: true })), /^hlsecret_[0-9a-f]{32}$/)
    const answer = text(await call('send', { url: local.url('/api/books'), read: false }))
    assert.match(answer, /Book 1.*hlsecret_/s)
    assert.ok(!answer.includes(SERVICE_KEY))
    assert.match(text(await call('send', { url: other.url('/api/books'), read: false })), /the secret OTHER_KEY is for/)
    assert.ok(other.requests.every(({ headers }) => headers['x-api-key'] === undefined))
  })
})
