// Code that the tests of `boot` share: services with documentation, and a provider whose model gives answers that were written for the
// test.
import { createServer } from 'node:http'
import { afterwards } from './processes.mjs'

/** The key of the documented services. */
export const SERVICE_KEY = 'service-key-0123456789'
/** The key of the model's provider. */
export const MODEL_KEY = 'sk-test-0123456789abcdef'

async function listening(t, server) {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  afterwards(t, () => {
    server.close()
    server.closeAllConnections()
  })
  return `127.0.0.1:${server.address().port}`
}

const books = Array.from({ length: 7 }, (_, index) => ({ id: index + 1, title: `Book ${index + 1}` }))

/** The number of kinds of things in the OpenAPI document. */
export const KINDS = 15

/** An OpenAPI document of 45 operations: of each kind of thing, all are listed, one is read and one is made. */
function openapi(origin) {
  const json = (name) => ({ 'application/json': { schema: { $ref: `#/components/schemas/${name}` } } })
  const answer = (status, name) => ({ [status]: { description: 'as asked', content: json(name) } })
  const description = (number) => `This operation is for things of the kind ${number}. `.repeat(3)
  const list = (number) => ({ operationId: `listThings${number}`, description: description(number), responses: answer(200, 'Things') })
  const create = (number) => ({
    operationId: `createThing${number}`,
    description: description(number),
    requestBody: { required: true, content: json('NewThing') },
    responses: answer(201, 'Thing'),
  })
  const read = (number) => ({
    operationId: `getThing${number}`,
    description: description(number),
    parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
    responses: answer(200, 'Thing'),
  })
  const ofKind = (number) => [
    [`/things${number}`, { get: list(number), post: create(number) }],
    [`/things${number}/{id}`, { get: read(number) }],
  ]
  const properties = { id: { type: 'string' }, number: { type: 'integer', exclusiveMinimum: -1 }, name: { type: ['string', 'null'] } }
  const schemas = {
    Thing: { type: 'object', properties },
    NewThing: { type: 'object', required: ['name'], properties: { name: properties.name } },
    Things: { type: 'object', properties: { things: { type: 'array', items: { $ref: '#/components/schemas/Thing' } } } },
  }
  const paths = Object.fromEntries(Array.from({ length: KINDS }, (_, number) => ofKind(number)).flat())
  const info = { title: 'Things', version: '1' }
  return { openapi: '3.1.0', info, servers: [{ url: `${origin}/things` }], paths, components: { schemas } }
}

/** Returns the answer of the service that the OpenAPI document describes: its status and body. */
async function things(request, kind, id) {
  const number = Number(kind)
  if (id !== undefined) return [200, { id, number }]
  if (request.method !== 'POST') return [200, { things: ['a', 'b'].map((id) => ({ id, number })) }]
  let body = ''
  for await (const chunk of request) body += chunk
  return [201, { id: 'new', number, name: JSON.parse(body).name }]
}

/** The pages and the API of one service, by path. */
function answers(origin) {
  const navigation = Array.from({ length: 50 }, (_, index) => `<li><a href="https://elsewhere${index}.example/">Page ${index}</a></li>`)
  return {
    '/rest.json': ['application/json', JSON.stringify({ service: 'Books', list: 'GET /api/books?page=N', key: 'header x-api-key' })],
    '/openapi.json': ['application/json', JSON.stringify(openapi(origin))],
    '/guide.md': ['text/markdown', `# Weather\n\nThe address is \`${origin}/weather\`.\n\n## GET /forecast/{city}\n`],
    '/page.html': [
      'text/html',
      `<!doctype html><html><body><nav><ul>${navigation.join('')}</ul></nav><main><h1>Rates</h1><p>Requests go to
      <code>${origin}/rates</code>. The path for the newest rates is <code>/latest</code>.</p></main></body></html>`,
    ],
    '/weather/forecast/Oslo': ['application/json', '{"city":"Oslo","days":[-3,-1]}'],
    '/rates/latest': ['application/json', '{"EUR":1,"NOK":11.5}'],
    '/weather/forecast/S%C3%A3o%20Paulo': ['application/json', '{"city":"São Paulo","days":[24,27]}'],
  }
}

