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
/** The ranking of tools in a search: by the words of the question, or also by its meaning. */
export type SearchRanking = 'words' | 'hybrid'
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
  /**
   * The maximum number of open connections. A server that was called in a run keeps its connection while the run lasts. If only such
   * connections could be closed, up to the same number of further connections are opened until the runs end. Default 20.
   */
  maxConnections: number
  /**
   * The time to connect to a server: from the start of its process, or its first HTTP request, until all its lists (tools, resources, prompts) are
   * read. The time in which a person is asked does not count. Default 10,000; 120,000 for `npx`, `uvx`, `docker`.
   */
  connectTimeoutMs: number
  /** The time limit of one tool call. If less time is left of the run, that is the limit. Default 30,000. */
  callTimeoutMs: number
  /** The maximum time of a tool call whose server reports progress. Each progress report restarts `callTimeoutMs`, up to this limit. Default 300,000. */
  maxCallTimeoutMs: number
  /** The time limit of one run. It counts from the start of the run, without the time in the queue. Default 60,000. */
  runTimeoutMs: number
  /** The maximum processor time of the code of one run. The time of its calls, timers and questions to a person does not count. Default 5,000. */
  computeTimeoutMs: number
  /** The maximum number of failed reconnects in a row, for each server. Default 3. */
  maxReconnects: number
  /** The maximum number of simultaneous calls to one server, from all callers together. Further calls wait. Default 128. */
  maxParallelCalls: number
  /**
   * The maximum number of questions that one run may ask a person or a model: approvals of calls, and questions of servers. Further
   * questions are denied. Default 100.
   */
  maxQuestions: number
  /** The maximum size of a tool's result in the form that the guest gets. Default 1 MiB. */
  maxResponseBytes: number
  /** The maximum size of a call's arguments as JSON. Default 1 MiB. */
  maxArgumentBytes: number
  /** The maximum size of a run's input. Default 4 MiB. */
  maxInputBytes: number
  /** The maximum size of the value that a run returns. Default 4 MiB. */
  maxValueBytes: number
  /**
   * The maximum number of parts in the value that a run returns. Node converts the whole value in one turn of its event loop, and the number of
   * parts determines the time for this. These count as 1: a list, an object, and a text of at most 10 characters that has not occurred in the value
   * before. A key counts as 3 if it is new after the keys before it in its object. Rows with the same keys count these keys once. Default 400,000.
   */
  maxValueParts: number
  /** The maximum size of a run's code. Default 1 MiB. */
  maxCodeBytes: number
  /** The maximum size of a run's log, with all its entries. A longer log is cut, and its last entry says so. Default 256 KiB. */
  maxLogBytes: number
  /**
   * The total size of the values that a sandbox keeps for its later runs (see `RunOptions.maxResultTokens`). The oldest values are removed first.
   * Default 16 MiB.
   */
  maxSavedBytes: number
  /** The time for which a sandbox keeps a value for its later runs. Default 3,600,000. */
  maxSavedAgeMs: number
  /** The size of the guest's heap. Default 64 MiB, at least 8 MiB. */
  guestHeapBytes: number
  /** The maximum length of a description that a model may read, in characters. Default 2,000. */
  maxDescriptionChars: number
  /** The maximum size of all rows of the audit. The oldest rows are removed first. Default 64 MiB. */
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

/** Options of `Gateway.agent`. `onEvent` gets the events of the agent's runs, calls and subscriptions. Default: the gateway's `onEvent`. */
export interface AgentOptions extends CallerCallbacks {
  /**
   * Names of profiles of the config. The agent has only the servers of these profiles. If several profiles have a server, the filters of all of
   * them apply to it, and the shortest time limit and the strictest `confirm`. Default: the profiles in the agent's entry of the config. If the
   * config has profiles, an agent without profiles has no server. A name that the config does not have fails with `ERR_INVALID_OPTION`. Two
   * profiles that set the same variable or header of a server to different values fail with `ERR_PROFILE_CONFLICT`.
   */
  profiles?: string[]
}

/**
 * VMs that are started in advance, so that a run does not have to wait for the start of a VM. Each run has a separate VM, which is destroyed after
 * the run.
 */
