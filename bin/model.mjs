// The model that plans and writes the tools of `boot`, reached with the Vercel AI SDK. Only this command loads it, and only when a model is needed.

/** The providers: their package, the variable with the key, and the model that is used unless another is named. */
export const PROVIDERS = {
  anthropic: { package: '@ai-sdk/anthropic', create: 'createAnthropic', variable: 'ANTHROPIC_API_KEY', model: 'claude-sonnet-5-5' },
  openai: { package: '@ai-sdk/openai', create: 'createOpenAI', variable: 'OPENAI_API_KEY', model: 'gpt-6.1-sol' },
}

/**
 * Default of `retries`: the number of times that a request is sent again after a temporary failure, such as status 429. The SDK waits as
 * `Retry-After` says.
 */
const RETRIES = 2
/** The longest time for one answer, in milliseconds. */
const PATIENCE = 10 * 60 * 1000
/** The longest part of a provider's own words that is shown. */
const MAX_WORDS = 300

/**
 * Makes the function that asks a model. `settings` has `provider`, `model`, `apiKey` and `baseUrl`; an empty `apiKey` is allowed with a `baseUrl`, as local
 * servers need none. The function takes `{ system, user, maxTokens, signal }` and resolves with the model's text. Its errors never have the key.
 */
export async function model({ provider, model: id, apiKey, baseUrl, retries = RETRIES }) {
  const known = PROVIDERS[provider]
  // The SDK writes warnings to standard output, which belongs to a host that starts this program.
  globalThis.AI_SDK_LOG_WARNINGS = false
  const [{ generateText }, sdk] = await Promise.all([load('ai', known), load(known.package, known)])
  const client = sdk[known.create]({ apiKey: apiKey || 'none', ...(baseUrl && { baseURL: baseUrl }) })
  // Compatible servers have chat completions; only OpenAI itself has the newer responses.
  const language = provider === 'openai' && baseUrl ? client.chat(id ?? known.model) : client(id ?? known.model)
  return async ({ system, user, maxTokens, signal }) => {
    const limit = AbortSignal.timeout(PATIENCE)
    const abortSignal = signal ? AbortSignal.any([signal, limit]) : limit
    let result
    try {
      result = await generateText({ model: language, system, prompt: user, maxOutputTokens: maxTokens, maxRetries: retries, abortSignal })
    } catch (error) {
      throw new Error(words(error, { apiKey, timedOut: limit.aborted }))
    }
    if (result.finishReason === 'content-filter') throw Object.assign(new Error('the model refused to answer'), { refused: true })
    return result.text
  }
}

async function load(name, known) {
  try {
    return await import(name)
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new Error(`the package ${name} is not installed: npm install ai ${known.package}`)
  }
}

/** Says why a request failed, without the key. */
function words(error, { apiKey, timedOut }) {
  if (timedOut) return `the model did not answer within ${PATIENCE / 60_000} minutes`
  // After retries, the last failure says more than the number of them.
  const last = error.lastError ?? error
  const status = last.statusCode === undefined ? '' : ` (status ${last.statusCode})`
  const cause = last.cause?.code ?? last.cause?.cause?.code
  const text = `${last.message}${cause ? `: ${cause}` : ''}`
  // The key goes before the text is cut, so that no part of it is left at the end.
  const shown = (apiKey ? text.replaceAll(apiKey, '***') : text).replace(/\s+/g, ' ')
  return `${shown.slice(0, MAX_WORDS)}${status}`
}
