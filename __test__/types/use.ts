// Compiled, never run: the types accept what the contract allows, and refuse what it does not allow.
import {
  Gateway,
  HyperlightMcpError,
  type AgentTool,
  type AgentToolResult,
  type ApprovalQuestion,
  type ApprovalRequest,
  type Callbacks,
  type CommandRequest,
  type Completion,
  type Decision,
  type ElicitationAnswer,
  type ElicitationQuestion,
  type ErrorCode,
  type Finding,
  type GatewayEvent,
  type GuestError,
  type LogEntry,
  type ManifestRequest,
  type Omission,
  type Plugin,
  type PluginManifest,
  type PluginRegistration,
  type PromptEntry,
  type PromptResult,
  type ReadResult,
  type ReloadReport,
  type ResourceEntry,
  type RunResult,
  type RunStats,
  type SamplingAnswer,
  type SamplingQuestion,
  type Sandbox,
  type ServedGateway,
  type ServerStatus,
  type ToolResult,
  type Value,
} from 'hyperlight-mcp'
import { answerAnthropic, answerOpenAi, forAiSdk, forAnthropic, forLangChain, forOpenAi } from 'hyperlight-mcp/adapters'

/** Uses what a model and an agent get. */
async function given(gateway: Gateway, sandbox: Sandbox): Promise<void> {
  const tools: AgentTool[] = gateway.agentTools({ sandbox, maxResultTokens: 500, include: ['run_javascript'], describeServers: 300, maxPendingRuns: 2 })
  const answer: AgentToolResult = await tools[0].execute({ code: '' }, { signal: AbortSignal.timeout(5) })
  console.log(answer.error?.code, answer.error?.hint, answer.value, tools[0].inputSchema.required.length)

  const plugin: Plugin = gateway.plugin({ approved: 'x', maxResultTokens: 500 })
  const manifest: PluginManifest = plugin.manifest()
  plugin.approve(manifest.digest)
  const enabled: string[] = await plugin.enable()
  const { ok, text } = await plugin.commands()[0].execute('list', { width: 80 })
  console.log(enabled, ok, text, plugin.tools().length, plugin.modules()[0].specifier, plugin.enabled, plugin.approved)
  await plugin.disable()

  const registration: PluginRegistration = gateway.pluginRegistration('files')
  console.log(await registration.createHostFunctions({ toolErrors: 'throw' })['mcp-files'].read({ path: '.' }))

  console.log(forAiSdk(tools).run_javascript.description, forAnthropic(tools)[0].input_schema.required)
  console.log(forOpenAi(tools)[0].function.strict, forOpenAi(tools, { api: 'responses', strict: false })[0].parameters)
  const [message] = await answerOpenAi(tools, { role: 'assistant', tool_calls: [] }, { others: async (name, args) => [name, args] })
  const [item] = await answerOpenAi(tools, [{ type: 'message' }])
  const [results] = await answerAnthropic(tools, { content: [{ type: 'text' }] })
  console.log(message.role === 'tool' && message.tool_call_id, item.call_id, results.content[0].tool_use_id)
  const named: string[] = forLangChain(tools, { tool: (_run, { name }: { name: string }) => name })
  console.log(named)

  // @ts-expect-error there is no such tool
  gateway.agentTools({ include: ['approve'] })
  // @ts-expect-error there is no such option
  gateway.agentTools({ onApproval: () => 'once' })
  // @ts-expect-error it is read only
  plugin.enabled = true
  // @ts-expect-error without langchain's tool
  forLangChain(tools)
}

