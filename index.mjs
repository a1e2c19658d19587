// The exports of index.js for `import`. Both ways of loading share one instance of the addon.
import binding from './index.js'

export const { Agent, Gateway, HyperlightMcpError, Sandbox, ServedGateway, commandLine } = binding
export default binding