export interface WarmVms {
  /** The maximum number of VMs of a pool that are kept ready; 0 for none. Default 2. */
  vms: number
  /** The maximum memory of the VMs that a pool keeps ready. Each VM counts as 4 MiB. Default 64 MiB. */
  maxBytes: number
  /** The time without a run after which the VMs of a pool are released, until the next run. Default 60,000. */
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
   * Reads the config file again when it changes, as `reload()` does. An event `config-reloaded` reports the result. A config that cannot be used
   * changes nothing, and a `warning` reports it. A server that is new in the config still needs approval. Has no effect with `config`.
   * Default false.
   */
  watch?: boolean
  /** The folder for approvals and manifests. Default `~/.hyperagent/hyperlight-mcp`, created with mode 0700. */
  stateDir?: string
  /** The value of `${workspaceFolder}`. Servers whose entry has a relative path start in this folder. Default: the working directory. */
  workspaceFolder?: string
  /**
   * Servers to enable when the gateway opens, if their approval is still valid. The variants that profiles make of a server are enabled with it, each
   * if it is approved. Default: none.
   */
  enable?: string[] | 'approved'
  /** Limits of this gateway. Defaults: see `Limits`. */
  limits?: Partial<Limits>
  /** The guest to run. `auto` selects the standard guest, or the ring-3 guest if the machine's KVM cannot run the standard one. Default `auto`. */
  guest?: 'auto' | 'standard' | 'ring3'
  /**
   * VMs that are started in advance for the next runs. The settings apply to each of two pools. The second pool is for runs that may fetch,
   * and begins with the first such run. So a gateway keeps at most twice as many VMs ready.
   */
  warm?: Partial<WarmVms>
  /**
   * The folder in which the guest's snapshot is kept between processes. It is created with mode 0700 and may be deleted at any time. With `false`, no
   * snapshot is kept. Default `$XDG_CACHE_HOME/hyperlight-mcp/snapshots`, or `~/.cache/hyperlight-mcp/snapshots`.
   */
  snapshotDir?: string | boolean
  /**
   * The handling of results that do not match the tool's `outputSchema`, for servers whose config does not set it. `warn` adds a warning to
   * the run or, for `callTool`, emits a `warning` event. Default `warn`.
   */
  schemaViolations?: SchemaViolations
  /**
   * The handling of arguments that do not match the tool's `inputSchema`, for servers whose config does not set it. `warn` adds a warning
   * to the run or, for `callTool`, emits a `warning` event. Arguments are always sent as they were given: schema defaults are not filled
   * in. Default `error`.
   */
  argumentChecks?: ArgumentChecks
  /**
   * The maximum size of a run's value, in a model's tokens, if neither the sandbox nor the run sets one. Default: values are not cut. See
   * `RunOptions`.
   */
  maxResultTokens?: number
  /**
   * True to learn the shapes of results of tools that have no `outputSchema` from the results that an agent sees. The shapes are shown to
   * this agent only, in `declarations`, `describe`, `toolInfo` and the hints, marked as seen and not promised. Values are not kept.
   * Default true, or `learnResults` of the config.
   */
  learnResults?: boolean
  /**
   * The ranking of tools by `searchTools` and by `search` of `host:mcp`: by the words of the question, or also by its meaning. `hybrid`
   * needs the package `hyperlight-mcp-search-model` beside this one; without it, a warning says so, and tools are ranked by words.
   * Default `words`, or `search` of the config.
   */
  search?: SearchRanking
  /** The folder of the package `hyperlight-mcp-search-model`. Default: the package that is installed together with this one. */
  searchModel?: string
  /** True to emit events also for each connection and each call. Default false. */
  trace?: boolean
  /**
   * True if a person must approve each server that an agent adds or changes. With `false`, the command and the first manifest of an added server
   * are approved without a person. A person must still approve a changed server, and an entry with one of these: placeholders, variables that load
   * code or redirect traffic, or an address that is not `https:` with a public name. Default: true, unless the environment variable
   * `MCP_REQUIRE_APPROVAL` is `false` or `0`.
   */
  requireApproval?: boolean
  /**
   * True to store the arguments of each call in the audit, without secrets, if they have at most 64 KiB. Otherwise, only their digest under the
   * machine's key is stored. Default false.
   */
  auditContent?: boolean
  /** Rules for `fetch` in agent code. Code has no `fetch` unless a run or its agent has approved hosts. */
  fetch?: GatewayFetch
}

