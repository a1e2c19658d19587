// The tools of `gateway.agentTools()` in the forms of others. No package of a provider is imported, because each provider accepts plain
// data.

/** The symbol that marks a schema for the AI SDK without its own `jsonSchema()` (`@ai-sdk/provider-utils`). */
const AI_SCHEMA = Symbol.for('vercel.ai.schema')

/**
 * Returns tools for `tools` of the AI SDK's `generateText`, `streamText` and agents. `media` lists the kinds that the model's provider accepts
 * in the result of a tool. None by default: the SDK does not say which provider an answer goes to, and some send what they do not know as text.
 */
function forAiSdk(tools, { media = [] } = {}) {
  if (!Array.isArray(media) || media.some((kind) => kind !== 'image' && kind !== 'audio')) {
    throw invalid("forAiSdk: media must be a list of 'image' and 'audio', the kinds that the provider takes in the result of a tool")
  }
  return Object.fromEntries(
    tools.map(({ name, description, inputSchema, execute }) => [
      name,
      {
        description,
        inputSchema: { [AI_SCHEMA]: true, _type: undefined, jsonSchema: inputSchema, validate: undefined },
        execute: (args, { abortSignal } = {}) => execute(args, { signal: abortSignal }),
        toModelOutput: (given) => aiSdkOutput(given, media),
      },
    ]),
  )
}

/**
 * Returns the part of an answer that a model gets. Version 6 passes the answer as `output` with the call's id, version 5 the answer itself.
 */
