// The model that plans and writes the tools of `boot`, reached with the Vercel AI SDK. Only this command loads it, and only when a model is needed.
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

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
/** The name of the folders in which Node looks for packages. */
const MODULES = 'node_modules'
/** The only host that certainly has OpenAI's newer protocol, the responses. */
const OPENAI_HOST = 'api.openai.com'

/**
 * Makes the function that asks a model. `settings` has `provider`, `model`, `apiKey` and `baseUrl`; an empty `apiKey` is allowed with a `baseUrl`, as local
 * servers need none. The function takes `{ system, user, maxTokens, signal }` and resolves with the model's text. Its errors never have the key.
 */
export async function model({ provider, model: id, apiKey, baseUrl, retries = RETRIES }) {
  const known = PROVIDERS[provider]
  // The SDK writes warnings to standard output, which belongs to a host that starts this program.
  globalThis.AI_SDK_LOG_WARNINGS = false
  const [{ generateText }, sdk] = [await load('ai', known), await load(known.package, known)]
  const client = sdk[known.create]({ apiKey: apiKey || 'none', ...(baseUrl && { baseURL: baseUrl }) })
  // Compatible servers have chat completions; only OpenAI itself has the newer responses.
  const isCompatible = provider === 'openai' && baseUrl && new URL(baseUrl).hostname !== OPENAI_HOST
  const language = isCompatible ? client.chat(id ?? known.model) : client(id ?? known.model)
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

/** Returns the major version of a package for which this program was written. */
const majorOf = (name) => createRequire(import.meta.url)('../package.json').peerDependencies[name].match(/\d+/)[0]

/** Returns what a person can type to get the packages. */
function remedies(known) {
  const [ai, sdk] = ['ai', known.package].map((name) => `${name}@${majorOf(name)}`)
  return `Start with: npx -p hyperlight-mcp -p ${ai} -p ${sdk} hyperlight-mcp boot …, or install them together: npm install hyperlight-mcp ${ai} ${sdk}`
}

/**
 * Loads a package that was installed together with this program. Node would also load one from a folder above, or from the working folder: there, a server
 * in a box may have made it.
 */
async function load(name, known) {
  const file = fileURLToPath(import.meta.url)
  const modules = foldersAbove(file)
    .filter((folder) => basename(folder) !== MODULES)
    .map((folder) => join(folder, MODULES))
  // Node takes the nearest one. With Plug'n'Play there are no such folders, and a file of the project says where each package is.
  const nearest = modules.find((folder) => existsSync(join(folder, name)))
  const isInstalled = process.versions.pnp !== undefined || nearest?.startsWith(installationOf(dirname(file)))
  if (!isInstalled) throw new Error(`the package ${name} is not installed. ${remedies(known)}`)
  return await import(name)
}

/** Returns the folder with the outermost `node_modules` that has this program, or else the folder of its package. */
function installationOf(here) {
  const modules = foldersAbove(here)
    .filter((folder) => basename(folder) === MODULES)
    .at(-1)
  return join(modules === undefined ? dirname(here) : dirname(modules), sep)
}

/** Returns the folder that has a file, and all folders above it. */
function foldersAbove(path) {
  const folder = dirname(path)
  return folder === path ? [] : [folder, ...foldersAbove(folder)]
}

/** Says why a request failed, without the key, and without a user name or a password in an address. */
function words(error, { apiKey, timedOut }) {
  if (timedOut) return `the model did not answer within ${PATIENCE / 60_000} minutes`
  // After retries, the last failure says more than the number of them.
  const last = error.lastError ?? error
  const status = last.statusCode === undefined ? '' : ` (status ${last.statusCode})`
  const cause = last.cause?.code ?? last.cause?.cause?.code
  const text = `${last.message}${cause ? `: ${cause}` : ''}`
  // The key goes before the text is cut, so that no part of it is left at the end.
  const shown = (apiKey ? text.replaceAll(apiKey, '***') : text).replace(/\/\/[^\s/@]*@/g, '//***@').replace(/\s+/g, ' ')
  return `${shown.slice(0, MAX_WORDS)}${status}`
}
