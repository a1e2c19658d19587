/**
 * A value that a guest and Node exchange: JSON, with bytes as `Uint8Array`. One value may hold at most 10,000 `Uint8Array`s. A value that leaves a
 * guest may be nested at most 126 levels deep.
 */
export type Value = null | boolean | number | string | Uint8Array | Value[] | { [key: string]: Value }

/** The form in which a guest gets an error that a tool reports. `return` returns a value `{ error }`; `throw` throws an exception. */
export type ToolErrors = 'return' | 'throw'

/**
 * The handling of a result that does not match its tool's own `outputSchema`. `warn` returns the result with a warning. `error` refuses it with
 * `ERR_OUTPUT_SCHEMA`.
 */
export type SchemaViolations = 'warn' | 'error'
/**
 * The handling of a call whose arguments do not match the tool's `inputSchema`. `error` does not send the call (`ERR_INVALID_ARGUMENTS`), `warn`
 * sends it with a warning, and `off` does not check the arguments.
 */
export type ArgumentChecks = 'error' | 'warn' | 'off'

/**
 * Limits of one gateway. Sizes are in bytes, times in milliseconds. A value that exceeds a limit fails with an error that names the limit and the
 * size.
 */
export interface Limits {
  /** The maximum number of servers in the config. Default 20. */
  maxServers: number
  /** The maximum number of open connections. Default 5. */
  maxConnections: number
  /**
   * The time to connect to a server: from the start of its process, or its first HTTP request, until all its lists (tools, resources, prompts) are
   * read. Time in which a person is asked does not count. Default 10,000; 120,000 for `npx`, `uvx`, `docker`.
   */
  connectTimeoutMs: number
  /** The time of one tool call, at most the time that is left of the run. Default 30,000. */
  callTimeoutMs: number
  /** The maximum time of a tool call whose server reports progress. Each progress report restarts `callTimeoutMs`, up to this limit. Default 300,000. */
  maxCallTimeoutMs: number
  /** The time of one run, from its own start. Default 60,000. */
  runTimeoutMs: number
  /** The maximum number of failed reconnects in a row, for each server. Default 3. */
  maxReconnects: number
  /** The maximum number of calls of one server that run at the same time, from all callers together. Further calls wait. Default 128. */
  maxParallelCalls: number
  /**
   * The maximum number of questions that one run may ask a person or a model: approvals of calls, and questions of servers. Further
   * questions are denied. Default 100.
   */
  maxQuestions: number
  /** The size of a tool's result as the guest gets it. Default 1 MiB. */
  maxResponseBytes: number
  /** The size of a call's arguments as JSON. Default 1 MiB. */
  maxArgumentBytes: number
  /** The size of a run's input. Default 4 MiB. */
  maxInputBytes: number
  /** The size of the value that a run returns. Default 4 MiB. */
  maxValueBytes: number
  /**
   * The number of parts of the value that a run returns. Node reads the whole value in one turn of its event loop, and its parts decide how long
   * that takes. A list, an object, and a text of at most 10 characters that is new in the value count 1; a key that is new after the keys before it
   * in its object counts 3. Rows with the same keys count them once. Default 400,000.
   */
  maxValueParts: number
  /** The size of a run's code. Default 1 MiB. */
  maxCodeBytes: number
  /** The size of a run's log, all entries together. A longer log is cut, and a mark says so. Default 256 KiB. */
  maxLogBytes: number
  /**
   * The total size of the values that a sandbox keeps for its later runs (see `RunOptions.maxResultTokens`). The oldest values are removed first.
   * Default 16 MiB.
   */
  maxSavedBytes: number
  /** The time for which a sandbox keeps such a value. Default 3,600,000. */
  maxSavedAgeMs: number
  /** The size of the guest's heap. Default 64 MiB, at least 8 MiB. */
  guestHeapBytes: number
  /** The length of a description that a model may read, in characters. Default 2,000. */
  maxDescriptionChars: number
  /** The size of all rows of the audit. The oldest rows are removed. Default 64 MiB. */
  maxAuditBytes: number
  /** The age of the oldest row of the audit: 90 days. Older rows are removed. Default 7,776,000,000. */
  maxAuditAgeMs: number
}

