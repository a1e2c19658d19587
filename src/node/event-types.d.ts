/** An event of a gateway, passed to `onEvent`. */
export type GatewayEvent =
  | LogEvent
  | WarningEvent
  | ConfigReloadedEvent
  | ApprovalsDamagedEvent
  | ApprovalProposedEvent
  | ServerProposedEvent
  | ExecutableChangedEvent
  | NotGrantedEvent
  | ServerUnavailableEvent
  | ToolsChangedEvent
  | ProgressEvent
  | ServerLogEvent
  | ConnectionEvictedEvent
  | BoxRefusedEvent
  | ConnectionIdleEvent
  | ConnectionLostEvent
  | ElicitationCancelledEvent
  | ResourceUpdatedEvent
  | ConnectedEvent
  | CallEvent

/** An event: the guest wrote to its console. */
export interface LogEvent {
  type: 'log'
  /** The number of the run in this process, counted from 1. */
  runId: number
  level: LogLevel
  text: string
}

/**
 * A warning for an operator. Examples: a doubtful entry in the config (at `open` and `reload`), the use of the ring-3 guest (at `sandbox`), or a
 * result that does not match its tool's own `outputSchema` (at `callTool`).
 */
export interface WarningEvent {
  type: 'warning'
  message: string
}

/** An event with the option `watch`: the config file has changed and was read again. */
export interface ConfigReloadedEvent extends ReloadReport {
  type: 'config-reloaded'
}

/**
 * An event: another program has changed decisions in the store, or has restored an earlier state. These decisions are not used any more, so servers
 * need approval again. The event is sent once for each kind of decision that is read. The message names the kind.
 */
export interface ApprovalsDamagedEvent {
  type: 'approvals-damaged'
  message: string
}

/**
 * An event: an agent has added or changed a server, and a person must decide about it: `approve(server, request.digest)`, or
 * `removeServer(server)`. It is sent again each time that a gateway is opened, until somebody has decided.
 */
export interface ServerProposedEvent {
  type: 'server-proposed'
  server: string
  /** The name that the agent gave the server. It is free text and may be wrong. */
  displayName: string
  /** The name of the agent. Missing for the operator's own agent. */
  agent?: string
  /** True if the server was approved without a person, because `requireApproval` is false. */
  approved: boolean
  /**
   * The stage that the person must decide about. `manifest`: the command is approved already, and `request` shows it; `approvalRequest(server)`
   * starts the server, and returns its tools. Such an event is sent only when a gateway is opened.
   */
  stage: 'command' | 'manifest'
  /**
   * The request that the person must see before anything of the server runs. If the event is sent because a gateway is opened, `box.allows` and
   * `changeableBy` have only what the entry decides; `approvalRequest(server)` adds what is in its folders now, and has the same digest, unless
   * its box cannot be made now, or the request names other servers.
   */
  request: CommandRequest
}

/** An event: the file of a server's program has changed since its command was approved. With `pinExecutable`, the server needs approval again. */
export interface ExecutableChangedEvent {
  type: 'executable-changed'
  server: string
  path: string
  /** The SHA-256 of the program file when it was approved. `now` is its present SHA-256. */
  before: string
  now: string
}

/**
 * An event for the operator: an agent has called a tool, or used a resource or prompt, that its toolboxes do not allow. It is sent once for each
 * agent and item. For the agent's model, the item does not exist.
 */
export interface NotGrantedEvent {
  type: 'not-granted'
  agent: string
  server: string
  /** The tool's name, `resource:` with a URI, `prompt:` with a name, or `*` if the agent's code requested the whole server. */
  item: string
  /** The reason, and the toolboxes that allow the item, if there are any. It must not be shown to a model. */
  reason: string
}

/**
 * An event for the operator, before a run: the run does not have a server of the config, although nobody has disabled it. It is not approved, not
 * enabled, or its entry has an error. It is sent once for each server and reason; no model is told.
 */
export interface ServerUnavailableEvent {
  type: 'server-unavailable'
  server: string
  /** The reason, such as `it is not approved`. */
  reason: string
}

/**
 * An event: a server's tools, resources or prompts differ from those that were approved. New ones are not available; changed and removed ones cannot
 * be called or read. All others remain available.
 */
export interface ToolsChangedEvent extends Changes {
  type: 'tools-changed'
  server: string
  /** Resources that differ, by URI. Missing if none differ. */
  resources?: Changes
  /** Resource templates that differ, by URI template. Missing if none differ. */
  resourceTemplates?: Changes
  prompts?: Changes
}

/** Names of tools, resources or prompts that differ from the approved ones. They are the names that the server gives. */
export interface Changes {
  added: string[]
  removed: string[]
  changed: string[]
}

/**
 * A progress report of a server for a call. Reports are passed in the server's order to the `onEvent` of the run or call, otherwise to the
 * gateway's.
 */
export interface ProgressEvent {
  type: 'progress'
  server: string
  tool: string
  runId?: number
  progress: number
  total?: number
  message?: string
}

/**
 * A log message of a server. Messages are passed in the server's order. They go to the `onEvent` of a run if only this run has calls at the server,
 * otherwise to the gateway's.
 */
export interface ServerLogEvent {
  type: 'server-log'
  server: string
  runId?: number
  level: string
  logger?: string
  data: unknown
}

/** An event: a connection was closed to make room for another server (`limits.maxConnections`). The server's session state is lost. */
export interface ConnectionEvictedEvent {
  type: 'connection-evicted'
  server: string
  madeRoomFor: string
}

/** An event: a connection was closed because it was not used for `idleTimeoutMs`. The next call connects again. */
export interface ConnectionIdleEvent {
  type: 'connection-idle'
  server: string
}

/** An event: a connection ended because the server crashed or closed it. The next call connects again. */
export interface ConnectionLostEvent {
  type: 'connection-lost'
  server: string
  /** The way in which the process ended, and its last lines on stderr. */
  reason: string
}

/**
 * An event: a server has tried to reach a host that its box does not have. It is sent once for each host, port and reason. If there are
 * very many, only some are sent. The server has chosen the text of the host.
 */
export interface BoxRefusedEvent {
  type: 'box-refused'
  server: string
  /** The name that the server has asked for, or an address. */
  host: string
  /** Absent if the server has only asked for the name. */
  port?: number
  /**
   * `not-allowed`: `box.network` does not have the host with this port. `private-address`: the name leads to an address that only this machine or its network
   * reaches. `too-many`: more connections or names than a box may have.
   */
  reason: 'not-allowed' | 'private-address' | 'too-many'
}

/** An event: a server's question was cancelled, because it could not be shown, or because it was not certain to which run or call it belongs. */
export interface ElicitationCancelledEvent {
  type: 'elicitation-cancelled'
  server: string
  reason: string
}

/** An event: a subscribed resource has changed. */
export interface ResourceUpdatedEvent {
  type: 'resource-updated'
  server: string
  uri: string
}

/** An event with `trace`: a server was connected. */
export interface ConnectedEvent {
  type: 'connected'
  server: string
  connectMs: number
}

/** An event with `trace`: a call has ended. Sizes are in bytes of JSON; contents are never included. */
export interface CallEvent {
  type: 'call'
  server: string
  tool: string
  durationMs: number
  argumentBytes: number
  resultBytes?: number
  /** The error code, if the call failed. */
  error?: ErrorCode
}
