/** Options of `Gateway.command`. */
export interface CommandOptions {
  /** Adds ANSI colours to the text. Set this option if the output is a terminal and `NO_COLOR` is not set. Default false. */
  color?: boolean
  /** The width of the text in columns, from 40 to 200. Default 80. */
  width?: number
  /**
   * The author of the line. A line of a model cannot approve anything, even with a digest, and cannot start a server that a person has
   * disabled. If a server or config is not approved, a model gets only codes, counts and digests about it, and no logs. Default `person`.
   */
  speaker?: 'person' | 'model'
}

/** The result of a command. */
export interface CommandOutcome {
  ok: boolean
  /**
   * The result for programs. `list` returns `{ servers }`; `info` returns a server with its offer; `enable`, `disable`, `revoke`, and
   * `approve` with a digest return a `ServerStatus`; `approve` without a digest returns `{ request }`; `test` returns a `ConnectionReport`;
   * `search` returns `{ matches }`; `reload` returns a `ReloadReport`; `logs` returns `{ server, lines }`. `providers` returns `{ providers
   * }`; with the name of a provider, it returns `{ request }`; with a name and a digest, it returns a `ProviderStatus`. `help` returns `{
   * help }`. If `ok` is false, the result is `{ error: { code, message } }`.
   */
  data: unknown
  /** The result as text for people. */
  text: string
}
