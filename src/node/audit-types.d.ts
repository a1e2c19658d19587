/** Selects rows of the audit. All that is given must fit. An unknown key or a wrong type is an error that names the key. */
export interface AuditQuery {
  /** Only rows from this time on, in milliseconds since 1970, as `Date.now()` returns it. Default: from the first row on. */
  since?: number
  /** Only rows of this agent. Default: of all. */
  agent?: string
  /** Only rows of this server. Default: of all. */
  server?: string
  /** Only rows of this tool, by the server's own name for it. Default: of all. */
  tool?: string
  /** Only rows of this kind. Default: of all. */
  kind?: AuditKind
  /** The maximum number of rows, at least 1; the last ones are returned. Default 1,000. */
  limit?: number
}

/**
 * The subject of a row. `server`: a server was added, changed, removed, enabled or disabled. `call`: a call of a tool, or another request to a server.
 * `gap`: events are missing here. `damage`: another program has changed the audit before this row.
 */
export type AuditKind = 'approval' | 'revocation' | 'server' | 'grant' | 'connection' | 'call' | 'gap' | 'damage'

/**
 * The action that a row records. `command` and `manifest` are the stages of an approval. `provider`: the code of a package that brings servers was
 * approved. `default`: what agents without a grant get was changed.
 * `config`: the rows that follow, of the same process, say what has changed in the config's grants; if the gateway was just opened, all of them. `queue-full`: events came faster than they could be written.
 * `process-ended`: a process ended without closing its gateway. `head-changed`: the end of the chain was changed, or is older than what was written.
 */
export type AuditAction =
  | 'command'
  | 'manifest'
  | 'provider'
  | 'revoked'
  | 'added'
  | 'changed'
  | 'removed'
  | 'enabled'
  | 'disabled'
  | 'granted'
  | 'ungranted'
  | 'default'
  | 'config'
  | 'opened'
  | 'failed'
  | 'lost'
  | 'idle'
  | 'evicted'
  | 'queue-full'
  | 'process-ended'
  | 'head-changed'

/** The party that has decided something. `setting`: a setting that decides without a person. */
export type AuditParty = 'person' | 'model' | 'agent' | 'config' | 'setting'

/** A row of the audit. */
export interface AuditRow {
  /** The place in the chain, from 1. */
  number: number
  /** Milliseconds since 1970. */
  at: number
  kind: AuditKind
  /** The agent's name. Missing for the operator's own agent. */
  agent?: string
  server?: string
  /** The tool's name as the server gives it, or the method of another request. */
  tool?: string
  /** The id of the process that wrote the row; with `process-ended`, of the one that has ended, 0 if that is not known. */
  pid: number
  /** What has happened, for each kind but `call`. */
  action?: AuditAction
  by?: AuditParty
  /** The name of the package that brings servers, in a row about its code. */
  provider?: string
  /**
   * The digest that was approved; the source of a server; the toolbox of a grant, or `profile:` with the name of a profile; `all` or `none` of a default; the
   * digest of all grants of a config.
   */
  subject?: string
  /** The patterns of the toolbox, or the servers of the profile, if they have at most 64 KiB. */
  patterns?: string[]
  /** The number of the run in its process. Missing for a call without a run. */
  runId?: number
  /**
   * The outcome of a call: `ok`, `tool-error` (the tool answered with `isError: true`), `cancelled` (its caller has given it up; the server may have carried it
   * out), or the error's code. Of a connection that failed: the error's code.
   */
  outcome?: string
  /** The duration of a call, or of opening a connection, in milliseconds. A call's includes the time in which a person was asked. */
  durationMs?: number
  /** The digest of the arguments under the machine's key. Equal arguments have equal digests. */
  argumentsDigest?: string
  /** The arguments without secrets. Only with `auditContent`, and if they have at most 64 KiB. */
  arguments?: Record<string, unknown>
  /** The size of the arguments as JSON, in bytes. */
  argumentBytes?: number
  /** The approximate size of the result in bytes: its texts and keys, and 8 for each other value. */
  resultBytes?: number
  /** The number of events that a gap stands for. Missing if it is not known. */
  lost?: number
  /** The digest of this row and of all before it, under the machine's key. */
  digest: string
}

/** The result of `Gateway.verifyAudit`. */
export interface AuditReport {
  /** True if each row is as it was written, and none is missing, new or in another place. */
  whole: boolean
  rows: number
  /** The number of the first row. Older rows were removed by `limits.maxAuditBytes` or `limits.maxAuditAgeMs`. Missing for an empty audit. */
  first?: number
  /** The number of the last row. Missing for an empty audit. */
  last?: number
  /** The digest of the last row. Kept elsewhere, it shows later whether this row is still there. Missing for an empty audit. */
  head?: string
  /** The number of rows that tell of a gap. A gap is no damage: events were lost, and the audit says so. */
  gaps: number
  /** What is wrong, one sentence each, at most a hundred. */
  problems: string[]
}
