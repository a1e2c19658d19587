// The tools of `gateway.agentTools()` in the forms of others. Nothing of theirs is imported: what they look for is plain data.

/** The symbol that marks a schema for the AI SDK without its own `jsonSchema()` (`@ai-sdk/provider-utils`). */
const AI_SCHEMA = Symbol.for('vercel.ai.schema')

/** Returns tools for `tools` of the AI SDK's `generateText`, `streamText` and agents. */
function forAiSdk(tools) {
  return Object.fromEntries(
    tools.map(({ name, description, inputSchema, execute }) => [
      name,
      {
        description,
        inputSchema: { [AI_SCHEMA]: true, _type: undefined, jsonSchema: inputSchema, validate: undefined },
        execute: (args, { abortSignal } = {}) => execute(args, { signal: abortSignal }),
        toModelOutput: aiSdkOutput,
      },
    ]),
  )
}

/**
 * Returns the part of an answer that a model gets. Version 6 passes the answer as `output` with the call's id, version 5 the answer itself.
 */
function aiSdkOutput(given) {
  const output = isObject(given) && 'toolCallId' in given && 'output' in given ? given.output : given
  const content = mediaOf(output)
  if (content.length === 0) return { type: 'json', value: output ?? null }
  const media = content.map(({ mimeType, data }) => ({ type: 'media', data, mediaType: mimeType }))
  return { type: 'content', value: [{ type: 'text', text: text(output) }, ...media] }
}

/** Returns tools for `tools` of OpenAI's Chat Completions, or with `{ api: 'responses' }` of its Responses. */
function forOpenAi(tools, { api = 'chat', strict = true } = {}) {
  if (api !== 'chat' && api !== 'responses') {
    const given = typeof api === 'string' ? `'${api}'` : typeof api
    throw invalid(`forOpenAi: api must be 'chat' or 'responses', not ${given}`)
  }
  return tools.map(({ name, description, inputSchema }) => {
    const definition = { name, description, parameters: inputSchema, strict }
    return api === 'chat' ? { type: 'function', function: definition } : { type: 'function', ...definition }
  })
}

/** Returns a word for an error about a value that is not a message of the provider. */
const shown = (value) =>
  value === null ? 'null' : Array.isArray(value) ? 'a list' : typeof value === 'object' ? 'an object' : typeof value

/**
 * Executes the calls of a model's answer and returns the items to append after it: `message` of a chat completion, or `output` of a
 * response. Empty where nothing is called.
 */
async function answerOpenAi(tools, answer, options) {
  if (Array.isArray(answer)) {
    const calls = answer.filter((item) => item?.type === 'function_call')
    return each(calls, async ({ call_id, name, arguments: args }) => {
      const output = await executed(tools, name, args, options)
      return { type: 'function_call_output', call_id, output: responsesOutput(output) }
    })
  }
  const calling = answer?.tool_calls ?? []
  const isMessage = isObject(answer) && (answer.role === 'assistant' || answer.tool_calls !== undefined) && Array.isArray(calling)
  if (!isMessage) {
    const expected = 'the message of a chat completion (completion.choices[0].message), or the output of a response (response.output)'
    throw invalid(`answerOpenAi: expected ${expected}, not ${shown(answer)}`)
  }
  const calls = calling.filter(isObject)
  const parts = []
  const answers = await each(calls, async ({ id, function: called, custom }) => {
    const output = await executed(tools, called?.name ?? custom?.name, called?.arguments ?? custom?.input, options)
    const media = mediaOf(output)
    if (media.length > 0) parts.push({ type: 'text', text: `The result of the call ${id} has:` }, ...media.map(chatPart))
    return { role: 'tool', tool_call_id: id, content: text(output) }
  })
  // A message of a tool takes text alone, so images and sounds follow in a message of the user, after the answers to all calls.
  return parts.length === 0 ? answers : [...answers, { role: 'user', content: parts }]
}

/** A call's output for Responses: text, or a list with its images. */
function responsesOutput(output) {
  const media = mediaOf(output)
  if (media.length === 0) return text(output)
  const part = ({ type, mimeType, data }) =>
    type === 'image'
      ? { type: 'input_image', image_url: `data:${mimeType};base64,${data}`, detail: 'auto' }
      : { type: 'input_text', text: notPassedOn(type, mimeType) }
  return [{ type: 'input_text', text: text(output) }, ...media.map(part)]
}

/** The formats of sounds that Chat Completions takes. */
const CHAT_AUDIO = { 'audio/wav': 'wav', 'audio/mpeg': 'mp3' }

function chatPart({ type, mimeType, data }) {
  if (type === 'image') return { type: 'image_url', image_url: { url: `data:${mimeType};base64,${data}` } }
  const format = CHAT_AUDIO[mimeType]
  return format === undefined ? { type: 'text', text: notPassedOn(type, mimeType) } : { type: 'input_audio', input_audio: { data, format } }
}

