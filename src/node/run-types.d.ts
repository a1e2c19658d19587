/** Options of `Gateway.sandbox`. */
export interface SandboxOptions extends Callbacks {
  /** The task of all runs of the sandbox. Default: no task. */
  task?: Task
  /** The form in which code gets errors that tools report. Default `return`. */
  toolErrors?: ToolErrors
  /** The maximum size of a run's value, in a model's tokens, if the run does not set one. Default: the gateway's setting. See `RunOptions`. */
  maxResultTokens?: number
}

/** Options of `Sandbox.run`. */
export interface RunOptions extends Callbacks {
  /**
   * The task of the run, in addition to the task of the sandbox. Servers that it defines exist until the sandbox is closed or starts another run
   * with a task. Default: no task.
   */
  task?: Task
  /**
   * The hosts that the code may fetch from: then it has the globals `fetch`, `Request`, `Response`, `Headers`, `FormData`, `Blob`, `File` and
   * `ReadableStream`. A person must have approved the hosts for the sandbox's agent, otherwise the run fails with `ERR_FETCH_NOT_APPROVED`. If the
   * agent's entry in the config has `fetch.hosts`, the run's must be among them. `false`: no fetch. Default (and `true`): the hosts of the agent's
   * entry in the config if they are approved, else no fetch.
   */
  fetch?: FetchHosts | boolean
  /** The argument of `handler`. Default `null`. */
  input?: unknown
  /** The time limit in milliseconds, counted from the start of the run. The default and the maximum are `limits.runTimeoutMs`. */
  timeoutMs?: number
  /** A signal that ends the run. The run rejects with `name: 'AbortError'`, `code: 'ERR_ABORTED'`, `cause: signal.reason`. */
  signal?: AbortSignal
  /** The form in which code gets errors that tools report. Default: the sandbox's. */
  toolErrors?: ToolErrors
  /**
   * The maximum size of the value, as an estimated number of a model's tokens; at least 100. A larger value is cut, and stays JSON of the same
   * type. Short texts in the value, and `omitted`, say what was cut. Later runs of this sandbox can read the whole value with `saved(savedAs)` of
   * `host:mcp`. Default: the sandbox's setting, otherwise the gateway's, otherwise the value is not cut.
   */
  maxResultTokens?: number
  /**
   * The trace to which the run belongs, as a W3C `traceparent`. It is passed on to servers in `_meta`. With `OTEL_EXPORTER_OTLP_ENDPOINT`, it is
   * the parent of the run's span. Default: a new trace if spans are exported, otherwise none.
   */
  traceparent?: string
  /**
   * The W3C `tracestate` that belongs to `traceparent`: at most 32 members and 512 characters. It is passed on to servers in `_meta`, and exported with
   * spans. Default: none.
   */
  tracestate?: string
}

/** Options of `Gateway.callTool`. */
export interface CallOptions extends Callbacks {
  /** The time limit in milliseconds. A value above `limits.callTimeoutMs` is reduced to that limit. Default `limits.callTimeoutMs`. */
  timeoutMs?: number
  /** A signal that cancels the call, also at the server. */
  signal?: AbortSignal
  /**
   * The trace to which the call belongs, as a W3C `traceparent`. It is passed on to servers in `_meta`. With `OTEL_EXPORTER_OTLP_ENDPOINT`, it is
   * the parent of the call's span. Default: a new trace if spans are exported, otherwise none.
   */
  traceparent?: string
  /**
   * The W3C `tracestate` that belongs to `traceparent`: at most 32 members and 512 characters. It is passed on to servers in `_meta`, and exported with
   * spans. Default: none.
   */
  tracestate?: string
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

/** A place in a value where something was left out. */
export interface Omission {
  /** A JSON Pointer (RFC 6901) to the part of the whole value that was cut. `''` is the value itself. */
  path: string
  /**
   * The kind of the cut. `text`: the middle or the end of a string was left out. `items`: the last items of an array. `keys`: fields of an object.
   * `bytes`: a `Uint8Array`, replaced by a string. `depth`: all items of a nested array, or all fields of a nested object.
   */
  kind: 'text' | 'items' | 'keys' | 'bytes' | 'depth'
  /** The amount that remains in the value. `of` is the whole amount: the `length` of strings and bytes, or the number of items or keys. */
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
  /** The time spent outside the VM for calls. Time in which several calls are pending counts once. */
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
