// The same for `import`.
import adapters from './adapters.js'

export const { forAiSdk, forOpenAi, answerOpenAi, forAnthropic, answerAnthropic, forLangChain, withMedia } = adapters
export default adapters
