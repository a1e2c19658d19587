// Sends requests of protocol 2026-07-28 over HTTP without a client library, for tests of what the official client does not do.
import { afterwards } from './support.mjs'

const VERSION = '2026-07-28'
const of = (key) => `io.modelcontextprotocol/${key}`
let lastId = 0

/**
 * Sends a request. `token`: its bearer token; `capabilities`: those of the client; `session`: the session that it names; `version`: the version of the
 * protocol, of which `header` may name another.
 */
export function send(url, method, params, { token, capabilities = {}, signal, session, version = VERSION, header = version } = {}) {
  const _meta = {
    [of('protocolVersion')]: version,
    [of('clientInfo')]: { name: 'raw', version: '1' },
    [of('clientCapabilities')]: capabilities,
    ...params._meta,
  }
  return fetch(url, {
    method: 'POST',
    signal,
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': header,
      'mcp-method': method,
      ...((params.name ?? params.uri) && { 'mcp-name': params.name ?? params.uri }),
      ...(params.taskId && { 'mcp-name': params.taskId }),
      ...(session && { 'mcp-session-id': session }),
      ...(token && { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: ++lastId, method, params: { ...params, _meta } }),
  })
}

/** The messages of a body: one, or those of a stream of events. */
function messages(text, type) {
  if (!type.includes('text/event-stream')) return [JSON.parse(text)]
  const lines = text.split('\n').filter((line) => line.startsWith('data:'))
  return lines
    .map((line) => line.slice('data:'.length).trim())
    .filter(Boolean)
    .map((data) => JSON.parse(data))
}

/** The result of a request, or `{ error }`. */
export async function ask(url, method, params = {}, options = {}) {
  const response = await send(url, method, params, options)
  const text = await response.text()
  if (!text.startsWith('{') && !text.includes('data:')) throw new Error(`status ${response.status}: ${text}`)
  const last = messages(text, response.headers.get('content-type') ?? '').at(-1)
  return last.error ? { error: last.error } : last.result
}

/** The messages of a stream of events, in a list that grows until the stream has ended. */
export function messagesOf(response) {
  const received = []
  const read = async () => {
    let text = ''
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      text += chunk
      const end = text.lastIndexOf('\n') + 1
      received.push(...messages(text.slice(0, end), 'text/event-stream'))
      text = text.slice(end)
    }
  }
  // A stream that is aborted ends with an error.
  const ended = read().catch(() => {})
  return { received, ended }
}

/** Opens a stream, whose messages come into a list. */
export async function stream(t, url, method, params, options = {}) {
  const controller = new AbortController()
  afterwards(t, () => controller.abort())
  const response = await send(url, method, params, { ...options, signal: controller.signal })
  return { ...messagesOf(response), close: () => controller.abort() }
}