function aiSdkOutput(given, kinds) {
  const output = isObject(given) && 'toolCallId' in given && 'output' in given ? given.output : given
  const content = mediaOf(output)
  if (content.length === 0) return { type: 'json', value: output ?? null }
  // The result is one text if no image or sound is passed on, because a provider that accepts no list would write the list as JSON.
  if (!content.some(({ type }) => kinds.includes(type))) return { type: 'text', value: textAlone(output) }
  const part = ({ type, mimeType, data }) =>
    kinds.includes(type) ? { type: 'media', data, mediaType: mimeType } : { type: 'text', text: notPassedOn(type, mimeType) }
  return { type: 'content', value: [{ type: 'text', text: text(output) }, ...content.map(part)] }
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

/** Types of blocks and items that only one provider has. */
const ANTHROPIC_BLOCKS = ['text', 'image', 'thinking', 'redacted_thinking', 'tool_use', 'server_tool_use', 'tool_result']
const RESPONSES_PARTS = ['output_text']

const hasAny = (list, types) => Array.isArray(list) && list.some((item) => types.includes(item?.type))

/** Describes what `answerOpenAi` was given, for its error. Returns `undefined` for a message or an output. */
function notOfOpenAi(answer) {
  const anthropic = 'a message of Anthropic, which answerAnthropic takes'
  if (Array.isArray(answer)) {
    if (answer.some((item) => isObject(item?.message))) return 'the choices of a completion: give choices[0].message'
    if (hasAny(answer, ANTHROPIC_BLOCKS)) return 'the content of a message of Anthropic: give the message to answerAnthropic'
    if (answer.some((item) => item?.role !== undefined && item.type === undefined)) return 'a list of messages: give the last one'
    return answer.every((item) => typeof item?.type === 'string') ? undefined : 'a list of other things'
  }
  if (!isObject(answer)) return shown(answer)
  if (Array.isArray(answer.choices)) return 'a completion: give choices[0].message'
  if (Array.isArray(answer.output)) return 'a response: give its output'
  if (hasAny(answer.content, RESPONSES_PARTS)) return 'one item of a response: give its whole output'
  if (answer.type === 'message' || hasAny(answer.content, ['tool_use'])) return anthropic
  if (hasAny(answer.content, ['tool-call'])) return 'a message of the AI SDK, which calls the tools of forAiSdk by itself'
  const calls = answer.tool_calls ?? []
  return (answer.role === 'assistant' || answer.tool_calls !== undefined) && Array.isArray(calls) ? undefined : 'an object'
}

/** Describes what `answerAnthropic` was given, for its error. Returns `undefined` for a message. */
function notOfAnthropic(message) {
  if (!isObject(message) || Array.isArray(message)) return shown(message)
  if (message.tool_calls !== undefined || message.refusal !== undefined) return 'a message of OpenAI, which answerOpenAi takes'
  if (Array.isArray(message.choices)) return 'a completion of OpenAI: give choices[0].message to answerOpenAi'
  if (Array.isArray(message.output) || hasAny(message.content, RESPONSES_PARTS)) {
    return 'a response of OpenAI: give its output to answerOpenAi'
  }
  if (hasAny(message.content, ['tool-call'])) return 'a message of the AI SDK, which calls the tools of forAiSdk by itself'
  if (message.role !== undefined && message.role !== 'assistant') return `a message of the role ${String(message.role).slice(0, 20)}`
  if (typeof message.content === 'string') return undefined
  const isContent = Array.isArray(message.content) && message.content.every((block) => typeof block?.type === 'string')
  return isContent ? undefined : 'an object'
}

/**
 * Executes the calls of a model's answer and returns the items to append after it: `message` of a chat completion, or `output` of a
 * response. Returns an empty list if nothing is called.
 */
async function answerOpenAi(tools, answer, options) {
  const other = notOfOpenAi(answer)
  if (other !== undefined) {
    const expected = 'the message of a chat completion (completion.choices[0].message), or the output of a response (response.output)'
    throw invalid(`answerOpenAi: expected ${expected}, not ${other}`)
  }
  if (Array.isArray(answer)) {
    const calls = answer.filter((item) => item?.type === 'function_call')
    return each(calls, async ({ call_id, name, arguments: args }) => {
      const output = await executed(tools, name, args, options)
      return { type: 'function_call_output', call_id, output: responsesOutput(output) }
    })
  }
  const calls = (answer.tool_calls ?? []).filter(isObject)
  const parts = []
  const answers = await each(calls, async ({ id, function: called, custom }) => {
    const output = await executed(tools, called?.name ?? custom?.name, called?.arguments ?? custom?.input, options)
    parts.push(...shownToUser(id, mediaOf(output)))
    return { role: 'tool', tool_call_id: id, content: text(output) }
  })
  // A message of a tool takes only text, so images and sounds follow in a message of the user, after the answers to all calls.
  return parts.length === 0 ? answers : [...answers, { role: 'user', content: parts }]
}

/** Returns the parts of a user message (Chat Completions) that show the images and sounds in a call's result. */
const shownToUser = (id, media) =>
  media.length === 0 ? [] : [{ type: 'text', text: `The result of the call ${id} has:` }, ...media.map(chatPart)]

/** Returns the output of a call for Responses: text, or a list with its images. */
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
  const other = notOfAnthropic(message)
  if (other !== undefined) throw invalid(`answerAnthropic: expected a message of the Messages API, with its content, not ${other}`)
  const content = typeof message.content === 'string' ? [] : message.content
  const calls = content.filter((item) => item?.type === 'tool_use')
  if (calls.length === 0) return []
  const results = await each(calls, async ({ id, name, input }) => {
    const output = await executed(tools, name, input, options)
    const result = { type: 'tool_result', tool_use_id: id, content: anthropicContent(output) }
    return output?.error === undefined ? result : { ...result, is_error: true }
  })
  return [{ role: 'user', content: results }]
}

/** Returns the content of a result for Messages: text, or a list with its images. */
function anthropicContent(output) {
  const media = mediaOf(output)
  if (media.length === 0) return text(output)
  const part = ({ type, mimeType, data }) =>
    type === 'image'
      ? { type: 'image', source: { type: 'base64', media_type: mimeType, data } }
      : { type: 'text', text: notPassedOn(type, mimeType) }
  return [{ type: 'text', text: text(output) }, ...media.map(part)]
}

