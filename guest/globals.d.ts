// What agent code finds in the guest beside ES2023, for editors and for tsc:
//
//   { "compilerOptions": { "lib": ["es2023"], "types": [], "strict": true }, "files": ["node_modules/hyperlight-mcp/guest/globals.d.ts", "handler.ts"] }
//
// Not together with the libraries "dom" or "webworker", or with Node's types: they have the same names. docs/GLOBALS.md says
// what there is, what is not, and what to do instead.

// ---- console ----------------------------------------------------------------------------------------------------------

/** Each call is one entry of the run's log, with its level. Frozen. */
interface Console {
  log(...values: unknown[]): void
  info(...values: unknown[]): void
  warn(...values: unknown[]): void
  error(...values: unknown[]): void
  debug(...values: unknown[]): void
  /** At level `debug`; without a stack. */
  trace(...values: unknown[]): void
  assert(condition?: unknown, ...values: unknown[]): void
  /** A table of 100 rows at most; `columns` are those to show. */
  table(data: unknown, columns?: readonly string[]): void
  dir(value: unknown, options?: unknown): void
  dirxml(...values: unknown[]): void
  group(...labels: unknown[]): void
  groupCollapsed(...labels: unknown[]): void
  groupEnd(): void
  count(label?: string): void
  countReset(label?: string): void
  time(label?: string): void
  timeLog(label?: string, ...values: unknown[]): void
  timeEnd(label?: string): void
  /** Does nothing: a log is kept. */
  clear(): void
}
declare const console: Readonly<Console>
/** `console.log`. */
declare const print: Console['log']

/** A module's exports: `require("host:mcp")`. Throws for one that is not there. */
declare function require(specifier: string): any

// ---- text, bytes ------------------------------------------------------------------------------------------------------

type BufferSource = ArrayBufferView | ArrayBufferLike

interface TextEncoder {
  readonly encoding: 'utf-8'
  encode(input?: string): Uint8Array<ArrayBuffer>
  /** Writes as many characters as there is room for: UTF-16 units that were read, bytes that were written. */
  encodeInto(source: string, destination: Uint8Array): { read: number; written: number }
}
declare var TextEncoder: { prototype: TextEncoder; new (): TextEncoder }

interface TextDecoder {
  /** In lower case: `windows-1252` for `latin1`. */
  readonly encoding: string
  readonly fatal: boolean
  readonly ignoreBOM: boolean
  /** Throws a TypeError for what is not valid, with `fatal`. `stream`: more is to come. */
  decode(input?: BufferSource, options?: { stream?: boolean }): string
}
/** All labels of the Encoding Standard; a RangeError for others. */
declare var TextDecoder: { prototype: TextDecoder; new (label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean }): TextDecoder }

/** Text whose characters are bytes, as base64. A DOMException `InvalidCharacterError` for a character above 255. */
declare function btoa(data: string): string
/** The reverse, forgiving white space and a missing end. A DOMException `InvalidCharacterError` for what is no base64. */
declare function atob(data: string): string

interface Base64Options {
  alphabet?: 'base64' | 'base64url'
}
interface Base64DecodingOptions extends Base64Options {
  lastChunkHandling?: 'loose' | 'strict' | 'stop-before-partial'
}
interface Uint8ArrayConstructor {
  /** A SyntaxError for what is no base64. */
  fromBase64(text: string, options?: Base64DecodingOptions): Uint8Array<ArrayBuffer>
  /** A SyntaxError for what is no hex. */
  fromHex(text: string): Uint8Array<ArrayBuffer>
}
interface Uint8Array<TArrayBuffer extends ArrayBufferLike> {
  toBase64(options?: Base64Options & { omitPadding?: boolean }): string
  toHex(): string
  setFromBase64(text: string, options?: Base64DecodingOptions): { read: number; written: number }
  setFromHex(text: string): { read: number; written: number }
}

// ---- URLs -------------------------------------------------------------------------------------------------------------

interface URLSearchParams extends Iterable<[string, string]> {
  readonly size: number
  append(name: string, value: string): void
  delete(name: string, value?: string): void
  get(name: string): string | null
  getAll(name: string): string[]
  has(name: string, value?: string): boolean
  set(name: string, value: string): void
  sort(): void
  toString(): string
  forEach(callback: (value: string, name: string, params: URLSearchParams) => void, self?: unknown): void
  entries(): IterableIterator<[string, string]>
  keys(): IterableIterator<string>
  values(): IterableIterator<string>
  [Symbol.iterator](): IterableIterator<[string, string]>
}
declare var URLSearchParams: {
  prototype: URLSearchParams
  new (init?: string | Iterable<readonly [string, string]> | readonly string[][] | Record<string, string> | URLSearchParams): URLSearchParams
}