/** Every event has its own fields and no others. */
function told(event: GatewayEvent): string {
  switch (event.type) {
    case 'log':
      return `${event.runId} ${event.level} ${event.text}`
    case 'warning':
    case 'approvals-damaged':
      return event.message
    case 'approval-proposed':
      return `${event.request.server} ${event.request.digest}`
    case 'server-proposed':
      return `${event.agent ?? ''} ${event.server} ${event.displayName} ${event.request.digest} ${event.approved} ${event.stage}`
    case 'not-granted':
      return `${event.agent} ${event.server} ${event.item} ${event.reason}`
    case 'server-unavailable':
      return `${event.server} ${event.reason}`
    case 'executable-changed':
      return `${event.server} ${event.path} ${event.before} ${event.now}`
    case 'tools-changed':
      return [event.server, ...event.added, ...event.removed, ...event.changed].join()
    case 'progress':
      return `${event.server}.${event.tool} ${event.runId ?? 0} ${event.progress + (event.total ?? 0)} ${event.message ?? ''}`
    case 'server-log':
      return `${event.server} ${event.runId ?? 0} ${event.level} ${event.logger ?? ''} ${JSON.stringify(event.data)}`
    case 'connection-evicted':
      return `${event.server} ${event.madeRoomFor}`
    case 'box-refused':
      return `${event.server} ${event.host} ${event.port ?? 0} ${event.reason}`
    case 'connection-idle':
      return event.server
    case 'connection-lost':
    case 'elicitation-cancelled':
      return `${event.server} ${event.reason}`
    case 'config-reloaded':
      return `${event.added.concat(event.changed, event.removed)} ${event.invalid} ${event.warnings}`
    case 'resource-updated':
      return `${event.server} ${event.uri}`
    case 'connected':
      return `${event.server} ${event.connectMs.toFixed()}`
    case 'call':
      return `${event.server}.${event.tool} ${event.durationMs + event.argumentBytes + (event.resultBytes ?? 0)} ${event.error ?? 'fine'}`
    default: {
      const none: never = event
      return none
    }
  }
}

function asked({ server, tool, args, reason, runId }: ApprovalQuestion): Decision {
  const answers: Decision[] = ['once', 'run', 'session', 'deny']
  const inRun: number | undefined = runId
  return inRun === undefined || reason === server || tool in args ? 'deny' : (answers[0] ?? 'deny')
}

/** The two modes have their own fields, which the mode tells apart. */
function elicited(question: ElicitationQuestion): ElicitationAnswer {
  const { server, tool, runId, message }: { server: string; tool?: string; runId?: number; message: string } = question
  if (question.mode === 'url') return { action: `${question.url} ${question.elicitationId ?? ''}` === server ? 'accept' : 'cancel' }
  const fields: string[] = [...Object.keys(question.requestedSchema.properties ?? {}), ...(question.requestedSchema.required ?? [])]
  if (tool === undefined || runId === undefined) return { action: 'decline' }
  return { action: 'accept', content: { text: message, number: 1.5, yes: true, choices: fields } }
}

function sampled({ server, tool, runId, params }: SamplingQuestion): SamplingAnswer {
  const texts: unknown[] = [server, tool, runId, params.systemPrompt, params.maxTokens, ...params.messages]
  return { role: 'assistant', content: { type: 'text', text: texts.join() }, model: 'mine', stopReason: 'endTurn' }
}

function shownCommand(request: CommandRequest): unknown[] {
  const { path, sha256 }: { path: string; sha256: string } = request.executable ?? { path: '', sha256: '' }
  const confirm: 'never' | 'writes' | 'always' = request.confirm
  const pins: boolean = request.pinExecutable || request.pinValues
  const texts: (string | undefined)[] = [request.lapsed, request.command, request.cwd, request.envFile, request.url, request.warning]
  return [path, sha256, confirm, pins, texts, request.args, request.environment, request.headers, request.allowTools, request.denyTools]
}

function shownTools(request: ManifestRequest): string[] {
  const worst: Finding | undefined = request.findings.find(({ severity }) => severity === 'high')
  const differences = request.changes?.differences.map(({ tool, field, before, after }) => `${tool} ${field} ${before} ${after}`)
  const names = request.tools.map(({ name, identifier, digest, title, description }) => [name, identifier, digest, title, description].join())
  return [request.instructions ?? '', ...(worst ? [worst.rule, worst.reason, worst.field, worst.excerpt, worst.tool ?? ''] : []), ...(differences ?? []), ...names, ...request.warnings]
}