/** The places where `forLangChain` can put images and sounds. */
const LANGCHAIN_MEDIA = ['none', 'chat', 'responses', 'blocks']

/**
 * Returns tools for LangChain. `tool` is the function of `@langchain/core/tools`. The content of an answer is JSON text, and its artifact has
 * the images and sounds. `media` says where these go: each of LangChain's packages takes another form in a tool's message, and some write what they do not know as text.
 */
function forLangChain(tools, { tool, media = 'none' } = {}) {
  if (typeof tool !== 'function') throw invalid('forLangChain: give { tool }, the function of @langchain/core/tools')
  if (!LANGCHAIN_MEDIA.includes(media)) throw invalid(`forLangChain: media must be one of ${LANGCHAIN_MEDIA.join(', ')}`)
  return tools.map(({ name, description, inputSchema, execute }) =>
    tool(
      async (args, config) => {
        const output = await execute(args, { signal: config?.signal })
        return [langChainContent(output, media), { [SHOWN]: media === 'chat', media: mediaOf(output) }]
      },
      { name, description, schema: lenient(inputSchema), responseFormat: 'content_and_artifact' },
    ),
  )
}

/** Marks an artifact whose images and sounds `withMedia` adds to the messages. */
const SHOWN = 'hyperlight-mcp:shown'

/** Returns the content of a tool's message for LangChain. */
function langChainContent(output, where) {
  const media = mediaOf(output)
  if (media.length === 0 || where === 'chat') return text(output)
  if (where === 'responses') return responsesOutput(output)
  if (where === 'none') return textAlone(output)
  const part = ({ type, mimeType, data }) =>
    type === 'image'
      ? { type: 'image_url', image_url: { url: `data:${mimeType};base64,${data}` } }
      : { type: 'text', text: notPassedOn(type, mimeType) }
  return [{ type: 'text', text: text(output) }, ...media.map(part)]
}

/**
 * Returns the messages of LangChain with the images and sounds of tools (`media: 'chat'`), each in a message of the user after the tools'
 * messages.
 */
function withMedia(messages) {
  const all = []
  let parts = []
  const show = () => {
    if (parts.length > 0) all.push({ role: 'user', content: parts })
    parts = []
  }
  for (const message of messages) {
    const isOfTool = message?.tool_call_id !== undefined
    if (!isOfTool) show()
    all.push(message)
    if (isOfTool && message.artifact?.[SHOWN] === true) parts.push(...shownToUser(message.tool_call_id, message.artifact.media))
  }
  show()
  return all
}

/**
 * Returns a schema in which parameters that may be null can be missing, because LangChain itself checks a model's arguments against the
 * schema.
 */
function lenient(schema) {
  const required = schema.required.filter((name) => !schema.properties[name].type.includes('null'))
  return { ...schema, required }
}

const invalid = (message) => Object.assign(new TypeError(message), { code: 'ERR_INVALID_OPTION' })
const isObject = (value) => typeof value === 'object' && value !== null

/**
 * Returns the images and sounds in an answer of hyperlight-mcp. They are not enumerable, so that data of other tools with a field `content`
 * is not taken for them.
 */
function mediaOf(output) {
  if (!isObject(output) || Object.prototype.propertyIsEnumerable.call(output, 'content')) return []
  return Array.isArray(output.content) ? output.content : []
}

const notPassedOn = (type, mimeType) => `(the ${type}, ${mimeType}, cannot be passed on: this API takes none here)`

/** Returns an answer without its images and sounds: its JSON, and a sentence for each image and sound that is left out. */
const textAlone = (output) => [text(output), ...mediaOf(output).map(({ type, mimeType }) => notPassedOn(type, mimeType))].join('\n')

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

module.exports = { forAiSdk, forOpenAi, answerOpenAi, forAnthropic, answerAnthropic, forLangChain, withMedia }
