// Four documented services, each the whole way: from a prompt to a plan, to code, to the official client, which calls every tool and gets the right data,
// and once more from a second start without a model.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { digestIn, number, serving, text, withKey } from './boot-command.mjs'
import { code, KINDS, model, plan, planned, provider, SERVICE_KEY, service } from './booting.mjs'
import { place, run } from './command-line.mjs'
import { ERAS, overHttp } from './serving.mjs'

const string = { type: 'string' }

/**
 * Makes the tools of a page and calls each of them. A tool has its `url` (below the service), the other fields of its plan, its code, and
 * its calls with their arguments and expected results. `page` is the text that the model must have read.
 */
async function wholeWay(t, { path, page, tools, words = [], env = {} }) {
  const at = place(t)
  const local = await service(t)
  const origin = local.origin
  const entries = Object.entries(tools)
  const plans = [plan(...entries.map(([name, { url, ...planOf }]) => planned(name, { url: url && local.url(url), ...planOf })))]
  const handlers = Object.fromEntries(entries.map(([name, { body }]) => [name, [code(body(origin))]]))
  const { generate, asked } = model({ plans, handlers })
  const { baseUrl, requests } = await provider(t, 'openai', { generate })
  const line = ['boot', '--prompt', `Tools for the service at ${local.url(path)}`, '--allow-host', local.host, '--port', '0', ...words]
  const first = await run(at, [...line, '--provider', 'openai', '--base-url', baseUrl], { env: { ...withKey('openai').env, ...env } })
  assert.match(first.stderr, new RegExp(`planned ${entries.length} tools?,`))
  assert.match(asked[0].user, page)
  assert.equal(asked.length, 1 + entries.length)

  // The first start has the digest that a person has read, and the second has nothing: neither has a key of the model, nor its address.
  for (const [era, more] of [
    [Object.keys(ERAS)[0], ['--digest', digestIn(first)]],
    [Object.keys(ERAS)[1], []],
  ]) {
    const { url, child, ended } = await serving(t, at, [...line, ...more], env)
    const client = await overHttp(t, url, { era })
    const listed = await client.listTools()
    assert.deepEqual(listed.tools.map(({ name }) => name).sort(), Object.keys(tools).sort())
    for (const [name, { reads = true, calls }] of entries) {
      assert.equal(listed.tools.find((tool) => tool.name === name).annotations.readOnlyHint, reads, name)
      for (const [args, expected] of calls) {
        const result = await client.callTool({ name, arguments: args })
        if (expected instanceof RegExp) {
          assert.deepEqual([result.isError, expected.test(text(result))], [true, true], `${name}: ${text(result)}`)
        } else assert.deepEqual(result.structuredContent, expected, `${name}: ${text(result)}`)
      }
    }
    child.kill('SIGTERM')
    assert.equal((await ended).code, 0)
  }
  assert.deepEqual([asked.length, requests.length], [1 + entries.length, 1 + entries.length], 'a model was asked once more')
  return { local, first }
}

const json = (url, options = '') => `const response = await fetch(${url}${options})
if (!response.ok) throw new Error('status ' + response.status)
return await response.json()`

test('a JSON REST API with pages and a key', async (t) => {
  const sent = "{ headers: { 'x-api-key': secrets.BOOKS_KEY } }"
  const all = (origin) => `const titles = []
for (let page = 1; page !== null; ) {
  const response = await fetch('${origin}/api/books?page=' + page, ${sent})
  if (!response.ok) throw new Error('status ' + response.status)
  const body = await response.json()
  titles.push(...body.books.map((book) => book.title))
  page = body.next
}
return { titles }`
  const one = (origin) => `const response = await fetch('${origin}/api/books?page=' + args.page, ${sent})
const { books, next } = await response.json()
return { ids: books.map((book) => book.id), next }`
  const without = (origin) => json(`'${origin}/api/books'`)
  const { local } = await wholeWay(t, {
    path: '/rest.json',
    page: /GET \/api\/books\?page=N.*x-api-key/,
    env: { BOOKS_KEY: SERVICE_KEY },
    words: ['--secret', 'BOOKS_KEY'],
    tools: {
      list_books: { url: '/api/books', body: all, calls: [[{}, { titles: [1, 2, 3, 4, 5, 6, 7].map((number) => `Book ${number}`) }]] },
      page_of_books: {
        url: '/api/books',
        properties: { page: { type: 'integer', minimum: 1 } },
        body: one,
        calls: [
          [{ page: 1 }, { ids: [1, 2, 3], next: 2 }],
          [{ page: 3 }, { ids: [7], next: null }],
        ],
      },
      without_a_key: { url: '/api/books', body: without, calls: [[{}, /status 401/]] },
    },
  })
  const keys = new Set(local.requests.filter(({ url }) => url.startsWith('/api/books?')).map(({ headers }) => headers['x-api-key']))
  assert.deepEqual([...keys], [SERVICE_KEY])
})