/** A level of the guest's console. */
export type LogLevel = 'log' | 'info' | 'warn' | 'error' | 'debug'

/** A line that the guest wrote to its console. */
export interface LogEntry {
  level: LogLevel
  text: string
}

/** Options of `Gateway.agent`. `onEvent` gets the events of the agent's runs, calls and subscriptions; default: the gateway's. */
export interface AgentOptions extends CallerCallbacks {
  /**
   * Names of profiles of the config: the agent has only their servers, each as narrow as all of them say. Default: those of the agent's entry in the
   * config. Once the config has profiles, an agent without any has no server. A name that the config does not have is `ERR_INVALID_OPTION`, and two
   * profiles that set one variable or header of a server differently are `ERR_PROFILE_CONFLICT`.
   */
  profiles?: string[]
}

/** VMs that are started in advance, so that a run does not wait for its start. Each run has a VM of its own, which is destroyed after the run. */
export interface WarmVms {
  /** The maximum number of VMs that are kept ready; 0 for none. Default 2. */
  vms: number
  /** The maximum memory of these VMs together, at 4 MiB for each VM. Default 64 MiB. */
  maxBytes: number
  /** The time without a run after which these VMs are released, until the next run. Default 60,000. */
  idleMs: number
}

/** Options of `Gateway.open`. An unknown key or a wrong type is an error that names the key. */
export interface GatewayOptions extends Callbacks {
  /**
   * The path of the config file. Default `~/.hyperagent/config.json`; if that file does not exist, there are no servers. An explicit path that does
   * not exist is an error.
   */
  configPath?: string
  /** The content of the config, instead of a file. */
  config?: object
  /**
   * Reads a config file that has changed again by itself, as `reload()` does. An event `config-reloaded` tells the outcome; a config that cannot be
   * used changes nothing, and is a `warning`. A server that is new in the config still needs approval. Has no meaning with `config`. Default false.
   */
  watch?: boolean
  /** The folder for approvals and manifests. Default `~/.hyperagent/hyperlight-mcp`, created with mode 0700. */
  stateDir?: string
  /** The folder that `${workspaceFolder}` stands for. Servers whose entry has a relative path start in this folder. Default: the working directory. */
  workspaceFolder?: string
  /** Servers to enable when the gateway opens, if their approval is still valid. Default: none. */
  enable?: string[] | 'approved'
  /** Limits of this gateway. Defaults: see `Limits`. */
  limits?: Partial<Limits>
  /** The guest to run. `auto` selects the standard guest, or the ring-3 guest if the machine's KVM cannot run the standard one. Default `auto`. */
  guest?: 'auto' | 'standard' | 'ring3'
  /** VMs that are started in advance for the next runs. */
  warm?: Partial<WarmVms>
  /**
   * The folder in which the guest's snapshot is kept between processes. It is created with mode 0700 and may be deleted at any time. With `false`, no
   * snapshot is kept. Default `$XDG_CACHE_HOME/hyperlight-mcp/snapshots`, or `~/.cache/hyperlight-mcp/snapshots`.
   */
  snapshotDir?: string | boolean
  /**
   * The setting for servers whose config does not have one. `warn` adds a warning to the run or, for `callTool`, emits a `warning` event.
   * Default `warn`.
   */
  schemaViolations?: SchemaViolations
  /**
   * The setting for servers whose config does not have one. `warn` adds a warning to the run or, for `callTool`, emits a `warning` event. Arguments
   * are always sent as they were given: schema defaults are not filled in. Default `error`.
   */
  argumentChecks?: ArgumentChecks
  /**
   * The maximum size of a run's value, in a model's tokens, if neither the sandbox nor the run sets one. Default: values are not cut. See
   * `RunOptions`.
   */
  maxResultTokens?: number
  /** Also emits an event for each connection and each call. Default false. */
  trace?: boolean
  /**
   * True if a person must approve what an agent adds or changes. With `false`, the command and the first manifest of a server that an agent adds are
   * approved without one; a change, and an entry with placeholders, with variables that load code or redirect traffic, or with an address that is not
   * `https:` with a public name still ask. Default: true, unless the environment variable `MCP_REQUIRE_APPROVAL` is `false` or `0`.
   */
  requireApproval?: boolean
  /**
   * The audit also keeps the arguments of each call, without secrets, if they have at most 64 KiB. Otherwise it keeps only their digest under the
   * machine's key. Default false.
   */
  auditContent?: boolean
}

