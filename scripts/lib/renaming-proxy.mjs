// A proxy between the official conformance suite and `serve --direct`, which changes names and nothing else. The suite calls tools by fixed
// names (`test_simple_text`), and `serve` gives each tool of a server a name with that server's (`mcp_suite_test_simple_text`).
import { createServer, request as forward } from 'node:http'

const isObject = (value) => typeof value === 'object' && value !== null

/** Gives each string that a JSON text contains as a message to `change`, and returns the text, changed where the message was. */
function changed(text, change) {
  let message
  try {
    message = JSON.parse(text)
  } catch {
    return text
  }
  return isObject(message) && change(message) ? JSON.stringify(message) : text
}

/** Changes the messages in an answer, which is JSON or a stream of events. Each line of a stream is passed on when it is complete. */
async function* answered(response, change) {
  const isStream = response.headers['content-type']?.includes('text/event-stream')
  let rest = ''
  for await (const part of response.setEncoding('utf8')) {
    rest += part
    if (!isStream) continue
    const lines = rest.split('\n')
    rest = lines.pop()
    for (const line of lines) yield line.startsWith('data:') ? `data: ${changed(line.slice(5), change)}\n` : `${line}\n`
  }
  if (rest) yield isStream ? rest : changed(rest, change)
}

/** Renames the tools in a list, and the keys of questions. */
function toSuite({ prefix, keys }, asked) {
  return ({ result }) => {
    const questions = keys[asked] && result?.inputRequests
    if (questions) result.inputRequests = Object.fromEntries(Object.entries(questions).map(([key, one]) => [keys[asked][key] ?? key, one]))
    for (const tool of result?.tools ?? []) if (tool.name.startsWith(prefix)) tool.name = tool.name.slice(prefix.length)
    return Boolean(questions || result?.tools)
  }
}

/** Renames the tool of a call, and the keys of its answers. */
function toServer({ prefix, keys }, params) {
  const own = Object.entries(keys[params.name] ?? {})
  const keyOf = (key) => own.find(([, renamed]) => renamed === key)?.[0] ?? key
  const inputResponses = isObject(params.inputResponses)
    ? { inputResponses: Object.fromEntries(Object.entries(params.inputResponses).map(([key, one]) => [keyOf(key), one])) }
    : {}
  return { ...params, name: prefix + params.name, ...inputResponses }
}

/**
 * Starts the proxy before `url`. `prefix` is put before the names of tools. `keys` has the names of questions, by tool: those of the
 * server, and those of the suite. `hooks` are tools that the suite wants only for their effect: functions, by name.
 */
export async function startProxy(url, { prefix, keys = {}, hooks = {} }) {
  const target = new URL(url)
  const server = createServer(async (incoming, outgoing) => {
    let body = ''
    for await (const part of incoming.setEncoding('utf8')) body += part
    const headers = { ...incoming.headers, host: target.host }
    let asked
    let hook
    body = changed(body, (message) => {
      if (message.method !== 'tools/call' || typeof message.params?.name !== 'string') return false
      asked = message.params.name
      hook = hooks[asked] && { id: message.id, run: hooks[asked] }
      message.params = toServer({ prefix, keys }, message.params)
      if (headers['mcp-name'] === asked) headers['mcp-name'] = message.params.name
      return true
    })
    if (hook) {
      await hook.run()
      outgoing.writeHead(200, { 'content-type': 'application/json' })
      outgoing.end(JSON.stringify({ jsonrpc: '2.0', id: hook.id, result: { resultType: 'complete', content: [] } }))
      return
    }
    if (body) headers['content-length'] = Buffer.byteLength(body)
    const passed = forward({ host: target.hostname, port: target.port, method: incoming.method, path: incoming.url, headers })
    passed.on('error', () => outgoing.destroy())
    outgoing.on('close', () => passed.destroy())
    passed.on('response', async (response) => {
      const { 'content-length': _, 'transfer-encoding': __, ...kept } = response.headers
      outgoing.writeHead(response.statusCode, kept)
      outgoing.flushHeaders()
      try {
        for await (const part of answered(response, toSuite({ prefix, keys }, asked))) outgoing.write(part)
      } catch {
        // The suite has closed its side.
      }
      outgoing.end()
    })
    passed.end(body)
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${server.address().port}${target.pathname}`,
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
}