/** Returns tools for `tools` of Anthropic's Messages. */
function forAnthropic(tools) {
  return tools.map(({ name, description, inputSchema }) => ({ name, description, input_schema: inputSchema }))
}

/** Executes the calls of a message and returns the messages to append after it: one with all results, or none if nothing is called. */
async function answerAnthropic(tools, message, options) {
  const isText = typeof message?.content === 'string'
  if (!isText && !Array.isArray(message?.content)) {
    throw invalid(`answerAnthropic: expected a message of the Messages API, with its content, not ${shown(message)}`)
  }
  const content = isText ? [] : message.content
  const calls = content.filter((item) => item?.type === 'tool_use')
  if (calls.length === 0) return []
  const results = await each(calls, async ({ id, name, input }) => {
    const output = await executed(tools, name, input, options)
    const result = { type: 'tool_result', tool_use_id: id, content: anthropicContent(output) }
    return output?.error === undefined ? result : { ...result, is_error: true }
  })
  return [{ role: 'user', content: results }]
}

/** The content of a result: text, or a list with its images. */
function anthropicContent(output) {
  const media = mediaOf(output)
  if (media.length === 0) return text(output)
  const part = ({ type, mimeType, data }) =>
    type === 'image'
      ? { type: 'image', source: { type: 'base64', media_type: mimeType, data } }
      : { type: 'text', text: notPassedOn(type, mimeType) }
  return [{ type: 'text', text: text(output) }, ...media.map(part)]
}

/**
 * Returns tools for LangChain. `tool` is the function of `@langchain/core/tools`. The content of an answer is JSON text, followed by images
 * and sounds.
 */
function forLangChain(tools, { tool } = {}) {
  if (typeof tool !== 'function') throw invalid('forLangChain: give { tool }, the function of @langchain/core/tools')
  return tools.map(({ name, description, inputSchema, execute }) =>
    tool(async (args, config) => langChainContent(await execute(args, { signal: config?.signal })), {
      name,
      description,
      schema: lenient(inputSchema),
    }),
  )
}

/** LangChain's own packages for providers know these blocks: `image_url` for images, and the standard block for sounds. */
function langChainContent(output) {
  const media = mediaOf(output)
  if (media.length === 0) return text(output)
  const part = ({ type, mimeType, data }) =>
    type === 'image'
      ? { type: 'image_url', image_url: { url: `data:${mimeType};base64,${data}` } }
      : { type: 'audio', source_type: 'base64', mime_type: mimeType, data }
  return [{ type: 'text', text: text(output) }, ...media.map(part)]
}

/** LangChain checks a model's arguments against the schema itself: parameters that may be null may be missing there. */
function lenient(schema) {
  const required = schema.required.filter((name) => !schema.properties[name].type.includes('null'))
  return { ...schema, required }
}

const invalid = (message) => Object.assign(new TypeError(message), { code: 'ERR_INVALID_OPTION' })
const isObject = (value) => typeof value === 'object' && value !== null

/**
 * The images and sounds of an answer of hyperlight-mcp. They are not enumerable, so that data of other tools with such a field is not taken
 * for them.
 */
function mediaOf(output) {
  if (!isObject(output) || Object.prototype.propertyIsEnumerable.call(output, 'content')) return []
  return Array.isArray(output.content) ? output.content : []
}

const notPassedOn = (type, mimeType) => `(the ${type}, ${mimeType}, cannot be passed on: this API takes none here)`

/** Returns an answer as the text that a model reads. `others` may return a value that JSON cannot express. */
function text(output) {
  try {
    return JSON.stringify(output) ?? 'null'
  } catch {
    return JSON.stringify({ error: { code: 'ERR_INVALID_VALUE', message: 'the tool answered with a value that JSON cannot express' } })
  }
}

/** Answers the calls one after another, so that ten calls of a model at once do not compete for its own limits. */
async function each(calls, answer) {
  const answers = []
  for (const call of calls) answers.push(await answer(call))
  return answers
}

/** Answers every call, because the providers require it. `others` answers calls of other tools. */
async function executed(tools, name, args, { signal, others } = {}) {
  const found = tools.find((tool) => tool.name === name)
  if (found !== undefined) return found.execute(args, { signal })
  const answer = await others?.(name, args, { signal })
  if (answer !== undefined) return answer
  const asked = typeof name === 'string' ? JSON.stringify(name.slice(0, 100)) : `of that name (${typeof name})`
  const message = `there is no tool ${asked}; there are: ${tools.map((tool) => tool.name).join(', ')}`
  return { error: { code: 'ERR_UNKNOWN_TOOL', message } }
}

module.exports = { forAiSdk, forOpenAi, answerOpenAi, forAnthropic, answerAnthropic, forLangChain }