/**
 * A change of a server that an agent has added. Fields that are missing stay as they are. `confirm`, `disabled`, `envFile`, `oauth` and other keys of
 * the config cannot be set.
 */
export interface ServerChange {
  /** The display name: 1 to 64 visible characters. It says nothing about the server, and its name stays where this changes. */
  name?: string
  /** The program that starts the server. */
  command?: string
  args?: string[]
  /** Variables of the server's environment. They are merged with those that there are; `null` removes one. They are never returned. */
  env?: Record<string, string | null>
  /** The folder in which the command starts. */
  cwd?: string
  /** The address of a server behind Streamable HTTP, in place of a command. */
  url?: string
  /** Headers for the URL. They are merged with those that there are; `null` removes one. They are never returned. */
  headers?: Record<string, string | null>
  /** The only tools that exist. */
  allowTools?: string[]
  /** Tools that do not exist. */
  denyTools?: string[]
  /** The time limit of a call, in milliseconds. */
  timeoutMs?: number
}

/** A server to add: with a display name, and with either a command or a URL. */
export type NewServer = ServerChange & { name: string }

/** Options of `Gateway.approve`. */
export interface ApproveOptions {
  /** The time for which the approval is valid, in milliseconds, rounded down to seconds. Default: until it is revoked. */
  validForMs?: number
}

/** The result of `Gateway.reload`. All lists but `warnings` hold names of servers. */
export interface ReloadReport {
  added: string[]
  removed: string[]
  /** Servers whose entry changed. Their connections were closed. If the change affects what would be started, the server needs approval again. */
  changed: string[]
  /** Servers whose entry has an error; `servers()` gives the error. */
  invalid: string[]
  warnings: string[]
}

/**
 * A task: what runs are about. It attaches servers besides those that are always there, which are those of the config and those that the agent has added
 * for itself. A server that may not be used is not attached, and `warnings` of the run say why. A model never gives a task.
 */
export interface Task {
  /**
   * The task in words, at most 64 KiB. It attaches each server that has one of its words as a keyword or a capability: whole words, in any case.
   * Default: no text.
   */
  text?: string
  /**
   * The servers that the task needs: names, and entries of its own as in the config, like `{ weather: { command: 'npx', args: [] } }`. An entry hides
   * servers of its name from the task's runs, needs approval like any other, and ends with the sandbox. Its name in `servers()` and for `approve()` is
   * `weather@task-…`, with a digest of the entry. At most 256. Default: none.
   */
  servers?: (string | Record<string, unknown>)[] | Record<string, unknown>
  /** Capabilities: each server that has one of them is attached. At most 256. Default: none. */
  capabilities?: string[]
}

/** Options of `Gateway.resolve`. */
export interface ResolveOptions {
  /** The name of the agent. Default: the operator's own. */
  agent?: string
  /** The task. Default: none, so that only servers are in force that are always there. */
  task?: Task
  /** True for the lines alone, without `mcpServers`. Default false. */
  dryRun?: boolean
}

/** The servers that would be in force for an agent and a task. */
export interface Resolution {
  /**
   * The entries, by keys that other programs accept. Secrets are names of variables: `${NAME}`. Filters, `confirm` and approvals are not part of an entry:
   * the program that reads it does not know them. Missing with `dryRun`.
   */
  mcpServers?: Record<string, unknown>
  /** One line for each server that is in force, or that the task wants and that is left out. */
  servers: ResolvedServer[]
  /** What another program does not do with the entries, and servers that are not ready. */
  warnings: string[]
}

/** The line of one server in a `Resolution`. */
export interface ResolvedServer {
  name: string
  /** The key in `mcpServers`: `acme__shared-fs` for `acme--shared-fs`. */
  key: string
  inForce: boolean
  /** The reason why the server is in force or left out: a sentence. */
  reason: string
  /** Who brought the server. Missing for a name that no server has. */
  source?: ServerSource
  /** Other sources that have a server of this name, which is not used. */
  hides?: ServerSource[]
  /** The variables that the server needs and that are not set. Missing if there are none. */
  missing?: string[]
}

