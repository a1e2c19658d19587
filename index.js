// Loads the prebuilt addon for this platform from its npm package. In the repository, loads the addon that `npm run build` wrote.

const { existsSync } = require('node:fs')
const { join } = require('node:path')

const PLATFORMS = ['linux-x64-gnu']

/**
 * Returns the platform's name. On musl, Node's report has no `glibcVersionRuntime`. A report takes 5 ms, so it is made only where the addon could
 * not be loaded.
 */
function platform() {
  if (process.platform !== 'linux') return `${process.platform}-${process.arch}`
  const glibc = process.report.getReport().header.glibcVersionRuntime !== undefined
  return `linux-${process.arch}-${glibc ? 'gnu' : 'musl'}`
}

function load() {
  const name = `${process.platform}-${process.arch}-gnu`
  try {
    if (!PLATFORMS.includes(name)) throw new Error(`no addon was built for ${name}`)
    const local = join(__dirname, 'npm', name, `hyperlight-mcp.${name}.node`)
    return require(existsSync(local) ? local : `hyperlight-mcp-${name}`)
  } catch (cause) {
    const actual = platform()
    if (!PLATFORMS.includes(actual)) {
      throw new Error(`hyperlight-mcp has no prebuilt addon for ${actual}. It supports: ${PLATFORMS.join(', ')}.`)
    }
    if (cause.code !== 'MODULE_NOT_FOUND') throw cause
    throw new Error(
      `hyperlight-mcp's package for this platform, hyperlight-mcp-${name}, is not installed. Install without --omit=optional, or, in the repository, run: npm run build`,
      { cause },
    )
  }
}

const { Agent, Gateway, HyperlightMcpError, Sandbox, ServedGateway, commandLine } = load()
module.exports.Agent = Agent
module.exports.Gateway = Gateway
module.exports.HyperlightMcpError = HyperlightMcpError
module.exports.Sandbox = Sandbox
module.exports.ServedGateway = ServedGateway
module.exports.commandLine = commandLine
