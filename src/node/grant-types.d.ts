/** A named set of patterns. */
export interface Toolbox {
  name: string
  /** The patterns in their order. The last pattern that matches decides. */
  patterns: string[]
  source: GrantSource
}

/** The origin of a toolbox or a grant. `config`: it can be changed only in the config. `store`: it was created at run time. */
export type GrantSource = 'config' | 'store'

/** The toolboxes of one agent. */
export interface AgentGrant {
  agent: string
  /** Names of toolboxes in their order. If there are none, the agent may use nothing. */
  toolboxes: string[]
  source: GrantSource
}

/** The result of `Gateway.toolboxes`. */
export interface GrantList {
  toolboxes: Toolbox[]
  agents: AgentGrant[]
  /** The grant of agents that are not in `agents`. */
  defaultGrant: DefaultGrant
}

/** The grant of agents that have no grant of their own: `all` is everything that is approved and enabled, and `none` is nothing. */
export type DefaultGrant = 'all' | 'none'

/** The result of `Gateway.explainGrant`. */
export interface GrantVerdict {
  granted: boolean
  /** The reason, as a sentence for the operator. It names toolboxes, so it must not be shown to a model. */
  reason: string
}