/** Options of `Gateway.sandbox`. */
export interface SandboxOptions extends Callbacks {
  /** What all runs of the sandbox are about. Default: no task. */
  task?: Task
  /** The form in which code gets errors that tools report. Default `return`. */
  toolErrors?: ToolErrors
  /** The maximum size of a run's value, in a model's tokens, if the run sets none. Default: the gateway's. See `RunOptions`. */
  maxResultTokens?: number
}

/** Options of `Sandbox.run`. */
export interface RunOptions extends Callbacks {
  /**
   * The task of the run, besides that of the sandbox. The servers that it brings live until the sandbox is closed or has another run with a task.
   * Default: no task.
   */
  task?: Task
  /** The value that `handler` is called with. Default `null`. */
  input?: unknown
  /** The time limit in milliseconds, from the run's own start. The default and the maximum are `limits.runTimeoutMs`. */
  timeoutMs?: number
  /** A signal that ends the run. The run rejects with `name: 'AbortError'`, `code: 'ERR_ABORTED'`, `cause: signal.reason`. */
  signal?: AbortSignal
  /** The form in which code gets errors that tools report. Default: the sandbox's. */
  toolErrors?: ToolErrors
  /**
   * The maximum size of the value, estimated in a model's tokens; at least 100. A larger value is cut, and stays JSON of the same type. Marks in the
   * value, and `omitted`, say what was cut. Later runs of this sandbox can read the whole value with `saved(savedAs)` of `host:mcp`. Default: the
   * sandbox's, else the gateway's, else the value is not cut.
   */
  maxResultTokens?: number
  /**
   * The trace that the run belongs to, as a W3C `traceparent`. It is passed on to servers in `_meta`. With `OTEL_EXPORTER_OTLP_ENDPOINT`, it is the
   * parent of the run's span. Default: a trace of its own where spans are exported, else none.
   */
  traceparent?: string
}

/** Options of `Gateway.callTool`. */
export interface CallOptions extends Callbacks {
  /** The time limit in milliseconds. A value above `limits.callTimeoutMs` is reduced to that limit. Default `limits.callTimeoutMs`. */
  timeoutMs?: number
  /** A signal that cancels the call, also at the server. */
  signal?: AbortSignal
  /**
   * The trace that the call belongs to, as a W3C `traceparent`. It is passed on to servers in `_meta`. With `OTEL_EXPORTER_OTLP_ENDPOINT`, it is the
   * parent of the call's span. Default: a trace of its own where spans are exported, else none.
   */
  traceparent?: string
}

/** Options of `Gateway.complete`. */
export interface CompleteOptions extends CallOptions {
  /** Values of arguments that were already chosen, by argument name. The server may use them to narrow the completion. */
  context?: Record<string, string>
}

/** The result of a run. If the run fails, the error has `logs`, `warnings` and `stats` as well. */
export interface RunResult<T = Value> {
  /** The value that the handler returned; `null` for `undefined`. The type `T` is not checked at run time. */
  value: T
  logs: LogEntry[]
  /** Warnings about the run; for example, that text was cut. */
  warnings: string[]
  stats: RunStats
  /** The places at which `value` was cut to fit `maxResultTokens`, in their order in the value, at most a thousand. Missing if nothing was cut. */
  omitted?: Omission[]
  /** The handle with which later runs of the same sandbox read the whole value. Missing if nothing was cut, or if the value was too large to be kept. */
  savedAs?: string
}

/** A place in a value at which something was left out. */
export interface Omission {
  /** A JSON Pointer (RFC 6901) into the whole value, to the part that was cut; `''` is the value itself. */
  path: string
  /**
   * The kind of the cut. `text`: the middle or the end of a string was left out. `items`: the last items of an array. `keys`: fields of an object.
   * `bytes`: a `Uint8Array`, replaced by a string. `depth`: all items of a nested array, or all fields of a nested object.
   */
  kind: 'text' | 'items' | 'keys' | 'bytes' | 'depth'
  /** The amount that is kept in the value, and (`of`) the whole amount: the `length` of strings and bytes, or the number of items or keys. */
  kept: number
  of: number
}

