// The types for `import`: those of `require`, and the default export.
import binding = require('./index.js')

export * from './index.js'
export default binding
