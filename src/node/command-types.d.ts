/** Options of `gateway.command`. */
export interface CommandOptions {
  /** ANSI colours in the text. Default: none. Yours to decide: on a terminal, and where `NO_COLOR` is not set. */
  color?: boolean
  /** Columns of the text, 40 to 200. Default 80. */
  width?: number
  /**
   * Who wrote the line. Default `person`. A model's lines approve nothing, with whatever digest, start nothing that a person has disabled, and
   * get no word of a server or a config that nobody has approved: codes, counts and digests, and no logs.
   */
  speaker?: 'person' | 'model'
}

/** The result of a line. */
export interface CommandOutcome {
  ok: boolean
  /**
   * For programs: `{ servers }` of `list`, a server with what it offers of `info`, a `ServerStatus` of `enable`, `disable`, `revoke` and of
   * `approve` with a digest, `{ request }` of `approve` without, a `ConnectionReport` of `test`, `{ matches }` of `search`, a
   * `ReloadReport` of `reload`, `{ server, lines }` of `logs`, `{ help }`; `{ error: { code, message } }` where `ok` is false.
   */
  data: unknown
  /** For people. */
  text: string
}
