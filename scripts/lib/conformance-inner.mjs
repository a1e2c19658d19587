// The MCP server behind `serve` in the server scenarios of the official conformance suite: it has the tools, prompts and resources that the
// suite names. The product passes its questions on to the suite's client. It speaks protocol 2026-07-28 on standard input and output, where
// each question names its own call: many scenarios leave a question unanswered, and no other call waits for it.
import { AsyncLocalStorage } from 'node:async_hooks'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='
const SOUND = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA='
const WATCHED = 'test://watched-resource'

const text = (words) => ({ type: 'text', text: words })
const image = { type: 'image', data: PIXEL, mimeType: 'image/png' }
const embedded = (uri, mimeType, words) => ({ type: 'resource', resource: { uri, mimeType, text: words } })
const says = (...content) => ({ content })
const fields = (properties, required = Object.keys(properties)) => ({ type: 'object', properties, required })
const string = { type: 'string' }
const titled = (first, ...rest) => [first, ...rest].map((title, index) => ({ const: `value${index + 1}`, title }))
const options = ['option1', 'option2', 'option3']

const DEFAULTS = fields(
  {
    name: { ...string, default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { ...string, enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true },
  },
  [],
)
const ENUMS = fields(
  {
    untitledSingle: { ...string, enum: options },
    titledSingle: { ...string, oneOf: titled('First Option', 'Second Option', 'Third Option') },
    legacyEnum: { ...string, enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
    untitledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { ...string, enum: options } },
    titledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { anyOf: titled('First Choice', 'Second Choice', 'Third Choice') } },
  },
  [],
)
const NEWEST_SCHEMA = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: { address: { $anchor: 'addressDef', type: 'object', properties: { street: string, city: string } } },
  properties: {
    name: string,
    address: { $ref: '#/$defs/address' },
    contactMethod: { ...string, enum: ['phone', 'email'] },
    phone: string,
    email: string,
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
}

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
const notify = (method, params) => send({ method, params })
const log = (data) => notify('notifications/message', { level: 'info', data })

/** The call whose code runs. */
const current = new AsyncLocalStorage()
/** Calls that wait for answers, by the state that came with their questions. */
const waiting = new Map()

/** A call that asks in rounds. */
class Call {
  #questions = new Map()
  #count = 0
  #asked
  #begin
  #work

  constructor(begin) {
    this.#begin = begin
  }

