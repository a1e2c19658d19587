/** Something that happened, as it happens. */
export type GatewayEvent =
  | LogEvent
  | WarningEvent
  | ApprovalsDamagedEvent
  | ApprovalProposedEvent
  | ExecutableChangedEvent
  | ToolsChangedEvent
  | ProgressEvent
  | ServerLogEvent
  | ConnectionEvictedEvent
  | ConnectionIdleEvent
  | ConnectionLostEvent
  | ElicitationCancelledEvent
  | ResourceUpdatedEvent
  | ConnectedEvent
  | CallEvent

/** The guest wrote to its console. */
export interface LogEvent {
  type: 'log'
  /** Which run of this process, counted from 1. */
  runId: number
  level: LogLevel
  text: string
}

/**
 * A warning for an operator: something odd in the config (at `open` and `reload`), that the ring-3 guest is in use (at `sandbox`), or
 * a result that breaks its tool's own `outputSchema` (at `callTool`).
 */
export interface WarningEvent {
  type: 'warning'
  message: string
}

/** The approval file was damaged or tampered with: it was kept aside, and every server needs approval again. */
export interface ApprovalsDamagedEvent {
  type: 'approvals-damaged'
  message: string
}

/** A server's program is not the one that was there when its command was approved. With `pinExecutable` it needs approval. */
export interface ExecutableChangedEvent {
  type: 'executable-changed'
  server: string
  path: string
  /** SHA-256 of its content. */
  before: string
  now: string
}

/**
 * A server's tools, resources or prompts are not as they were approved: those that are new do not exist, the others cannot be called or
 * read. What is not named here is as it was.
 */
export interface ToolsChangedEvent extends Changes {
  type: 'tools-changed'
  server: string
  /** By URI; missing where none differ. */
  resources?: Changes
  /** By the templates' texts. */
  resourceTemplates?: Changes
  prompts?: Changes
}

/** Raw names of what differs from what was approved. */
export interface Changes {
  added: string[]
  removed: string[]
  changed: string[]
}

/** A server tells how far a call is: in the server's order. To the `onEvent` of the run or call, else the gateway's. */
export interface ProgressEvent {
  type: 'progress'
  server: string
  tool: string
  runId?: number
  progress: number
  total?: number
  message?: string
}

/** A server's own log, in its order. To the `onEvent` of the run, where only one has calls in flight there, else the gateway's. */
export interface ServerLogEvent {
  type: 'server-log'
  server: string
  runId?: number
  level: string
  logger?: string
  data: unknown
}

/** A connection gave way to another server's (`limits.maxConnections`): what the server knew of this session is gone. */
export interface ConnectionEvictedEvent {
  type: 'connection-evicted'
  server: string
  madeRoomFor: string
}

/** A connection was closed, as nobody had used it for `idleTimeoutMs`. The next call connects again. */
export interface ConnectionIdleEvent {
  type: 'connection-idle'
  server: string
}

/** A connection ended by itself: the server crashed, or closed it. The next call connects again. */
export interface ConnectionLostEvent {
  type: 'connection-lost'
  server: string
  /** The way in which the process ended, and its last words. */
  reason: string
}

/** A server's question reached nobody: it could not be shown, or it was not certain whose it was. */
export interface ElicitationCancelledEvent {
  type: 'elicitation-cancelled'
  server: string
  reason: string
}

/** A resource that was subscribed to has changed. */
export interface ResourceUpdatedEvent {
  type: 'resource-updated'
  server: string
  uri: string
}

/** With `trace`: a server was connected. */
export interface ConnectedEvent {
  type: 'connected'
  server: string
  connectMs: number
}

/** With `trace`: a call has ended. Sizes in bytes of JSON, never contents. */
export interface CallEvent {
  type: 'call'
  server: string
  tool: string
  durationMs: number
  argumentBytes: number
  resultBytes?: number
  /** The code of its error, where it failed. */
  error?: ErrorCode
}