/** Measurements of a run. Times are in milliseconds, sizes in bytes. */
export interface RunStats {
  durationMs: number
  /** The time to start the VM and load the modules. */
  startMs: number
  /** The number of calls that left the VM. */
  calls: number
  /** The time spent outside the VM for these calls. Time in which several calls are pending counts once. */
  callMs: number
  /** The bytes that calls sent out of the VM; `bytesIn` counts the bytes that came back. */
  bytesOut: number
  bytesIn: number
}

/** The result of `tools/call`, as the server returned it. */
export interface ToolResult {
  content: unknown[]
  structuredContent?: unknown
  isError: boolean
  meta?: unknown
}

/** Reports if this machine can run a guest, and if it cannot, the reason. */
export interface HypervisorReport {
  available: boolean
  guest?: 'standard' | 'ring3'
  /** The time to boot the guest and take its snapshot, or to load a stored snapshot, in milliseconds. */
  bootMs?: number
  /**
   * The origin of the snapshot that runs start from: `booted` by this process, `kept` (booted by this process and stored on disk since), or `found`
   * on disk.
   */
  snapshot?: 'booted' | 'kept' | 'found'
  /** The reason why no guest boots. `remedy` says what to do. */
  problem?: string
  remedy?: string
  /** A warning about the guest that runs. */
  warning?: string
}

/** Who brought a server. Where two sources have a server of one name, the kind that stands first here is used. */
export interface ServerSource {
  kind: 'task' | 'config' | 'agent' | 'provider' | 'generated' | 'catalogue'
  /**
   * The name of the agent, the provider or the task; with `config`, of the program whose config is a layer under the operator's. Absent for the
   * operator's own config.
   */
  name?: string
}

/** A server and its present state. */
export interface ServerStatus {
  name: string
  /**
   * The server's state. `invalid` means that its entry in the config has an error, which `lastError` gives. `pending-approval` means that an agent has
   * added or changed it, and nobody has decided about it; such servers come first. `not-ready` means that it cannot start, as variables that it needs
   * are `missing`; `approved` says whether it is approved.
   */
  state:
    | 'invalid'
    | 'disabled'
    | 'pending-approval'
    | 'not-ready'
    | 'unapproved'
    | 'command-approved'
    | 'idle'
    | 'connecting'
    | 'connected'
    | 'error'
  /** True if both the command and the manifest are approved, as the server is configured now. */
  approved: boolean
  enabled: boolean
  /** Present if `disable()`, or a command that a person typed, disabled the server. A model cannot enable such a server. */
  disabledByPerson?: true
  /** The name that an agent gave a server that it has added: free text, which says nothing about the server. */
  displayName?: string
  /** The server of which this is a variant by profiles. The code of an agent with these profiles knows the variant by this name. */
  variantOf?: string
  /**
   * The words of a provider, or of the catalogue, about the server, in one line and without secrets. Nobody approves them, so no model is given them. An
   * agent gets them once the server is approved.
   */
  description?: string
  /** Who brought the server. */
  source: ServerSource
  /** Other sources that have a server of this name, which is not used. */
  hides?: ServerSource[]
  /** The variables that the server needs and that are not set. It does not start without them. Missing if there are none. */
  missing?: string[]
  /** The names of the approved tools, as the server gives them. */
  tools: string[]
  /** The approved tools that the server has changed or removed since the approval. Calls of these tools fail. */
  quarantined: string[]
  lastError?: { code: ErrorCode; message: string }
}

/** The result of `Gateway.test`. */
export interface ConnectionReport {
  server: string
  /** The time from the start of the process until its list of tools is complete, in milliseconds. */
  connectMs: number
  /** The protocol version that was negotiated. */
  era: string
  serverName: string
  serverVersion: string
  tools: string[]
  /** Names in the config's filters that the server does not have. */
  warnings: string[]
}

/** Supports `await using gateway = await Gateway.open()`. */
export interface Gateway {
  [Symbol.asyncDispose](): Promise<void>
}

/** Supports `await using agent = gateway.agent('name')`. */
export interface Agent {
  [Symbol.asyncDispose](): Promise<void>
}

/** Supports `await using sandbox = await gateway.sandbox()`. */
export interface Sandbox {
  [Symbol.asyncDispose](): Promise<void>
}
