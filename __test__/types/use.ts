// Compiled, never run: the types say what the contract says, and refuse what it refuses.
import { Gateway, type ApprovalRequest, type RunResult, type Sandbox, type ToolResult } from 'hyperlight-mcp'

export async function use(): Promise<void> {
  await using gateway: Gateway = await Gateway.open({
    config: { mcpServers: {} },
    enable: 'approved',
    limits: { maxServers: 5 },
    onApproval: async ({ server, tool }) => (server === tool ? 'deny' : 'run'),
    onEvent: (event) => console.log(event.type === 'log' ? event.text : event.message),
  })
  const request: ApprovalRequest = await gateway.approvalRequest('files')
  if (request.stage === 'command') console.log(request.command, request.args)
  else console.log(request.tools.map((tool) => tool.identifier))
  await gateway.approve('files', request.digest)
  const states: string[] = gateway.servers().map((server) => server.state)
  const sandbox: Sandbox = await gateway.sandbox({ toolErrors: 'throw' })
  sandbox.hostModule('clock', { now: () => Date.now(), later: async (bytes: Uint8Array) => bytes })
  const run: RunResult = await sandbox.run('', { input: { states }, timeoutMs: 5, signal: AbortSignal.timeout(5) })
  const result: ToolResult = await gateway.callTool('files', 'read', { path: '.' }, { timeoutMs: 5 })
  console.log(run.stats.durationMs, run.logs[0]?.level, result.isError)

  // @ts-expect-error an unknown option
  await Gateway.open({ confgPath: 'x' })
  // @ts-expect-error a wrong word
  await gateway.sandbox({ toolErrors: 'ignore' })
  // @ts-expect-error code is text
  await sandbox.run(5)
  await sandbox.close()
}
