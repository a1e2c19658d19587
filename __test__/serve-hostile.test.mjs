// Tests of hosts that misbehave with `hyperlight-mcp serve`: no other host is affected. tests/serve_http/hostile.rs tests the HTTP server
// alone.
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { approved, environment, program, small } from './command-line.mjs'
import { ERAS, overHttp, overStdio, runs, script, served, started } from './serving.mjs'
import { arrived, folder, isAlive, listenTo, logLines, ms, start, waitFor } from './support.mjs'

/**
 * The memory that a program may use while one of its hosts misbehaves. It is many times what the program needs, but less than what it is
 * sent.
 */
const MEMORY_KIB = 512 * 1024

const memoryOf = ({ pid }) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1])
const message = (fields) => JSON.stringify({ jsonrpc: '2.0', ...fields })
const clientInfo = { name: 'misbehaving', version: '1' }
const initialize = message({ id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo } })
const initialized = message({ method: 'notifications/initialized' })
const list = (id) => message({ id, method: 'tools/list', params: {} })

/** Makes calls of these hosts during `disturbance` and after it. Each call must succeed. */
async function undisturbed(clients, disturbance) {
  let isOver = false
  const going = clients.map(async (client) => {
    for (let isLast = false; !isLast; ) {
      isLast = isOver
      const { structuredContent } = await runs(client, `fixture.get_forecast({ location: 'Oslo' }).temperature`)
      assert.equal(typeof structuredContent.value, 'number', JSON.stringify(structuredContent))
      assert.equal((await client.listTools()).tools.length, 6)
    }
  })
  try {
    return await disturbance()
  } finally {
    isOver = true
    await Promise.all(going)
  }
}

/** Waits until the log has more than `before` events with this name. */
async function event(log, name, before = 0) {
  await waitFor(`the event ${name}`, () => logLines(log).filter((line) => line.event === name).length > before)
}

/** Opens a connection on which the test writes its own bytes. It is not an error if the other side ends it. */
function raw(t, url, text) {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.on('error', () => {})
  t.after(() => socket.destroy())
  socket.write(text)
  return socket
}

/** Tokens by the names of their callers. Limits apply to each caller separately. */
const TOKENS = Object.fromEntries(['neighbour', 'rude', 'crowd'].map((name) => [name, name.padEnd(40, '-')]))

const post = (body, headers = `authorization: Bearer ${TOKENS.rude}\r\n`) =>
  `POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n${headers}` +
  `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`

test('Over HTTP', async (t) => {
  const log = `${folder(t)}/log`
  const at = await approved(t, { fixture: small('--log', log) })
  const tokens = join(at.home, 'tokens')
  const lines = Object.entries(TOKENS).map(([name, token]) => `${name}:${token}\n`)
  writeFileSync(tokens, lines.join(''), { mode: 0o600 })
  const { url, child } = await served(t, at, ['--token-file', tokens])
  const neighbours = await Promise.all(Object.keys(ERAS).map((era) => overHttp(t, url, { era, token: TOKENS.neighbour })))

  await t.test('a host that is killed during its call takes its call with it, and no other', async (t) => {
    for (const era of Object.keys(ERAS)) {
      const before = { calls: arrived(log, 'sleep').length, ends: logLines(log).filter(({ event }) => event === 'cancelled').length }
      const call = { name: 'run_javascript', arguments: script('fixture.sleep({ ms: 600_000 })') }
      const code = `
        const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client')
        const client = new Client(${JSON.stringify(clientInfo)}, ${JSON.stringify(ERAS[era])})
        const requestInit = { headers: { authorization: 'Bearer ${TOKENS.rude}' } }
        await client.connect(new StreamableHTTPClientTransport(new URL('${url}'), { requestInit }))
        await client.callTool(${JSON.stringify(call)})`
      await undisturbed(neighbours, async () => {
        const host = start(t, process.execPath, ['--input-type=module', '-e', code], { cwd: import.meta.dirname })
        await waitFor('the call', () => arrived(log, 'sleep').length > before.calls)
        host.kill('SIGKILL')
        // A session outlives its connections, so only a call without one ends with its client.
        if (era === '2026-07-28') await event(log, 'cancelled', before.ends)
      })
    }
  })

  await t.test('rubbish ends the connection that it came on, at most', async (t) => {
    const noise = Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 167) % 256))
    const texts = [
      noise,
      'GET / HTTP/9.9\r\n\r\n',
      `POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n`,
      `POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n`,
      ...['', 'null', '[]', '{', '{"jsonrpc":"2.0"}', '{"jsonrpc":"1.0","id":{},"method":7}', `"${'\\u0000'.repeat(9)}"`].map((body) =>
        post(body),
      ),
      post(`${'['.repeat(100_000)}`),
      post(initialize, `authorization: Bearer ${TOKENS.rude}\r\nmcp-session-id: nobody\r\n`),
      post(initialize, ''),
    ]
    await undisturbed(neighbours, async () => {
      const sockets = texts.map((text) => raw(t, url, text))
      // Each is answered, or its connection ends.
      await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('data', resolve).once('close', resolve).resume())))
    })
  })

  await t.test('hosts that never read are given up, and no memory grows', async (t) => {
    await undisturbed(neighbours, async () => {
      const sockets = Array.from({ length: 50 }, () => raw(t, url, ''))
      for (const socket of sockets) {
        socket.pause()
        for (let id = 1; id <= 200; id += 1) socket.write(post(initialize))
      }
    })
    assert.ok(memoryOf(child) < MEMORY_KIB, `${memoryOf(child)} KiB`)
  })

  await t.test('200 hosts that connect at once are all served', async (t) => {
    await undisturbed(neighbours, async () => {
      const clients = await Promise.all(Array.from({ length: 200 }, () => overHttp(t, url, { token: TOKENS.crowd })))
      const answers = await Promise.all(
        clients.map((client) =>
          client.callTool({ name: 'search_mcp_tools', arguments: { query: 'forecast', limit: null, servers: null } }),
        ),
      )
      assert.ok(answers.every(({ structuredContent }) => structuredContent.tools.length > 0))
    })
    assert.ok(memoryOf(child) < MEMORY_KIB, `${memoryOf(child)} KiB`)
  })
})

