// The same for `import`: one instance, whichever way it is loaded.
import binding from './index.js'

export const { Gateway, HyperlightMcpError, Sandbox, commandLine } = binding
export default binding
