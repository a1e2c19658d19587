/** Options of `Gateway.command`. */
export interface CommandOptions {
  /** Adds ANSI colours to the text. Set it if the output is a terminal and `NO_COLOR` is not set. Default false. */
  color?: boolean
  /** The width of the text in columns, 40 to 200. Default 80. */
  width?: number
  /**
   * The author of the line. A line of a model cannot approve, even with a digest, and cannot start a server that a person has disabled. About a
   * server or config that is not approved, a model gets only codes, counts and digests, and no logs. Default `person`.
   */
  speaker?: 'person' | 'model'
}

/** The result of a command. */
export interface CommandOutcome {
  ok: boolean
  /**
   * The result for programs. `list` gives `{ servers }`; `info` gives a server with its offer; `enable`, `disable`, `revoke`, and `approve` with a
   * digest give a `ServerStatus`; `approve` without a digest gives `{ request }`; `test` gives a `ConnectionReport`; `search` gives `{ matches }`;
   * `reload` gives a `ReloadReport`; `logs` gives `{ server, lines }`; `providers` gives `{ providers }`, with a name `{ request }`, and with its digest
   * too a `ProviderStatus`; `help` gives `{ help }`. If `ok` is false, it is `{ error: { code, message } }`.
   */
  data: unknown
  /** The result as text for people. */
  text: string
}