/** Starts a service with documentation as JSON, OpenAPI, Markdown and HTML. `requests` has all requests that it got. */
export async function service(t) {
  const requests = []
  const held = new Map()
  let known
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://x')
    requests.push({ method: request.method, url: request.url, headers: request.headers })
    await held.get(pathname)
    if (pathname === '/api/books') {
      if (request.headers['x-api-key'] !== SERVICE_KEY) return response.writeHead(401).end('{"error":"no key"}')
      const page = Number(searchParams.get('page') ?? 1)
      const body = { books: books.slice((page - 1) * 3, page * 3), next: page < 3 ? page + 1 : null, echo: request.headers['x-api-key'] }
      return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body))
    }
    const [, kind, id] = /^\/things\/things(\d+)(?:\/(.+))?$/.exec(pathname) ?? []
    if (kind < KINDS) {
      const [status, body] = await things(request, kind, id && decodeURIComponent(id))
      return response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
    }
    if (pathname === '/away') return response.writeHead(302, { location: searchParams.get('to') }).end()
    const [type, text] = known[pathname] ?? []
    if (text === undefined) return response.writeHead(404).end('no such page')
    const etag = `"${text.length}"`
    if (request.headers['if-none-match'] === etag) return response.writeHead(304, { etag }).end()
    response.writeHead(200, { 'content-type': type, etag }).end(text)
  })
  const host = await listening(t, server)
  known = answers(`http://${host}`)
  return {
    host,
    origin: `http://${host}`,
    url: (path) => `http://${host}${path}`,
    requests,
    set: (path, type, text) => (known[path] = [type, text]),
    /** Answers no request for a path any more, until the returned function is called. */
    hold(path) {
      let release
      const released = new Promise((resolve) => (release = resolve))
      held.set(path, released)
      afterwards(t, release)
      return release
    },
  }
}

const object = (properties) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false })

/** Returns a tool of a plan, in the form in which a model writes it. */
export const planned = (name, { url, properties = {}, reads = true, method = 'GET' } = {}) => ({
  name,
  description: `Does ${name}.`,
  input_schema: object(properties),
  endpoints: url ? [{ method, url }] : [],
  implementation_notes: 'Return the JSON.',
  needs_network: url !== undefined,
  read_only: reads,
})
export const plan = (...tools) => JSON.stringify({ tools })
export const code = (body) => `Here it is:\n\`\`\`js\n${body}\n\`\`\``

/** Returns the tool whose code a request asks for. Returns undefined for a request for the plan. */
const toolOf = (user) => /^# Tool\n\n\{\s+"name": "(\w+)"/.exec(user)?.[1]

/**
 * Returns a model. `plans` and the lists in `handlers` are its answers, in order, and the last answer is repeated. `asked` has all
 * requests. A model without answers must not be asked.
 */
export function model({ plans = [], handlers = {} } = {}) {
  const asked = []
  const next = (list) => (list.length > 1 ? list.shift() : list[0])
  const generate = async ({ system, user, maxTokens, signal }) => {
    const tool = toolOf(user)
    asked.push({ tool, system, user, maxTokens, signal })
    const answer = tool === undefined ? next(plans) : next(handlers[tool] ?? [])
    if (answer === undefined) throw new Error(`the model may not be asked for ${tool ?? 'a plan'}`)
    return answer
  }
  return { generate, asked }
}

/**
 * Starts a provider that speaks the wire format of `kind` and gives the model's answers. An answer that is an object is written unchanged.
 * `onClose` is called when an answer is over, or nobody waits for it any more.
 */
export async function provider(t, kind, { generate, onClose = () => {} }) {
  const requests = []
  const server = createServer(async (request, response) => {
    response.on('close', onClose)
    let body = ''
    for await (const chunk of request) body += chunk
    requests.push({ url: request.url, headers: request.headers, body })
    const { system, messages } = JSON.parse(body)
    const textOf = (content) => (typeof content === 'string' ? content : content.map(({ text }) => text).join(''))
    const user = textOf(messages.findLast(({ role }) => role === 'user').content)
    const answer = await generate({ system: system && textOf(system), user })
    if (answer.hangUp)
      return response.writeHead(200, { 'content-type': 'application/json' }).write('{"type":"mess', () => response.destroy())
    const { status = 200, type = 'application/json', raw } = typeof answer === 'string' ? {} : answer
    response.writeHead(status, { 'content-type': type, ...answer.headers }).end(raw ?? JSON.stringify(wire[kind](answer)))
  })
  return { baseUrl: `http://${await listening(t, server)}/v1`, requests }
}

const wire = {
  anthropic: (text) => ({
    type: 'message',
    id: '1',
    model: 'm',
    role: 'assistant',
    content: [{ type: 'text', text }],
    stop_reason: 'end_turn',
    usage: { input_tokens: 1, output_tokens: 1 },
  }),
  openai: (content) => ({
    id: '1',
    created: 1,
    model: 'm',
    object: 'chat.completion',
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  }),
}