test('Over standard input and output', async (t) => {
  const log = `${folder(t)}/log`
  const at = await approved(t, { fixture: small('--log', log) })
  const { client: neighbour } = await overStdio(t, at)

  await t.test('the program and its servers end with a host that is killed', async (t) => {
    // Only the host can write to the program.
    const code = 'mkfifo "$2"; "$0" "$1" serve < "$2" & echo $!; exec 3> "$2"; printf "%s\\n" "$3" "$4" "$5" >&3; wait'
    const call = message({
      id: 2,
      method: 'tools/call',
      params: { name: 'run_javascript', arguments: script('fixture.sleep({ ms: 600_000 })') },
    })
    await undisturbed([neighbour], async () => {
      const options = { cwd: at.work, env: environment(at) }
      const words = [process.execPath, program, join(at.home, 'input'), initialize, initialized, call]
      const host = listenTo(t, '/bin/sh', ['-c', code, ...words], options)
      const [arrival] = await waitFor('the call', () => arrived(log, 'sleep').length > 0 && arrived(log, 'sleep'))
      const served = Number(host.output.stdout.split('\n')[0])
      assert.ok(isAlive(served) && isAlive(arrival.pid))
      host.kill('SIGKILL')
      // A call in progress may still end, so this takes some seconds.
      await waitFor('both to end', () => !isAlive(served) && !isAlive(arrival.pid), ms(30_000))
    })
  })

  await t.test('a host that never reads is read from no more', async (t) => {
    const { child } = started(t, at)
    child.stdout.removeAllListeners('data').pause()
    await undisturbed([neighbour], async () => {
      child.stdin.write(`${initialize}\n${initialized}\n`)
      for (let id = 2; id < 6000; id += 1) child.stdin.write(`${list(id)}\n`)
      for (let count = 0; count < 20; count += 1) await neighbour.listTools()
    })
    assert.ok(child.stdin.writableLength > 0)
    assert.ok(memoryOf(child) < MEMORY_KIB, `${memoryOf(child)} KiB`)
  })

  await t.test('lines that are no messages are passed over, and the host goes on', async (t) => {
    const { client, child } = await overStdio(t, at)
    await undisturbed([neighbour, client], () => {
      const noise = Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 167) % 256))
      for (const line of [noise, '', '{', '\u0000', '"text"', '{"jsonrpc":"2.0","id":99,"result":{}}', `[${'['.repeat(100_000)}`]) {
        child.stdin.write(line)
        child.stdin.write('\n')
      }
    })
  })
})
