// Compiled, never run: `import` gives the same exports and types as `require`, and the default export.
import binding, { Gateway, HyperlightMcpError, Sandbox, type ErrorCode, type RunResult } from 'hyperlight-mcp'
import adapters, { forOpenAi } from 'hyperlight-mcp/adapters'
import { createRequire } from 'node:module'
import type * as cjs from './use.js'

export async function use(required: typeof cjs): Promise<ErrorCode> {
  const gateway: Gateway = await binding.Gateway.open()
  const sandbox: Sandbox = await gateway.sandbox()
  const { value }: RunResult<number> = await sandbox.run<number>('')
  const error: HyperlightMcpError = new binding.HyperlightMcpError('ERR_IO', value.toFixed())
  const same: typeof forOpenAi = adapters.forOpenAi
  console.log(same(gateway.agentTools()), createRequire(import.meta.url)('hyperlight-mcp'))
  await required.use()
  // @ts-expect-error the package's own format is CommonJS: only the default export has this
  await binding.default.Gateway.open()
  return error.code
}