/**
 * A change of a server that an agent has added. Fields that are missing do not change. `confirm`, `disabled`, `envFile`, `oauth` and other keys of
 * the config cannot be set.
 */
export interface ServerChange {
  /**
   * The display name: 1 to 64 visible characters. It is free text and may be wrong. The server's name does not change if the display name changes.
   */
  name?: string
  /** The program that starts the server. */
  command?: string
  args?: string[]
  /** Variables of the server's environment. They are merged with the existing ones; `null` removes a variable. Their values are never returned. */
  env?: Record<string, string | null>
  /** The folder in which the command starts. */
  cwd?: string
  /** The URL of a server that uses Streamable HTTP, instead of a command. */
  url?: string
  /** Headers for the URL. They are merged with the existing ones; `null` removes a header. Their values are never returned. */
  headers?: Record<string, string | null>
  /** The tools that the server may offer. All other tools are hidden. */
  allowTools?: string[]
  /** The tools that are hidden. */
  denyTools?: string[]
  /** The time limit of a call, in milliseconds. */
  timeoutMs?: number
}

/** A server to add. It has a display name, and either a command or a URL. */
export type NewServer = ServerChange & { name: string }

/** Options of `Gateway.approve`. */
export interface ApproveOptions {
  /** The time for which the approval is valid, in milliseconds, rounded down to seconds. Default: until it is revoked. */
  validForMs?: number
}

/** The result of `Gateway.reload`. All lists except `warnings` contain names of servers. */
export interface ReloadReport {
  added: string[]
  removed: string[]
  /** Servers whose entry changed. Their connections were closed. If the change affects what would be started, the server needs approval again. */
  changed: string[]
  /** Servers whose entry has an error. `servers()` reports the error. */
  invalid: string[]
  warnings: string[]
}

/**
 * A task that describes what runs have to do. It attaches additional servers to them. Without a task, runs can use the servers of the config and
 * those that the agent has added for itself. A server that may not be used is not attached, and the run's `warnings` contain the reason. A model
 * can never set a task.
 */
export interface Task {
  /**
   * The text of the task, at most 64 KiB. A server is attached if one of its keywords or capabilities occurs in the text as a whole word, in upper
   * or lower case. Default: no text.
   */
  text?: string
  /**
   * The servers that the task needs: names of servers, and entries as in the config, like `{ weather: { command: 'npx', args: [] } }`. An entry
   * hides other servers of its name from the task's runs, needs a separate approval, and ends with the sandbox. In `servers()` and for `approve()`,
   * its name is `weather@task-…`, with a digest of the entry. At most 256. Default: none.
   */
  servers?: (string | Record<string, unknown>)[] | Record<string, unknown>
  /** Capabilities: each server that has one of them is attached. At most 256. Default: none. */
  capabilities?: string[]
}

/** Options of `Gateway.resolve`. */
export interface ResolveOptions {
  /** The name of the agent. Default: the operator's own. */
  agent?: string
  /** The task. Default: none, so only servers that need no task are available. */
  task?: Task
  /** True to return only the lines, without `mcpServers`. Default false. */
  dryRun?: boolean
}

/** The servers that would be available to an agent and a task. */
export interface Resolution {
  /**
   * The entries, with keys that other programs accept. Secrets are replaced by names of variables: `${NAME}`. An entry contains no filters, no
   * `confirm` and no approval, because other programs do not support them. Missing with `dryRun`.
   */
  mcpServers?: Record<string, unknown>
  /** One line for each server that is available, or that the task requests and that is left out. */
  servers: ResolvedServer[]
  /** Differences in the way that another program uses the entries, and servers that are not ready. */
  warnings: string[]
}

/** The line of one server in a `Resolution`. */
export interface ResolvedServer {
  name: string
  /** The key in `mcpServers`: `acme__shared-fs` for `acme--shared-fs`. */
  key: string
  inForce: boolean
  /** The reason why the server is available or left out, in a sentence. */
  reason: string
  /** The source of the server. Missing for a name that no server has. */
  source?: ServerSource
  /** Other sources that have a server of this name. Their servers are not used. */
  hides?: ServerSource[]
  /** The variables that the server needs and that are not set. Missing if there are none. */
  missing?: string[]
}

