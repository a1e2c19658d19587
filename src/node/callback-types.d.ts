/** A question to a person that is asked before a tool is called, or another request is sent. */
export interface ApprovalQuestion {
  server: string
  /** The tool's name as the server gives it. For a request that is not a tool call, its method. */
  tool: string
  /**
   * The method of the request: `tools/call` for a tool, `resources/read` and others for a server with `"confirm": "always"`. A server chooses
   * the names of its tools, but not this method.
   */
  method: 'tools/call' | 'resources/read' | 'prompts/get' | 'completion/complete' | 'resources/subscribe' | 'resources/unsubscribe'
  args: Record<string, Value>
  /** The reason why this call needs a person's approval. */
  reason: string
  /** The number of the run. Missing for a call with `callTool`. */
  runId?: number
}

/**
 * A person's answer. `once` allows this call. `run` allows the tool in this run. `session` allows the tool until the gateway is closed, or
 * until the agent that makes the call is closed. `deny` refuses the call.
 */
export type Decision = 'once' | 'run' | 'session' | 'deny'

/** A question that a server asks a person while one of its tools is called (MCP elicitation). */
export type ElicitationQuestion = {
  server: string
  /** The tool that is being called, by the name that the server gives it. Missing if no call is in progress. */
  tool?: string
  /** The number of the run. Missing for a call with `callTool`. */
  runId?: number
  /** The server's own text, sanitised. */
  message: string
} & (
  | {
      mode: 'form'
      /** The schema of the form: a flat object of strings, numbers, booleans and choices (JSON Schema, as MCP 2025-11-25 restricts it). */
      requestedSchema: { type?: 'object'; properties?: Record<string, any>; required?: string[]; [key: string]: unknown }
    }
  | {
      mode: 'url'
      /**
       * The URL of a page that the person opens. The gateway does not see what the person does there. The scheme is always `https:` or
       * `http:`.
       */
      url: string
      elicitationId?: string
    }
)

/**
 * A person's answer to a server. Missing fields get their defaults. Content that does not match the form is not sent. In that case, the
 * server gets `cancel`, and an event `elicitation-cancelled` contains the reason.
 */
export type ElicitationAnswer =
  | { action: 'accept'; content?: Record<string, string | number | boolean | string[]> }
  | { action: 'decline' | 'cancel' }

/** A question that a server asks a model (MCP sampling). */
export interface SamplingQuestion {
  server: string
  tool?: string
  runId?: number
  /** The parameters of `sampling/createMessage`, as the server sent them: `messages`, `systemPrompt`, `maxTokens`, … */
  params: { messages: unknown[]; maxTokens?: number; systemPrompt?: string; [key: string]: unknown }
}

/** A model's answer to a server. */
export interface SamplingAnswer {
  role: 'assistant' | 'user'
  content: unknown
  model: string
  stopReason?: string
}

/** A question about an authorization server. The gateway would send this server a credential or the client id from the config. */
export interface IssuerQuestion {
  server: string
  /** The issuer's URL. The MCP server and the authorization server's own metadata both give this URL. */
  issuer: string
  /** The id of the OAuth client to which the credential belongs. */
  clientId: string
  /**
   * The kind of credential. A client secret is sent to the authorization server. A private key is only used to sign, and is never sent. If
   * there is only a client id, the authorization server gets the code of a person's login. A wrong server could use the code of another
   * login for itself.
   */
  credential: 'client-secret' | 'private-key' | 'client-id'
}

/**
 * Callbacks about calls. The callbacks of the run or call are used first. If a callback is missing there, the one of the sandbox is used,
 * and then the one of the gateway or of the agent that makes the call. A question about an agent's call never goes to the callbacks of the
 * gateway.
 */
export interface CallerCallbacks {
  /**
   * Called before a call of a tool that is not approved as read-only, and before every call of a server with `confirm: "always"`. Without
   * this callback, such a call fails with `ERR_CALL_DENIED`. After `deny`, later calls of the tool in the same run are denied without a
   * question. The time until the answer does not count towards the time limits of the call or the run. If the callback throws, or returns a
   * value that is not a `Decision`, the call is denied.
   */
  onApproval?(question: ApprovalQuestion): Decision | Promise<Decision>
  /**
   * Called when a server asks a person during a call. The question goes only to the callbacks of the run or call that called the server.
   * Without this callback, the server gets `decline`. The time until the answer does not count towards time limits. An abort of the call
   * ends the question. If the callback throws, the question is cancelled.
   */
  onElicit?(question: ElicitationQuestion): ElicitationAnswer | Promise<ElicitationAnswer>
  /**
   * Called when a server asks a model during a call. Without this callback, the server gets an error. If the callback throws, the question
   * is refused.
   */
  onSample?(question: SamplingQuestion): SamplingAnswer | Promise<SamplingAnswer>
  /**
   * Called with each event, before the promise of the event's run or call is settled. If a server sends events faster than they are
   * handled, at most 8 MiB of events wait. Further events of servers are then dropped, and a `warning` contains their number. If this
   * callback throws, the exception becomes a process warning.
   */
  onEvent?(event: GatewayEvent): void
}

/**
 * Callbacks of a gateway, and of the gateway's own sandboxes, runs and calls. Some callbacks are about calls. The others are about
 * connections. All agents of the gateway share the connections, so only the operator is asked.
 */
export interface Callbacks extends CallerCallbacks {
  /**
   * Called for an `${input:id}` of the config when a server that uses this input is started. It is called once for each input in a gateway.
   * It is called again if a changed config gives the input another description, default or `password`. `server` is the name of the server
   * that is started. The approval of that server includes `description`.
   */
  onInput?(id: string, description?: string, server?: string): string | Promise<string>
  /**
   * Called with the URL at which a person grants access to a server. If the browser runs on this machine, return nothing: a listener on the
   * loopback interface receives the redirect. Otherwise, return the URL to which the browser was redirected at the end. The person has 5
   * minutes, even after this callback has returned. This time does not count towards other time limits. The callback of the run or call
   * that needs the access is called.
   */
  onAuthorize?(url: string, question: { server: string; issuer: string }): void | string | Promise<void | string>
  /**
   * Called before a credential of the config (`oauth.clientSecret`, `oauth.privateKey`) is used at an authorization server that the MCP
   * server itself has named. Also called before a login with a client id or a metadata document of the config, if the authorization server
   * does not promise to name itself in its answers. Not called if the config names the authorization server in `oauth.issuer`. Only `true`
   * allows the use. The answer `true` is stored for this server, URL, issuer and client. Without this callback, such a connection fails
   * with `ERR_AUTHORIZATION_REQUIRED`.
   */
  onIssuer?(question: IssuerQuestion): boolean | Promise<boolean>
  /**
   * Called by `enable` and `/mcp enable` for a server that is not approved. It is called once for each stage: first for the command, then
   * for the tools. Show the whole request to a person. Only `true` approves the request, exactly as it was shown. Without this callback,
   * `enable` rejects with `ERR_NOT_APPROVED`. The callback is never called on behalf of a model.
   */
  onServerApproval?(request: ApprovalRequest): boolean | Promise<boolean>
}

/** Options of an `Agent`'s method, without the callbacks that only the operator may set. */
export type OfAgent<Options> = Omit<Options, 'onInput' | 'onAuthorize' | 'onIssuer' | 'onServerApproval'>