interface URL {
  href: string
  readonly origin: string
  protocol: string
  username: string
  password: string
  host: string
  hostname: string
  port: string
  pathname: string
  search: string
  hash: string
  readonly searchParams: URLSearchParams
  toString(): string
  toJSON(): string
}
/** Throws a TypeError with `code: "ERR_INVALID_URL"` for what is none. */
declare var URL: {
  prototype: URL
  new (url: string | URL, base?: string | URL): URL
  canParse(url: string | URL, base?: string | URL): boolean
  /** Null for what is none. */
  parse(url: string | URL, base?: string | URL): URL | null
}

// ---- values, entropy, time --------------------------------------------------------------------------------------------

/** A deep copy, cycles included. A DOMException `DataCloneError` for functions, symbols and objects of the platform. */
declare function structuredClone<T = unknown>(value: T, options?: { transfer?: readonly ArrayBuffer[] }): T
declare function queueMicrotask(callback: () => void): void

interface Crypto {
  /** Fills an array of integers, of 65,536 bytes at most (else a DOMException `QuotaExceededError`). */
  getRandomValues<T extends ArrayBufferView>(array: T): T
  randomUUID(): `${string}-${string}-${string}-${string}-${string}`
}
/** Entropy of the host's, other in every run. No `subtle`. */
declare var crypto: Crypto

interface Performance {
  /** Milliseconds since the run's start; only goes forward. */
  now(): number
  /** The run's start, in milliseconds since 1970. */
  readonly timeOrigin: number
  toJSON(): { timeOrigin: number }
}
declare var performance: Performance

/** As Node's. Timers that are left when the handler has settled are dropped, whatever `ref` says. */
interface Timeout {
  ref(): this
  unref(): this
  hasRef(): boolean
  refresh(): this
  [Symbol.toPrimitive](): number
}
declare function setTimeout<A extends unknown[]>(callback: (...given: A) => void, milliseconds?: number, ...given: A): Timeout
declare function setInterval<A extends unknown[]>(callback: (...given: A) => void, milliseconds?: number, ...given: A): Timeout
declare function setImmediate<A extends unknown[]>(callback: (...given: A) => void, ...given: A): Timeout
declare function clearTimeout(timer?: Timeout | number | null): void
declare function clearInterval(timer?: Timeout | number | null): void
declare function clearImmediate(timer?: Timeout | number | null): void

// ---- events, being aborted --------------------------------------------------------------------------------------------

interface DOMException extends Error {
  readonly code: number
}
declare var DOMException: { prototype: DOMException; new (message?: string, name?: string): DOMException }

interface Event {
  readonly type: string
  readonly target: EventTarget | null
  readonly currentTarget: EventTarget | null
  readonly cancelable: boolean
  readonly bubbles: false
  readonly defaultPrevented: boolean
  readonly timeStamp: number
  preventDefault(): void
  stopPropagation(): void
  stopImmediatePropagation(): void
}
declare var Event: { prototype: Event; new (type: string, options?: { cancelable?: boolean }): Event }

interface CustomEvent<T = unknown> extends Event {
  readonly detail: T
}
declare var CustomEvent: { prototype: CustomEvent; new <T = unknown>(type: string, options?: { cancelable?: boolean; detail?: T }): CustomEvent<T> }

type EventListener = ((event: any) => void) | { handleEvent(event: any): void }
/** There is no tree: events neither bubble nor are captured. What a listener throws ends the run. */
interface EventTarget {
  addEventListener(type: string, listener: EventListener | null, options?: boolean | { once?: boolean; signal?: AbortSignal }): void
  removeEventListener(type: string, listener: EventListener | null, options?: unknown): void
  dispatchEvent(event: Event): boolean
}
declare var EventTarget: { prototype: EventTarget; new (): EventTarget }

interface AbortSignal extends EventTarget {
  readonly aborted: boolean
  readonly reason: any
  onabort: ((event: Event) => void) | null
  throwIfAborted(): void
}
declare var AbortSignal: {
  prototype: AbortSignal
  abort(reason?: unknown): AbortSignal
  timeout(milliseconds: number): AbortSignal
  any(signals: Iterable<AbortSignal>): AbortSignal
}

interface AbortController {
  readonly signal: AbortSignal
  abort(reason?: unknown): void
}
declare var AbortController: { prototype: AbortController; new (): AbortController }