/** Reports whether this machine can run a guest, and the reason if it cannot. */
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

/** Reports which parts of a box this machine has. */
export interface BoxesReport {
  /** True if this machine can make boxes with all their features. */
  available: boolean
  /** True if Landlock and the filter of system calls can enforce a box without namespaces. Then most entries can still be started. */
  landlockAlone: boolean
  /** All parts. Those that every box needs come first. Empty if the program that makes boxes cannot be run. */
  parts: BoxPart[]
  /** The reason why the program that makes boxes cannot be run. */
  problem?: string
}

/** A private home of a server in a box. */
export interface PrivateHome {
  id: string
  /**
   * The name of the server. If it is not from the operator's config, it begins with its source: `agent:researcher:notes`. A home of an earlier
   * version whose server is not approved has none.
   */
  server?: string
  /**
   * - `running`: a server runs in a box with this home.
   * - `configured`: a server of this gateway gets it at its next start.
   * - `approved`: its server is approved, but its entry is gone, was changed, or belongs to another config or workspace.
   * - `unused`: no server can get it any more.
   */
  used: 'running' | 'configured' | 'approved' | 'unused'
  /** The size on the disk. */
  bytes: number
  files: number
  /** False if the home contains more than was measured. */
  isComplete: boolean
  /** The time of the last start, in milliseconds since 1970. */
  lastUsedMs?: number
}

/** The result of `Gateway.removePrivateHomes`. */
export interface RemovedHomes {
  removed: PrivateHome[]
  /** Homes that were named, but are in use. */
  kept: PrivateHome[]
}

/** A part of the kernel that boxes need, with the result of the attempt to use it. */
export interface BoxPart {
  /**
   * Every box with namespaces has the first five. Without `scopes`, a box with the machine's network reaches the abstract sockets of the
   * machine. Without `cgroup`, memory and processes are counted, and `cpuPercent` is refused.
   */
  name: 'userNamespaces' | 'networkNamespaces' | 'mounts' | 'landlock' | 'systemCallFilter' | 'scopes' | 'cgroup'
  available: boolean
  /** The version of Landlock, or the resources that a cgroup can limit. */
  detail?: string
  /** The reason why the machine does not have the part. `remedy` says what to do, if something is known. */
  problem?: string
  remedy?: string
}

/** The source of a server. If two sources have a server of the same name, the kind that comes first in this list is used. */
export interface ServerSource {
  kind: 'task' | 'config' | 'agent' | 'provider' | 'generated' | 'catalogue'
  /**
   * The name of the agent, of the provider's package (or of the provider, if the agent's code has registered it), or of the task. With `config`, it is
   * the name of the program whose config is a layer under the operator's config. Missing for the operator's own config.
   */
  name?: string
}

/** A server and its present state. */
export interface ServerStatus {
  name: string
  /**
   * The server's state. `invalid`: its entry in the config has an error, which `lastError` contains. `pending-approval`: an agent has added or
   * changed it, and nobody has decided about it; such servers come first. `not-ready`: it cannot start, because variables that it needs are
   * `missing`; `approved` says whether it is approved.
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
  /** The name that an agent gave a server that it has added. It is free text and may be wrong. */
  displayName?: string
  /** The server from which profiles have created this variant. For the code of an agent with these profiles, this name refers to the variant. */
  variantOf?: string
  /**
   * The description of the server by its provider or by the catalogue, in one line and without secrets. Nobody approves it, so it is not given to
   * models. An agent gets it after the server was approved.
   */
  description?: string
  /** The source of the server. */
  source: ServerSource
  /** Other sources that have a server of this name. Their servers are not used. */
  hides?: ServerSource[]
  /** The variables that the server needs and that are not set. Without them, it does not start. Missing if there are none. */
  missing?: string[]
  /** The names of the approved tools, as the server gives them. */
  tools: string[]
  /** The approved tools that the server has changed or removed since the approval. Calls of these tools fail. */
  quarantined: string[]
  /**
   * The last error. If a server wrote something before it ended, the message has the most informative line. The command `logs` shows all
   * lines.
   */
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
