/** Where a module comes from: an MCP server, `hostModule`, or the package itself (`host:mcp`). */
export type ModuleKind = 'server' | 'agent' | 'built-in'

/** A module that a run can import, in one line. */
export interface ModuleSummary {
  /** Without `host:`. */
  name: string
  /** The name that agent code imports. */
  specifier: string
  kind: ModuleKind
  /** The server whose module it is. */
  server?: string
  /** In a sentence, sanitised. */
  purpose: string
  /** The number of its functions. */
  functions: number
}

/** A module with its functions. */
export interface ModuleInfo extends Omit<ModuleSummary, 'functions'> {
  functions: FunctionInfo[]
  /** Points to keep in mind. */
  caveats: string[]
  /** Code that imports and calls its first function. */
  example: string
}

/** A function in a few words. */
export interface FunctionInfo {
  /** The name that agent code imports. */
  name: string
  /** The tool's raw name, for `call` and `callTool`; missing where it is no server's. */
  tool?: string
  purpose: string
  /** One line of TypeScript, shortened where it is long. */
  signature: string
  parameters: ParameterInfo[]
  /** A TypeScript type. */
  returns: string
  caveats: string[]
  /** A call with the parameters that are required. */
  example: string
}

/** A parameter in a few words. */
export interface ParameterInfo {
  /** As it is, even where it is no identifier. */
  name: string
  /** A TypeScript type. */
  type: string
  required: boolean
  description?: string
  /** The value that the server takes where it is left out. It is never filled in here. */
  default?: unknown
}

/** A tool, whole. Its texts are sanitised, its schemas are as the server sent them. */
export interface ToolInfo extends FunctionInfo {
  server: string
  /** The module that agent code imports it from. */
  specifier: string
  title?: string
  description?: string
  /** TypeScript: its module with this one function. */
  declaration: string
  inputSchema: unknown
  outputSchema?: unknown
  annotations?: unknown
}

/** A server's status, and, once it is approved, what it offers. */
export interface ServerInfo extends ServerStatus {
  offer?: ServerOffer
}

/** The offer of an approved server. Its texts are sanitised. */
export interface ServerOffer {
  /** The name that agent code imports. */
  specifier: string
  serverName: string
  serverVersion: string
  protocolVersion: string
  purpose: string
  instructions?: string
  functions: { name: string; tool: string; purpose: string }[]
  /** The number of each kind. */
  resources: number
  resourceTemplates: number
  prompts: number
}

/** Options of `searchTools`. */
export interface SearchOptions {
  /** At most 100. Default 10. */
  limit?: number
  /** Only these. Default: all that are approved and enabled. */
  servers?: string[]
  /** The form of failures in the signatures. Default `return`. */
  toolErrors?: ToolErrors
}

/** A tool that was found. */
export interface ToolMatch {
  server: string
  /** The raw name. */
  tool: string
  /** The module that agent code imports it from: `host:mcp-weather`. */
  module: string
  /** The name that agent code imports. */
  identifier: string
  signature: string
  purpose: string
  /** A rank: it means something only beside the others of the same search. */
  score: number
}

/** Options of `declarations`, `moduleInfo` and `toolInfo`. */
export interface DeclarationOptions {
  /** The form of a failed call in the types: `{ error }` in the result, or not at all. Default: the sandbox's; of a gateway `return`. */
  toolErrors?: ToolErrors
}

/** Options of `systemMessage`. */
export interface SystemMessageOptions extends DeclarationOptions {
  /** An estimate on the safe side for OpenAI's `o200k_base`; other models' tokenizers differ by some tenths. Default 2,000. */
  budgetTokens?: number
}

/** The result of `check`. */
export interface CodeReport {
  /** Nothing wrong was found. */
  ok: boolean
  /** `false` for code that was not looked at, of which nothing is known: it nests too deeply, or has no end for a parser. It can be run. */
  looked: boolean
  /** In order of place, at most 100. */
  problems: CodeProblem[]
}

/** A problem of some code, and its place. Lines and columns count from one, columns in UTF-16 units; the end is exclusive. */
export interface CodeProblem {
  kind:
    | 'syntax'
    /** TypeScript that is not only types, or JSX. */
    | 'unsupported'
    | 'unknown-module'
    | 'unknown-function'
    /** In a `call` of `host:mcp` with literal names. */
    | 'unknown-server'
    | 'unknown-tool'
    | 'no-handler'
  /** In words, the suggestion included. */
  message: string
  line: number
  column: number
  endLine: number
  endColumn: number
  /** The line with its number, and below it carets under the place. */
  excerpt: string
  /** The name that was probably meant. */
  suggestion?: string
}

/** A description of a module of the agent's own, for models. */
export interface HostModuleInfo {
  /** In a sentence. */
  purpose?: string
  functions?: {
    [name: string]: {
      description?: string
      /** A TypeScript function type: `(city: string) => number`. Default `(...args: any[]) => any`. */
      signature?: string
    }
  }
}