test(`an OpenAPI 3.1 document of ${3 * KINDS} operations, each of which is a tool`, async (t) => {
  const ofKind = (kind) => {
    const all = `/things/things${kind}`
    const created = `, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ name: args.name }) }`
    return [
      [
        `list_things${kind}`,
        {
          url: all,
          body: (origin) => json(`'${origin}${all}'`),
          calls: [[{}, { things: ['a', 'b'].map((id) => ({ id, number: kind })) }]],
        },
      ],
      [
        `get_thing${kind}`,
        {
          url: `${all}/{id}`,
          properties: { id: string },
          body: (origin) => json(`'${origin}${all}/' + encodeURIComponent(args.id)`),
          calls: [[{ id: `a b/${kind}` }, { id: `a b/${kind}`, number: kind }]],
        },
      ],
      [
        `create_thing${kind}`,
        {
          url: all,
          method: 'POST',
          reads: false,
          properties: { name: string },
          body: (origin) => json(`'${origin}${all}'`, created),
          calls: [[{ name: `Ünique ${kind}` }, { id: 'new', number: kind, name: `Ünique ${kind}` }]],
        },
      ],
    ]
  }
  const tools = Object.fromEntries(Array.from({ length: KINDS }, (_, kind) => ofKind(kind)).flat())
  assert.equal(Object.keys(tools).length, 45)
  const { first } = await wholeWay(t, { path: '/openapi.json', page: /"openapi": ?"3\.1\.0"[\s\S]*listThings0[\s\S]*getThing14/, tools })
  assert.match(first.stderr, /wrote \w+ \(45 of 45\)/)
})

test('a Markdown page', async (t) => {
  const at = (origin) => `'${origin}/weather/forecast/' + encodeURIComponent(args.city)`
  await wholeWay(t, {
    path: '/guide.md',
    page: /# Weather[\s\S]*GET \/forecast\/\{city\}/,
    tools: {
      get_forecast: {
        url: '/weather/forecast/{city}',
        properties: { city: string },
        body: (origin) => json(at(origin)),
        calls: [
          [{ city: 'Oslo' }, { city: 'Oslo', days: [-3, -1] }],
          [{ city: 'São Paulo' }, { city: 'São Paulo', days: [24, 27] }],
          [{ city: 'Nowhere' }, /status 404/],
        ],
      },
      warmest_day: {
        url: '/weather/forecast/{city}',
        properties: { city: string },
        body: (origin) => `const { days } = await (await fetch(${at(origin)})).json()\nreturn { warmest: Math.max(...days) }`,
        calls: [[{ city: 'Oslo' }, { warmest: -1 }]],
      },
    },
  })
})

test('an HTML page with navigation around it', async (t) => {
  const rates = (origin) => `const rates = await (await fetch('${origin}/rates/latest')).json()`
  const { first } = await wholeWay(t, {
    path: '/page.html',
    // The text of the page without its navigation.
    page: /^(?![\s\S]*Page 49)[\s\S]*Requests go to[\s\S]*\/latest/,
    tools: {
      get_rates: { url: '/rates/latest', body: (origin) => `${rates(origin)}\nreturn rates`, calls: [[{}, { EUR: 1, NOK: 11.5 }]] },
      convert: {
        url: '/rates/latest',
        properties: { amount: number, to: { type: 'string', enum: ['EUR', 'NOK'] } },
        body: (origin) => `${rates(origin)}\nreturn { amount: args.amount * rates[args.to] }`,
        calls: [
          [{ amount: 4, to: 'NOK' }, { amount: 46 }],
          [{ amount: 4, to: 'EUR' }, { amount: 4 }],
        ],
      },
    },
  })
  assert.doesNotMatch(first.stderr, /elsewhere\d+\.example/, 'a link of the navigation is allowed')
})
