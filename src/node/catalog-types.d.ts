/**
 * The origin of a module: an MCP server (`server`), `Sandbox.hostModule` (`agent`), or this package itself (`built-in`, for `host:mcp`).
 */
export type ModuleKind = 'server' | 'agent' | 'built-in'

/** A short description of a module that a run can import. */
export interface ModuleSummary {
  /** The module's name without `host:`. */
  name: string
  /** The specifier that agent code imports. */
  specifier: string
  kind: ModuleKind
  /** The name of the MCP server, if the module belongs to one. */
  server?: string
  /** One sentence about the use of the module, sanitised. */
  purpose: string
  /** The number of functions in the module. */
  functions: number
}

/** A module with its functions. */
export interface ModuleInfo extends Omit<ModuleSummary, 'functions'> {
  functions: FunctionInfo[]
  /** Facts that a caller must know. */
  caveats: string[]
  /** Code that imports the module's first function and calls it. */
  example: string
}

/** A short description of a function. */
export interface FunctionInfo {
  /** The name that agent code imports. */
  name: string
  /** The name of the server's tool, for `call` and `callTool`. Missing if the function is not a tool of a server. */
  tool?: string
  purpose: string
  /** One line of TypeScript, shortened if it is long. */
  signature: string
  parameters: ParameterInfo[]
  /** The TypeScript type of the returned value. */
  returns: string
  /**
   * The number of results from which `returns` was learnt. Missing if the server declares its results, or if this agent has seen none. A
   * learnt type is not guaranteed.
   */
  resultsSeen?: number
  caveats: string[]
  /** A call with the required parameters. */
  example: string
}

/** A short description of a parameter. */
export interface ParameterInfo {
  /** The name in the schema, even if it is not a valid identifier. */
  name: string
  /** The TypeScript type of the parameter. */
  type: string
  required: boolean
  description?: string
  /** The value that the server uses if the parameter is missing. The gateway never sends this value itself. */
  default?: unknown
}

/** The full description of a tool. Texts are sanitised. Schemas are as the server sent them. */
export interface ToolInfo extends FunctionInfo {
  server: string
  /** The module from which agent code imports the tool. */
  specifier: string
  title?: string
  description?: string
  /** The TypeScript declaration of the tool's module, with only the function of this tool. */
  declaration: string
  inputSchema: unknown
  outputSchema?: unknown
  annotations?: unknown
  /** The names of the tool for `callTool(name, args)`, and for hosts of `hyperlight-mcp serve --direct`. */
  directNames?: DirectNames
}

/** The names of an approved tool for direct calls. They are assigned when the tool is approved, and kept until the approval is revoked. */
export interface DirectNames {
  /** `mcp_<server>_<tool>` */
  underscore: string
  /** `<server>-<tool>` */
  hyphen: string
}

/** A server's status, its settings and, if the server is approved, its offer. */
export interface ServerInfo extends ServerStatus {
  offer?: ServerOffer
  /** Missing if the entry of the server has an error. */
  details?: ServerDetails
}

/** Everything about one server that a person may want to know. Values of variables and headers are never returned, only their names. */
export interface ServerDetails {
  /** `generated`: tools that were made from a prompt and run in micro-VMs of this process. */
  transport: 'stdio' | 'http' | 'generated'
  command?: string
  args?: string[]
  /** The folder in which the command starts. */
  cwd?: string
  envFile?: string
  url?: string
  /** Names of the variables that the entry sets. */
  variables: string[]
  /** Names of the headers that the entry sets. */
  headers: string[]
  confirm: 'never' | 'writes' | 'always'
  /** Patterns of names, such as `get_*`. A tool without annotations is treated as a read if one of the patterns matches its name. */
  reads: string[]
  allowTools?: string[]
  denyTools: string[]
  /** URIs. Each is exact, or ends with `*`. */
  allowResources?: string[]
  denyResources: string[]
  allowPrompts?: string[]
  denyPrompts: string[]
  limits: ServerLimits
  /** The approved tools. Empty before the server is approved. */
  tools: ToolDetails[]
}

/** The limits that apply to a server: the server's own limits, or the gateway's. Times are in milliseconds. */
export interface ServerLimits {
  connectTimeoutMs: number
  callTimeoutMs: number
  maxCallTimeoutMs: number
  maxParallelCalls: number
  /** The time after which an idle connection is closed. Missing if idle connections stay open. */
  idleTimeoutMs?: number
  /** The interval of pings to the server. Missing if the server gets no pings. */
  keepAliveMs?: number
}

