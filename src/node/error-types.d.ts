/** All error codes of the package; docs/ERRORS.md describes each code. */
export type ErrorCode =
  | 'ERR_INVALID_OPTION'
  | 'ERR_CONFIG_UNREADABLE'
  | 'ERR_CONFIG_SYNTAX'
  | 'ERR_CONFIG_INVALID'
  | 'ERR_TOO_MANY_SERVERS'
  | 'ERR_UNKNOWN_SERVER'
  | 'ERR_NOT_APPROVED'
  | 'ERR_NOT_ENABLED'
  | 'ERR_SERVER_DISABLED'
  | 'ERR_DISABLED_BY_PERSON'
  | 'ERR_OPERATOR_ONLY'
  | 'ERR_NOT_GRANTED'
  | 'ERR_UNKNOWN_TOOLBOX'
  | 'ERR_GRANT_IN_CONFIG'
  | 'ERR_PROFILE_CONFLICT'
  | 'ERR_DIGEST_CHANGED'
  | 'ERR_UNKNOWN_PROVIDER'
  | 'ERR_PROVIDER'
  | 'ERR_UNKNOWN_TOOL'
  | 'ERR_UNKNOWN_MODULE'
  | 'ERR_TOOL_CHANGED'
  | 'ERR_TOOL_VANISHED'
  | 'ERR_UNKNOWN_RESOURCE'
  | 'ERR_RESOURCE_CHANGED'
  | 'ERR_UNKNOWN_PROMPT'
  | 'ERR_PROMPT_CHANGED'
  | 'ERR_FETCH_NOT_APPROVED'
  | 'ERR_CALL_DENIED'
  | 'ERR_UNSUPPORTED_TRANSPORT'
  | 'ERR_INSECURE_URL'
  | 'ERR_SPAWN_FAILED'
  | 'ERR_BOX_FAILED'
  | 'ERR_CONNECT_FAILED'
  | 'ERR_CONNECT_TIMEOUT'
  | 'ERR_TOO_MANY_CONNECTIONS'
  | 'ERR_SERVER_UNAVAILABLE'
  | 'ERR_SERVER_EXITED'
  | 'ERR_REQUEST_FAILED'
  | 'ERR_CALL_TIMEOUT'
  | 'ERR_AUTHORIZATION_REQUIRED'
  | 'ERR_AUTHORIZATION_FAILED'
  | 'ERR_PROTOCOL'
  | 'ERR_RESPONSE_TOO_LARGE'
  | 'ERR_OUTPUT_SCHEMA'
  | 'ERR_ARGUMENTS_TOO_LARGE'
  | 'ERR_INVALID_ARGUMENTS'
  | 'ERR_INPUT_TOO_LARGE'
  | 'ERR_VALUE_TOO_LARGE'
  | 'ERR_NOT_SAVED'
  | 'ERR_UNKNOWN_SESSION'
  | 'ERR_UNKNOWN_CALL'
  | 'ERR_INVALID_REQUEST'
  | 'ERR_CODE_TOO_LARGE'
  | 'ERR_CODE_SYNTAX'
  | 'ERR_NO_HANDLER'
  | 'ERR_GUEST_THREW'
  | 'ERR_INVALID_VALUE'
  | 'ERR_NEVER_SETTLES'
  | 'ERR_RUN_TIMEOUT'
  | 'ERR_ABORTED'
  | 'ERR_CLOSED'
  | 'ERR_GUEST_MEMORY'
  | 'ERR_GUEST_CRASHED'
  | 'ERR_NO_HYPERVISOR'
  | 'ERR_NAME_TAKEN'
  | 'ERR_HOST_FUNCTION'
  | 'ERR_TOOL_FAILED'
  | 'ERR_APPROVAL_STORE'
  | 'ERR_STORE'
  | 'ERR_BUSY'
  | 'ERR_TOO_MANY_PROPOSALS'
  | 'ERR_PLUGIN_OFF'
  | 'ERR_PLUGIN_NOT_APPROVED'
  | 'ERR_BOOT_PROMPT'
  | 'ERR_BOOT_MODEL'
  | 'ERR_BOOT_REFUSED'
  | 'ERR_BOOT_NO_TOOLS'
  | 'ERR_BOOT_PLAN'
  | 'ERR_BOOT_HANDLER'
  | 'ERR_BOOT_SECRET'
  | 'ERR_BOOT_CACHE'
  | 'ERR_BOOT_NOT_CACHED'
  | 'ERR_IO'
  | 'ERR_INTERNAL'

/**
 * The class of all errors that the package throws or rejects with. After an abort, the error's `name` is `AbortError` and its `cause` is the reason
 * of the signal.
 *
 * ```js
 * import { HyperlightMcpError } from 'hyperlight-mcp'
 *
 * try {
 *   await sandbox.run(code)
 * } catch (error) {
 *   if (!(error instanceof HyperlightMcpError)) throw error
 *   console.log(error.code, error.message, error.logs)
 * }
 * ```
 */
export declare class HyperlightMcpError extends Error {
  constructor(code: ErrorCode, message: string)
  readonly code: ErrorCode
  /** The reason of the `AbortSignal`. Present if the code is `ERR_ABORTED`. */
  cause?: unknown
  /**
   * The error that the run's code threw. Present if the code is `ERR_GUEST_THREW`. Its position is a line and a column of the code, counted
   * from 1.
   */
  guest?: GuestError
  /** The line in the run's code, counted from 1. Present if the code is `ERR_CODE_SYNTAX`. `column` is counted from 1 as well. */
  line?: number | null
  column?: number | null
  /** The log of the run up to its failure. Only errors of `Sandbox.run` have `logs`, `warnings` and `stats`. */
  logs?: LogEntry[]
  warnings?: string[]
  /** Measurements of the run. Missing if the run did not start. */
  stats?: RunStats
}

/** An error that was thrown in a guest. */
export interface GuestError {
  name: string
  stack: string
  line: number | null
  column: number | null
}