async function offered(gateway: Gateway): Promise<(string | undefined)[]> {
  const resources: ResourceEntry[] = await gateway.resources('files')
  const prompts: PromptEntry[] = await gateway.prompts('files')
  const { contents }: ReadResult = await gateway.readResource('files', 'file:///a', { timeoutMs: 5, onElicit: elicited })
  const filled: PromptResult = await gateway.getPrompt('files', 'plan', { place: 'Rome', days: 3, alone: true }, { timeoutMs: 5 })
  const completion: Completion = await gateway.complete(
    'files',
    { type: 'ref/prompt', name: 'plan' },
    { name: 'place', value: 'Ro' },
    { context: { days: '3' } },
  )
  await gateway.complete('files', { type: 'ref/resource', uri: 'file:///{path}' }, { name: 'path', value: '' })
  await gateway.subscribe('files', 'file:///a')
  await gateway.unsubscribe('files', 'file:///a')
  // @ts-expect-error only a prompt or a template can be completed
  await gateway.complete('files', { type: 'ref/tool', name: 'x' }, { name: 'x', value: '' })
  const uris = resources.map(({ uri, uriTemplate }) => uri ?? uriTemplate)
  const texts = contents.map(({ text, blob }) => text ?? blob)
  const wanted = prompts.flatMap(({ arguments: given }) => given.filter(({ required }) => required).map(({ name }) => name))
  return [...uris, ...texts, ...wanted, filled.messages[0]?.role, ...completion.values, String(completion.total)]
}

/** An error has a code of a closed set, and the fields that come with some codes. */
function explained(error: unknown): string {
  if (!(error instanceof HyperlightMcpError)) return String(error)
  const code: ErrorCode = error.code
  const guest: GuestError | undefined = error.guest
  const [stats, logs]: [RunStats | undefined, LogEntry[] | undefined] = [error.stats, error.logs]
  const texts = [error.name, error.message, code, guest?.stack, error.line, error.column, error.cause, stats?.calls, logs?.[0]?.level, error.warnings?.[0]]
  switch (error.code) {
    case 'ERR_ABORTED':
    case 'ERR_CLOSED':
      return 'over'
    // @ts-expect-error there is no such code
    case 'ERR_NOTHING':
      return ''
    default:
      return texts.join()
  }
}

/** `run<T>()` returns a value of type `T`. Without `T`, the type is `Value`: JSON with bytes. */
async function typed(sandbox: Sandbox): Promise<number> {
  const { value }: { value: Value } = await sandbox.run('')
  const any: RunResult = await sandbox.run('')
  const { value: forecast, stats } = await sandbox.run<{ days: { rain: number }[] }>('', { input: { value, any } })
  const same: RunResult<string> = await sandbox.run<string>('')
  // @ts-expect-error a field that the value's type does not have
  console.log(forecast.weeks)
  // @ts-expect-error a value of another type
  const other: RunResult<number> = same
  return forecast.days[0].rain + stats.calls + other.value + same.value.length
}

