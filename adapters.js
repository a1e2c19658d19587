// The tools of `gateway.agentTools()` in the forms of others. Nothing of theirs is imported: what they look for is plain data.

/** By what the AI SDK knows a schema without its own `jsonSchema()` (`@ai-sdk/provider-utils`). */
const AI_SCHEMA = Symbol.for('vercel.ai.schema')

/** For `tools` of the AI SDK's `generateText`, `streamText` and agents. */
function forAiSdk(tools) {
  return Object.fromEntries(
    tools.map(({ name, description, inputSchema, execute }) => [
      name,
      {
        description,
        inputSchema: { [AI_SCHEMA]: true, _type: undefined, jsonSchema: inputSchema, validate: undefined },
        execute: (args, { abortSignal } = {}) => execute(args, { signal: abortSignal }),
      },
    ]),
  )
}

/** For `tools` of OpenAI's Chat Completions, or with `{ api: 'responses' }` of its Responses. */
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

/**
 * Executes what a model's answer calls and gives what is to be appended after it: `message` of a chat completion, or `output` of a
 * response. Empty where nothing is called.
 */
async function answerOpenAi(tools, answer, options) {
  if (Array.isArray(answer)) {
    const calls = answer.filter((item) => item?.type === 'function_call')
    return each(calls, async ({ call_id, name, arguments: args }) => {
      const output = await executed(tools, name, args, options)
      return { type: 'function_call_output', call_id, output: text(output) }
    })
  }
  const calls = Array.isArray(answer?.tool_calls) ? answer.tool_calls.filter(isObject) : []
  return each(calls, async ({ id, function: called, custom }) => {
    const output = await executed(tools, called?.name ?? custom?.name, called?.arguments ?? custom?.input, options)
    return { role: 'tool', tool_call_id: id, content: text(output) }
  })
}

/** For `tools` of Anthropic's Messages. */
function forAnthropic(tools) {
  return tools.map(({ name, description, inputSchema }) => ({ name, description, input_schema: inputSchema }))
}

/** Executes what a message calls and gives the messages to append after it: one with all results, or none where nothing is called. */
async function answerAnthropic(tools, message, options) {
  const content = Array.isArray(message?.content) ? message.content : []
  const calls = content.filter((item) => item?.type === 'tool_use')
  if (calls.length === 0) return []
  const results = await each(calls, async ({ id, name, input }) => {
    const output = await executed(tools, name, input, options)
    const result = { type: 'tool_result', tool_use_id: id, content: text(output) }
    return output?.error === undefined ? result : { ...result, is_error: true }
  })
  return [{ role: 'user', content: results }]
}

/** For LangChain: `tool` is that of `@langchain/core/tools`. Their content is JSON text, as models read it. */
function forLangChain(tools, { tool } = {}) {
  if (typeof tool !== 'function') throw invalid('forLangChain: give { tool }, the function of @langchain/core/tools')
  return tools.map(({ name, description, inputSchema, execute }) =>
    tool(async (args, config) => JSON.stringify(await execute(args, { signal: config?.signal })), {
      name,
      description,
      schema: lenient(inputSchema),
    }),
  )
}

/** LangChain holds what a model passes against the schema itself: what may be null may be missing there. */
function lenient(schema) {
  const required = schema.required.filter((name) => !schema.properties[name].type.includes('null'))
  return { ...schema, required }
}

const invalid = (message) => Object.assign(new TypeError(message), { code: 'ERR_INVALID_OPTION' })
const isObject = (value) => typeof value === 'object' && value !== null

/** As a model reads it. What `others` gives may be nothing that JSON has a word for. */
function text(output) {
  try {
    return JSON.stringify(output) ?? 'null'
  } catch {
    return JSON.stringify({ error: { code: 'ERR_INVALID_VALUE', message: 'the tool answered with what JSON cannot carry' } })
  }
}

/** One after the other: a model that calls ten at once does not crowd out itself. */
async function each(calls, answer) {
  const answers = []
  for (const call of calls) answers.push(await answer(call))
  return answers
}

/** Every call gets an answer, as the providers demand: `others` is asked for tools that are not among these. */
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
