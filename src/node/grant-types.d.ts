/** A named set of patterns. */
export interface Toolbox {
  name: string
  /** Patterns in their order: of those that match, the last decides. */
  patterns: string[]
  source: GrantSource
}

/** Where a toolbox or a grant comes from: the config, where alone it can be changed, or the store, if it was made at run time. */
export type GrantSource = 'config' | 'store'

/** The toolboxes of one agent. */
export interface AgentGrant {
  agent: string
  /** Names of toolboxes in their order. Without any, the agent has nothing. */
  toolboxes: string[]
  source: GrantSource
}

/** The result of `Gateway.toolboxes`. */
export interface GrantList {
  toolboxes: Toolbox[]
  agents: AgentGrant[]
  /** What agents get that are not in `agents`. */
  defaultGrant: DefaultGrant
}

/** What an agent without a grant gets: everything that is approved and enabled, or nothing. */
export type DefaultGrant = 'all' | 'none'

/** The result of `Gateway.explainGrant`. */
export interface GrantVerdict {
  granted: boolean
  /** The reason, as a sentence for the operator. It names toolboxes, and must not be shown to a model. */
  reason: string
}
