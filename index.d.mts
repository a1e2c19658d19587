// The types for `import`: the types for `require`, with a default export added.
import binding = require('./index.js')

export * from './index.js'
export default binding
