// The types for `import`: those of `require`, and the default export.
import adapters = require('./adapters.js')

export * from './adapters.js'
export default adapters
