/** A named set of patterns. */
export interface Toolbox {
  name: string
  /** Patterns in order. The last pattern that matches decides. */
  patterns: string[]
  source: GrantSource
}

/** The origin of a toolbox or a grant. One from the config can be changed only there. One from the store was created at run time. */
export type GrantSource = 'config' | 'store'

/** The toolboxes of one agent. */
export interface AgentGrant {
  agent: string
  /** Names of toolboxes in order. If there are none, the agent may use nothing. */
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

/** The grant of an agent without its own grant: everything that is approved and enabled, or nothing. */
export type DefaultGrant = 'all' | 'none'

/** The result of `Gateway.explainGrant`. */
export interface GrantVerdict {
  granted: boolean
  /** The reason, as a sentence for the operator. It names toolboxes, and must not be shown to a model. */
  reason: string
}