/** A tool with its signature, its names and its schemas. */
export interface ToolDetails {
  /** The name that agent code imports. */
  name: string
  /** The name of the server's tool. */
  tool: string
  /** One line of TypeScript, shortened if it is long. */
  signature: string
  directNames?: DirectNames
  inputSchema: unknown
  outputSchema?: unknown
}

/** The tools, resources and prompts that an approved server offers. Texts are sanitised. */
export interface ServerOffer {
  /** The specifier that agent code imports. */
  specifier: string
  serverName: string
  serverVersion: string
  protocolVersion: string
  purpose: string
  instructions?: string
  functions: { name: string; tool: string; purpose: string }[]
  /** The number of resources. */
  resources: number
  /** The number of resource templates. */
  resourceTemplates: number
  /** The number of prompts. */
  prompts: number
}

/** Options of `searchTools`. */
export interface SearchOptions {
  /** The maximum number of results, at most 100. Default 10. */
  limit?: number
  /** Names of the servers to search. Default: all servers that are approved and enabled. */
  servers?: string[]
  /** The form that errors of calls have in the signatures. Default `return`. */
  toolErrors?: ToolErrors
}

/** A tool that a search found. */
export interface ToolMatch {
  server: string
  /** The tool's name as the server gives it. */
  tool: string
  /** The module from which agent code imports the tool, like `host:mcp-weather`. */
  module: string
  /** The name that agent code imports. */
  identifier: string
  signature: string
  purpose: string
  /** The relevance of the tool. Scores of different searches cannot be compared. */
  score: number
}

/** Options of `declarations`, `moduleInfo` and `toolInfo`. */
export interface DeclarationOptions {
  /**
   * The form that errors of calls have in the types: `return` adds `{ error }` to the result type, `throw` does not. Default: the setting
   * of the sandbox; for a gateway, `return`.
   */
  toolErrors?: ToolErrors
}

/** Options of `systemMessage`. */
export interface SystemMessageOptions {
  /**
   * The form that errors of calls have in the text. Default: the setting of the sandbox; for a gateway or an agent, `throw`, as in the code
   * of `agentTools`.
   */
  toolErrors?: ToolErrors
  /**
   * The maximum size in tokens. The number of tokens is estimated. The estimate is usually higher than the number of tokens in OpenAI's
   * `o200k_base`. The tokenizers of other models can differ from `o200k_base` by some tens of percent. Default 2,000. At least 85 % of this
   * size is used if there are enough texts.
   */
  budgetTokens?: number
  /**
   * The task of the model, in words. The functions that `searchTools` finds for the task come first, and the first five of them are shown
   * with their declarations. If there is no task, or if it has no words, the functions are described one server after another, one function
   * at a time.
   */
  task?: string
}

/** The result of `check`. */
export interface CodeReport {
  /** True if no problem was found. */
  ok: boolean
  /** False if the code could not be analysed, because it is nested too deeply or the parser takes too long. Such code can still be run. */
  looked: boolean
  /** The problems in the order of their positions in the code. At most 100 are listed. */
  problems: CodeProblem[]
  /**
   * Hints about properties of results (`unseen-property`): no result that this agent has seen had the property, but at least one had a
   * property with a similar name. No server guarantees which properties its results have, so such code may be right. Hints do not make `ok`
   * false.
   */
  hints: CodeProblem[]
}

/**
 * A problem in the code, and its position. Lines and columns are counted from 1. Columns are counted in UTF-16 code units. The end position
 * is exclusive.
 */
export interface CodeProblem {
  kind:
    | 'syntax'
    /** The code uses JSX, or TypeScript that cannot be removed because it is more than types. */
    | 'unsupported'
    | 'unknown-module'
    | 'unknown-function'
    /** Reported for a `call` of `host:mcp` whose names are string literals. */
    | 'unknown-server'
    | 'unknown-tool'
    | 'no-handler'
    /** Only in `hints`. */
    | 'unseen-property'
  /** A description of the problem, with the suggestion. */
  message: string
  line: number
  column: number
  endLine: number
  endColumn: number
  /** The line with its number, and a second line that marks the position with carets. */
  excerpt: string
  /** The name that was probably intended. */
  suggestion?: string
}

/** A description of an agent's own module, for models. */
export interface HostModuleInfo {
  /** One sentence about the use of the module. */
  purpose?: string
  functions?: {
    [name: string]: {
      description?: string
      /** A TypeScript function type, like `(city: string) => number`. Default `(...args: any[]) => any`. */
      signature?: string
    }
  }
}
