/** Where a module comes from: an MCP server, `hostModule`, or the package itself (`host:mcp`). */
export type ModuleKind = 'server' | 'agent' | 'built-in'

/** A module that a run can import, in one line. */
export interface ModuleSummary {
  /** Without `host:`. */
  name: string
  /** What agent code imports. */
  specifier: string
  kind: ModuleKind
  /** The server whose module it is. */
  server?: string
  /** In a sentence, sanitised. */
  purpose: string
  /** How many functions it has. */
  functions: number
}

/** A module with its functions. */
export interface ModuleInfo extends Omit<ModuleSummary, 'functions'> {
  functions: FunctionInfo[]
  /** What to keep in mind. */
  caveats: string[]
  /** Code that imports and calls its first function. */
  example: string
}

/** A function in a few words. */
export interface FunctionInfo {
  /** What agent code imports. */
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
  /** What the server takes where it is left out. It is never filled in here. */
  default?: unknown
}

/** A tool, whole. Its texts are sanitised, its schemas are as the server sent them. */
export interface ToolInfo extends FunctionInfo {
  server: string
  /** What agent code imports it from. */
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

/** What an approved server offers. Its texts are sanitised. */
export interface ServerOffer {
  /** What agent code imports. */
  specifier: string
  serverName: string
  serverVersion: string
  protocolVersion: string
  purpose: string
  instructions?: string
  functions: { name: string; tool: string; purpose: string }[]
  /** How many of each. */
  resources: number
  resourceTemplates: number
  prompts: number
}

/** What `searchTools` takes. */
export interface SearchOptions {
  /** At most 100. Default 10. */
  limit?: number
  /** Only these. Default: all that are approved and enabled. */
  servers?: string[]
  /** How failures show in the signatures. Default `return`. */
  toolErrors?: ToolErrors
}

/** A tool that was found. */
export interface ToolMatch {
  server: string
  /** The raw name. */
  tool: string
  /** What agent code imports it from: `host:mcp-weather`. */
  module: string
  /** What agent code imports. */
  identifier: string
  signature: string
  purpose: string
  /** Of meaning only beside the others of the same search. */
  score: number
}

/** What `declarations`, `moduleInfo` and `toolInfo` take. */
export interface DeclarationOptions {
  /** How a failed call shows in the types: `{ error }` in the result, or not at all. Default: the sandbox's; of a gateway `return`. */
  toolErrors?: ToolErrors
}

/** What `systemMessage` takes. */
export interface SystemMessageOptions extends DeclarationOptions {
  /** An estimate on the safe side for OpenAI's `o200k_base`; other models' tokenizers differ by some tenths. Default 2,000. */
  budgetTokens?: number
}

/** What `check` found. */
export interface CodeReport {
  /** Nothing wrong was found. */
  ok: boolean
  /** `false` for code that was not looked at, of which nothing is known: it nests too deeply, or has no end for a parser. It can be run. */
  looked: boolean
  /** In order of place, at most 100. */
  problems: CodeProblem[]
}

/** What is wrong with some code, and where. Lines and columns count from one, columns in UTF-16 units; the end is exclusive. */
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
  /** What was probably meant. */
  suggestion?: string
}

/** What a module of the agent's own is told to models as. */
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