  ask(method, params) {
    const answer = new Promise((resolve) => this.#questions.set(`q${++this.#count}`, { method, params, resolve }))
    this.#asked()
    return answer
  }

  /** Returns the result, or the questions before it: all that are asked in one turn. */
  async round(responses = {}) {
    const asked = new Promise((resolve) => {
      this.#asked = () => setImmediate(resolve)
    })
    const answered = [...this.#questions]
    this.#questions.clear()
    for (const [key, { resolve }] of answered) resolve(responses[key])
    this.#work ??= current.run(this, this.#begin)
    const result = await Promise.race([this.#work, asked])
    if (result) return result
    const requestState = `call-${waiting.size + 1}`
    waiting.set(requestState, this)
    const inputRequests = Object.fromEntries([...this.#questions].map(([key, { method, params }]) => [key, { method, params }]))
    return { resultType: 'input_required', inputRequests, requestState }
  }
}

/** Starts or continues a call that may ask. */
function inRounds({ requestState, inputResponses }, work) {
  if (!requestState) return new Call(work).round()
  return waiting.get(requestState).round(inputResponses)
}

const ask = (method, params) => current.getStore().ask(method, params)
const elicit = (message, requestedSchema) => ask('elicitation/create', { message, requestedSchema })
const sample = (prompt) => ask('sampling/createMessage', { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 })
const elicited = ({ action, content }) => says(text(`action=${action}, content=${JSON.stringify(content ?? {})}`))

async function inSteps(step) {
  for (const [index, words] of ['started', 'processing', 'completed'].entries()) {
    step(index, words)
    await sleep(50)
  }
}

/** The tools that ask, named as in the scenarios of `input_required`, and those of protocol 2025-11-25. */
const ASKING = {
  test_sampling: async ({ prompt }) => says(text(`LLM response: ${(await sample(prompt)).content.text}`)),
  test_elicitation: async ({ message }) => elicited(await elicit(message, fields({ username: string, email: string }))),
  test_elicitation_sep1034_defaults: async () => elicited(await elicit('Review the defaults', DEFAULTS)),
  test_elicitation_sep1330_enums: async () => elicited(await elicit('Select options', ENUMS)),
  test_streaming_elicitation: async () => elicited(await elicit('What is your name?', fields({ name: string }))),
  test_missing_capability: async () => {
    const { content, stopReason } = await sample('Hello')
    // The product gives this answer if the caller has no model. This tool can do nothing without one.
    return stopReason === 'refused' ? { ...says(text('It needs a model')), isError: true } : says(content)
  },
  test_input_required_result_elicitation: async () =>
    says(text(`Hello, ${(await elicit('What is your name?', fields({ name: string }))).content?.name}!`)),
  test_input_required_result_sampling: async () => says(text((await sample('What is the capital of France?')).content.text)),
  test_input_required_result_list_roots: async () => says(text(JSON.stringify(await ask('roots/list', {})))),
  test_input_required_result_request_state: async () => {
    await elicit('Please confirm', fields({ ok: { type: 'boolean' } }))
    return says(text('state-ok'))
  },
  test_input_required_result_multiple_inputs: async () => {
    const all = [elicit('What is your name?', fields({ name: string })), sample('Generate a greeting'), ask('roots/list', {})]
    return says(text(JSON.stringify(await Promise.all(all))))
  },
  test_input_required_result_multi_round: async () => {
    const name = await elicit('Step 1: What is your name?', fields({ name: string }))
    const color = await elicit('Step 2: What is your favorite color?', fields({ color: string }))
    return says(text(JSON.stringify([name, color])))
  },
  test_input_required_result_tampered_state: async () => elicited(await elicit('Please confirm', fields({ ok: { type: 'boolean' } }))),
  test_input_required_result_capabilities: async () => {
    // Asks all kinds of questions. The product passes on those that the client has declared.
    const all = await Promise.allSettled([elicit('Please confirm', fields({ ok: { type: 'boolean' } })), sample('Hello')])
    return says(text(JSON.stringify(all.map(({ status }) => status))))
  },
}

const TOOLS = {
  ...ASKING,
  test_simple_text: () => says(text('This is a simple text response for testing.')),
  test_image_content: () => says(image),
  test_audio_content: () => says({ type: 'audio', data: SOUND, mimeType: 'audio/wav' }),
  test_embedded_resource: () => says(embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')),
  test_multiple_content_types: () =>
    says(text('Multiple content types test:'), image, embedded('test://mixed-content-resource', 'application/json', '{"test":"data"}')),
  async test_tool_with_logging() {
    await inSteps((_, words) => log(`Tool execution ${words}`))
    return says(text('logged'))
  },
  async test_logging_tool() {
    log('It logs although nobody has asked for it')
    return says(text('logged'))
  },
  async test_tool_with_progress(_, { progressToken }) {
    await inSteps((index) => notify('notifications/progress', { progressToken, progress: index * 50, total: 100 }))
    return says(text('done'))
  },
  test_error_handling: () => ({ ...says(text('This tool intentionally returns an error for testing')), isError: true }),
  json_schema_2020_12_tool: (args) => says(text(JSON.stringify(args))),
  test_x_mcp_header: (args) => says(text(JSON.stringify(args))),
}

const ARGUMENTS = {
  test_sampling: fields({ prompt: string }),
  test_elicitation: fields({ message: string }),
  json_schema_2020_12_tool: NEWEST_SCHEMA,
  test_x_mcp_header: fields({ region: { ...string, 'x-mcp-header': 'Region' } }),
}

const PROMPTS = {
  test_simple_prompt: () => [text('This is a simple prompt for testing.')],
  test_prompt_with_arguments: ({ arg1, arg2 }) => [text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
  test_prompt_with_embedded_resource: ({ resourceUri }) => [embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.')],
  test_prompt_with_image: () => [image, text('Please analyze the image above.')],
  test_input_required_result_prompt: async () => {
    const { content } = await elicit('What context should the prompt use?', fields({ context: string }))
    return [text(`Use ${JSON.stringify(content)}`)]
  },
}
const PROMPT_ARGUMENTS = { test_prompt_with_arguments: ['arg1', 'arg2'], test_prompt_with_embedded_resource: ['resourceUri'] }

const RESOURCES = {
  'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { mimeType: 'image/png', blob: PIXEL },
  [WATCHED]: { mimeType: 'text/plain', text: 'Watched resource content' },
}

function read({ uri }) {
  const id = /^test:\/\/template\/(\w+)\/data$/.exec(uri)?.[1]
  if (id) return { contents: [{ uri, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true }) }] }
  if (!RESOURCES[uri]) throw Object.assign(new Error('Resource not found'), { code: -32002, data: { uri } })
  return { contents: [{ uri, ...RESOURCES[uri] }] }
}

/** With `--spare`, it has one tool, and no item that another server has too. Its approval is given and revoked. */
const isSpare = process.argv.includes('--spare')
const names = (all) => (isSpare ? [] : Object.keys(all))

const METHODS = {
  'server/discover': () => ({
    supportedVersions: ['2026-07-28'],
    capabilities: { tools: {}, prompts: {}, resources: { subscribe: true }, logging: {}, completions: {} },
  }),
  'tools/list': () => ({
    tools: (isSpare ? ['test_simple_text'] : Object.keys(TOOLS)).map((name) => ({
      name,
      description: `The tool ${name} of the conformance suite`,
      inputSchema: ARGUMENTS[name] ?? { type: 'object', properties: {} },
    })),
  }),
  'tools/call': (params) => inRounds(params, async () => TOOLS[params.name](params.arguments ?? {}, params._meta)),
  'prompts/list': () => ({
    prompts: names(PROMPTS).map((name) => ({
      name,
      description: `The prompt ${name} of the conformance suite`,
      arguments: (PROMPT_ARGUMENTS[name] ?? []).map((argument) => ({ name: argument, description: 'text', required: true })),
    })),
  }),
  'prompts/get': (params) =>
    inRounds(params, async () => {
      const contents = await PROMPTS[params.name](params.arguments ?? {})
      return { messages: contents.map((content) => ({ role: 'user', content })) }
    }),
  'resources/list': () => ({
    resources: names(RESOURCES).map((uri) => ({
      uri,
      name: uri.slice('test://'.length),
      description: uri,
      mimeType: RESOURCES[uri].mimeType,
    })),
  }),
  'resources/templates/list': () => ({
    resourceTemplates: names({ 'test://template/{id}/data': true }).map((uriTemplate) => ({
      uriTemplate,
      name: 'template',
      description: 'data',
      mimeType: 'application/json',
    })),
  }),
  'resources/read': read,
  'completion/complete': () => ({ completion: { values: ['testing'], total: 1, hasMore: false } }),
}

const META = { 'io.modelcontextprotocol/serverInfo': { name: 'conformance-inner', version: '1.0.0' } }

/** Acknowledges a subscription. Nothing changes here, so no notification follows, and the request gets no answer. */
function listen({ id, params }) {
  const meta = { 'io.modelcontextprotocol/subscriptionId': id }
  notify('notifications/subscriptions/acknowledged', { _meta: meta, notifications: params.notifications })
}

async function answer({ id, method, params }) {
  try {
    if (!METHODS[method]) throw Object.assign(new Error('Method not found'), { code: -32601 })
    const result = await METHODS[method](params)
    send({ id, result: { resultType: 'complete', ttlMs: 0, cacheScope: 'private', _meta: META, ...result } })
  } catch (error) {
    send({ id, error: { code: error.code ?? -32603, message: error.message, data: error.data } })
  }
}

createInterface(process.stdin).on('line', (line) => {
  const message = JSON.parse(line)
  if (message.method === 'subscriptions/listen') listen(message)
  else if (message.id !== undefined) answer(message)
})