export async function use(): Promise<void> {
  await using gateway: Gateway = await Gateway.open({
    config: { mcpServers: {} },
    enable: 'approved',
    limits: { maxServers: 5 },
    trace: true,
    onApproval: async ({ server, tool }) => (server === tool ? 'deny' : 'run'),
    onInput: (id, description) => `${id} ${description ?? ''}`,
    onElicit: elicited,
    onSample: async (question) => sampled(question),
    onIssuer: async ({ issuer, clientId, credential }) => credential === 'private-key' && issuer.startsWith(clientId),
    onAuthorize: (url, { server, issuer }) => (url.startsWith(issuer) ? console.log(server) : `${url}?code=x`),
    onEvent: (event) => console.log(told(event)),
  })
  const request: ApprovalRequest = await gateway.approvalRequest('files')
  console.log(request.stage === 'command' ? shownCommand(request) : shownTools(request))
  await gateway.approve('files')
  await gateway.approve('files', request.digest)
  await gateway.approve('files', request.digest, { validForMs: 60_000 })
  await gateway.approve('files', undefined, { validForMs: 60_000 })
  const statuses: ServerStatus[] = gateway.servers()
  const states = statuses.map(({ state, quarantined, lastError }) => [state === 'invalid', quarantined.length, lastError?.code ?? null])
  const { added, removed, changed, invalid, warnings }: ReloadReport = await gateway.reload()
  console.log([added, removed, changed, invalid, warnings].flat().join())
  const sandbox: Sandbox = await gateway.sandbox({ toolErrors: 'throw', onApproval: asked })
  sandbox.hostModule('clock', { now: () => Date.now(), later: async (bytes: Uint8Array) => bytes })
  const run: RunResult = await sandbox.run('', { input: { states }, timeoutMs: 5, signal: AbortSignal.timeout(5), onApproval: () => 'once' })
  const direct: ToolResult = await gateway.callTool('mcp_files_read', { path: '.' }, { timeoutMs: 5 })
  console.log(direct.isError, (await gateway.toolInfo('files', 'read')).directNames?.hyphen)
  const result: ToolResult = await gateway.callTool('files', 'read', { path: '.' }, { timeoutMs: 5, onApproval: async ({ reason }) => (reason ? 'session' : 'deny') })
  const cut: RunResult = await sandbox.run('', { maxResultTokens: 500 })
  const omitted: Omission[] = cut.omitted ?? []
  console.log(cut.savedAs?.length, omitted.map(({ path, kind, kept, of }) => `${path} ${kind === 'text'} ${kept / of}`).join())
  await gateway.sandbox({ maxResultTokens: 500 })
  console.log(run.stats.durationMs, run.logs[0]?.level, result.isError)
  const served: ServedGateway = await gateway.serve({
    http: '127.0.0.1:0',
    tokenFile: 'tokens',
    tls: { cert: 'cert.pem', key: 'key.pem' },
    oauth: { resource: 'https://mcp.example/mcp', issuer: 'https://issuer.example', scopes: ['mcp'] },
    limits: { maxSessions: 5, drainMs: 100 },
    allowWrites: ['files.write'],
  })
  console.log(served.url?.length)
  await served.close()
  await using onStdio: ServedGateway = await gateway.serve()
  await onStdio.ended()
  await typed(sandbox).catch(explained)
  await offered(gateway)
  await given(gateway, sandbox)

  const callbacks: Callbacks = { onElicit: () => ({ action: 'accept' }), onSample: sampled, onAuthorize: async () => undefined }
  await gateway.sandbox({ ...callbacks, onElicit: async (question) => elicited(question) })
  await sandbox.run('', { ...callbacks, onEvent: (event) => console.log(told(event)) })
  await gateway.callTool('files', 'read', {}, { ...callbacks, onEvent: (event) => console.log(told(event)) })

  // @ts-expect-error there is no such code
  console.log(new HyperlightMcpError('ERR_NOTHING', ''))
  // @ts-expect-error it is read only
  new HyperlightMcpError('ERR_IO', '').code = 'ERR_CLOSED'
  // @ts-expect-error an unknown option
  await Gateway.open({ confgPath: 'x' })
  // @ts-expect-error a wrong word
  await gateway.sandbox({ toolErrors: 'ignore' })
  // @ts-expect-error this answer is not valid
  await gateway.sandbox({ onApproval: () => 'yes' })
  // @ts-expect-error the answer must not be missing
  await gateway.sandbox({ onApproval: () => undefined })
  // @ts-expect-error an answer without its action
  await sandbox.run('', { onElicit: () => ({ content: { name: 'x' } }) })
  // @ts-expect-error a form is flat
  await gateway.callTool('files', 'read', {}, { onElicit: () => ({ action: 'accept', content: { nested: { a: 1 } } }) })
  // @ts-expect-error a page has no form
  await sandbox.run('', { onElicit: (question) => ({ action: question.mode === 'url' && question.requestedSchema ? 'accept' : 'cancel' }) })
  // @ts-expect-error a model has a name
  await gateway.sandbox({ onSample: () => ({ role: 'assistant', content: [] }) })
  // @ts-expect-error a typed input is text
  await Gateway.open({ onInput: () => 5 })
  // @ts-expect-error a time is a number
  await gateway.approve('files', undefined, { validForMs: '1h' })
  // @ts-expect-error there is no such event
  await Gateway.open({ onEvent: (event) => event.type === 'connection' })
  // @ts-expect-error code is text
  await sandbox.run(5)
  await sandbox.close()
}
