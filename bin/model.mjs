// The model that plans and writes the tools of `boot`, reached with the Vercel AI SDK. Only this command loads it, and only when a model is needed.
import { existsSync, readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join, sep } from 'node:path'

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
 * servers need none. The function takes `{ system, user, maxTokens, signal }` and resolves with the model's text. Its errors never have the key. `note` is
 * called with a sentence for the person who started the program.
 */
export async function model({ provider, model: id, apiKey, baseUrl, retries = RETRIES }, note = () => {}) {
  const known = PROVIDERS[provider]
  // The SDK writes warnings to standard output, which belongs to a host that starts this program.
  globalThis.AI_SDK_LOG_WARNINGS = false
  const [{ generateText }, sdk] = [await load('ai', known, note), await load(known.package, known, note)]
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
  return `In this folder: npm install ${ai} ${sdk}. Or start with: npx -p hyperlight-mcp -p ${ai} -p ${sdk} hyperlight-mcp boot …`
}

/**
 * Loads a package that lies beside this program, or else in the working folder: a program that npx has fetched lies in npx's own cache, where a person cannot
 * install anything. Code of the working folder is named before it runs.
 */
async function load(name, known, note) {
  try {
    return await import(name)
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error
  }
  const require = createRequire(join(process.cwd(), 'any.js'))
  let path
  try {
    path = require.resolve(name)
  } catch {
    throw new Error(`the package ${name} is not installed. ${remedies(known)}`)
  }
  checkPackage(name, path, known)
  note(`${name} is loaded from the working folder: ${path}`)
  return require(path)
}

/**
 * Refuses a package that another user could have changed, because this user could run any code with it. Also refuses another version than
 * the one for which this program was written.
 */
function checkPackage(name, path, known) {
  const { folder, version } = packageOf(name, path)
  const refuse = (place, problem) => {
    throw new Error(`the package ${name} in ${folder} is not loaded: ${place} ${problem}. ${remedies(known)}`)
  }
  for (const place of [path, ...foldersAbove(path), join(folder, 'package.json'), ...modulesAbove(folder)]) {
    const { uid, mode, gid } = statSync(place)
    if (uid !== 0 && uid !== process.getuid?.()) refuse(place, 'belongs to another user')
    // In a folder with the sticky bit above the modules, such as /tmp, other users cannot replace files of this user.
    const isSticky = (mode & 0o1000) !== 0 && !isWithin(place, modulesOf(folder))
    if (!isSticky && isWritableByOthers(mode, gid)) refuse(place, 'can be written by other users')
  }
  if (version.split('.')[0] !== majorOf(name))
    throw new Error(`the package ${name} in ${folder} has version ${version}, which cannot be used. ${remedies(known)}`)
}

/** Returns whether users other than the owner can write. A group with the number of the user has only this user, as most distributions set it up. */
function isWritableByOthers(mode, gid) {
  const isOwnGroup = gid === 0 || (gid === process.getgid?.() && gid === process.getuid?.())
  return (mode & (isOwnGroup ? 0o002 : 0o022)) !== 0
}

/** Returns the folder that has a file, and all folders above it. */
function foldersAbove(path) {
  const folder = dirname(path)
  return folder === path ? [] : [folder, ...foldersAbove(folder)]
}

const isWithin = (path, folder) => path === folder || path.startsWith(join(folder, sep))

/** Returns the folder `node_modules` that has a package, or the package's own folder if it is a linked one. */
function modulesOf(folder) {
  return [folder, ...foldersAbove(folder)].find((above) => basename(above) === MODULES) ?? folder
}

/** Returns the folders from which Node loads a module that a package needs and that is not beside it. */
function modulesAbove(folder) {
  return foldersAbove(folder)
    .map((above) => join(above, MODULES))
    .filter((modules) => existsSync(modules))
}

/** Returns the folder and the version of the package that has a file: the folder directly in `node_modules`, or of a linked package the next one. */
function packageOf(name, path) {
  const folders = foldersAbove(path)
  const modules = folders.findIndex((folder) => basename(folder) === MODULES)
  const own = modules < 0 ? folders : folders.slice(0, modules)
  for (const folder of own) {
    let found
    try {
      found = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    } catch {
      continue
    }
    if (found?.name === name) return { folder, version: String(found.version) }
  }
  throw new Error(`the package ${name}, of which ${path} is a file, has no package.json with its name`)
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
