// Tests of fetch in agent code, from the approval of its hosts to the audit, with servers on this machine.
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { Gateway } from '../index.mjs'
import { run as command, place, write } from './command-line.mjs'
import { afterwards, deferred, failure, folder, guest, held, waitFor, wholeFile } from './support.mjs'

/**
 * Starts a server on this machine that answers with the request that it got. `/slow` never answers, `/chunks` answers in three parts,
 * `/away` redirects.
 */
async function startServer(t) {
  const asked = []
  const server = createServer(async (request, response) => {
    const parts = []
    for await (const part of request) parts.push(part)
    asked.push(`${request.method} ${request.url}`)
    if (request.url === '/slow') return
    if (request.url === '/away') return response.writeHead(302, { location: 'https://other.example/' }).end()
    if (request.url === '/chunks') {
      response.write('[1,')
      response.write('2')
      return response.end(']')
    }
    response.setHeader('Set-Cookie', 'secret=1')
    response.setHeader('Content-Type', 'application/json')
    response.end(JSON.stringify({ method: request.method, headers: request.headers, body: Buffer.concat(parts).toString() }))
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  afterwards(t, () => {
    server.closeAllConnections()
    server.close()
  })
  return { asked, origin: `http://127.0.0.1:${server.address().port}` }
}

const { asked, origin } = await startServer(wholeFile)
const hosts = [origin]
const stateDir = join(folder(wholeFile), 'state')
const open = async (t, options = {}) => {
  const gateway = await Gateway.open({ config: { mcpServers: {} }, stateDir, guest, fetch: { allowPrivateHosts: hosts }, ...options })
  afterwards(t, () => gateway.close())
  return gateway
}
const gateway = await open(wholeFile)
const sandbox = await gateway.sandbox()
const code = (body) => `export const handler = async (origin) => {\n${body}\n}`
const run = (body, options) => sandbox.run(code(body), { input: origin, fetch: { hosts }, ...options })
/** Returns the last fetch in the audit. A gateway writes its own rows before it reads them, and does not wait for those of others. */
const lastFetch = async (of = gateway) => (await of.audit({ kind: 'fetch' })).at(-1)

test('a run that asks for hosts that no person has approved fails, and nothing is sent', async () => {
  const error = await failure(run('return (await fetch(origin)).text()'), 'ERR_FETCH_NOT_APPROVED')
  assert.match(error.message, /the operator's own agent may not fetch from http:\/\/127\.0\.0\.1:\d+: no person has approved these hosts/)
  assert.ok(error.message.includes(`npx hyperlight-mcp approve --fetch '${origin}' --private-hosts '${origin}' --state `), error.message)
  assert.deepEqual(asked, [])
  const { host, outcome, agent } = await lastFetch()
  assert.deepEqual([host, outcome, agent], [origin, 'ERR_FETCH_NOT_APPROVED', undefined])
})

test('a yes is for exactly what was shown', async () => {
  const request = await gateway.fetchApproval({ hosts: ['B.example:443', 'a.example', 'a.example', origin] })
  assert.deepEqual(request.hosts, ['a.example', 'b.example:443', origin])
  assert.deepEqual([request.privateHosts, request.approved, request.approvedHosts], [[origin], false, []])
  await failure(gateway.approveFetch({ hosts: ['a.example'], digest: request.digest }), 'ERR_DIGEST_CHANGED')
  await failure(gateway.approveFetch({ agent: 'other', hosts: request.hosts, digest: request.digest }), 'ERR_DIGEST_CHANGED')
  assert.equal((await gateway.fetchApproval({ hosts })).approved, false)
  const approved = await gateway.approveFetch({ hosts: request.hosts, digest: request.digest })
  assert.deepEqual([approved.approved, approved.approvedHosts], [true, request.hosts])
  assert.equal((await gateway.fetchApproval({ hosts })).approved, true, 'a part of them')
  const [row] = (await gateway.audit({ kind: 'approval' })).slice(-1)
  assert.deepEqual([row.action, row.by, row.subject, row.patterns], ['fetch', 'person', request.digest, request.hosts])
})

test('a text that is not a host, and an unknown option, are errors that name them', async () => {
  for (const [request, words] of [
    [{ hosts: ['*'] }, /hosts: "\*" is not a host/],
    [{ hosts: ['*.com'] }, /two labels/],
    [{ hosts: [] }, /name at least one/],
    [{}, /name at least one/],
    [{ host: 'a' }, /host/],
    [{ agent: 'a b', hosts: ['a.example'] }, /agent: name must match/],
  ])
    assert.match((await failure(gateway.fetchApproval(request), 'ERR_INVALID_OPTION')).message, words)
  for (const fetch of [{ hosts: ['https://a.example/path'] }, { host: [] }, {}, 'a.example'])
    await failure(run('return 1', { fetch }), 'ERR_INVALID_OPTION')
  await failure(Gateway.open({ stateDir, fetch: { allowPrivateHosts: ['x/'] } }), 'ERR_INVALID_OPTION')
})

test('code sends a request, and reads the answer', async () => {
  const { value, logs } = await run(`
    const response = await fetch(origin + "/echo?a=b", { method: "POST", headers: { "X-A": "ä", Cookie: "no" }, body: new URLSearchParams({ c: "d e" }) });
    return { status: response.status, cookies: response.headers.getSetCookie(), answer: await response.json() }`)
  assert.deepEqual([value.status, value.cookies], [200, []])
  const { method, headers, body } = value.answer
  assert.deepEqual([method, body, headers['content-type']], ['POST', 'c=d+e', 'application/x-www-form-urlencoded;charset=UTF-8'])
  assert.deepEqual([headers.cookie, headers.accept, Buffer.from(headers['x-a'], 'latin1').length], [undefined, '*/*', 1])
  assert.match(logs[0].text, /the header "cookie" is not sent/)
  const { runId, host, method: recorded, status, sentBytes, receivedBytes, outcome } = await lastFetch()
  assert.deepEqual([host, recorded, status, sentBytes, outcome], [origin, 'POST', 200, 5, 'ok'])
  assert.ok(runId > 0 && receivedBytes > 50)
})

test('bodies are streamed, and all ways of reading them work', async () => {
  const { value } = await run(`
    const chunks = [];
    for await (const chunk of (await fetch(origin + "/chunks")).body) chunks.push(new TextDecoder().decode(chunk));
    const answers = await Promise.all(Array.from({ length: 20 }, () => fetch(origin + "/chunks").then((response) => response.json())));
    const form = new FormData();
    form.append("file", new File(["content"], "name.txt", { type: "text/plain" }));
    const sent = await (await fetch(origin, { method: "PUT", body: form })).json();
    const bytes = await (await fetch(origin + "/chunks")).bytes();
    return { text: chunks.join(""), answers, sent: sent.body, bytes }`)
  assert.equal(value.text, '[1,2]')
  assert.deepEqual(value.answers, Array(20).fill([1, 2]))
  assert.match(value.sent, /filename="name\.txt"\r\nContent-Type: text\/plain\r\n\r\ncontent\r\n/)
  assert.equal(Buffer.from(value.bytes).toString(), '[1,2]')
})

test('another host, a redirect to one, and another scheme are refused', async () => {
  const caught = async (expression) => {
    const body = `try { await ${expression} } catch (error) { return [error instanceof TypeError, error.code, error.message] }`
    return (await run(body)).value
  }
  for (const url of ['"https://other.example/"', 'origin.replace("127.0.0.1", "localhost")', 'origin + "/away"', '"file:///etc/passwd"']) {
    const [isTypeError, code, message] = await caught(`fetch(${url})`)
    assert.deepEqual([isTypeError, code.startsWith('ERR_FETCH_')], [true, true], `${url}: ${code} ${message}`)
  }
  const [, code, message] = await caught('fetch("https://other.example/")')
  assert.equal(code, 'ERR_FETCH_HOST_NOT_ALLOWED')
  assert.match(message, /"other\.example" not in whitelist\. Add it to fetch\.hosts/)
  const row = async () => {
    const { host, method, outcome } = await lastFetch()
    return [host, method, outcome]
  }
  assert.deepEqual(await row(), ['https://other.example', 'GET', 'ERR_FETCH_HOST_NOT_ALLOWED'])
  await caught('fetch(origin + "/away", { method: "PUT" })')
  assert.deepEqual(await row(), ['https://other.example', 'PUT', 'ERR_FETCH_HOST_NOT_ALLOWED'])
})

test('a private host must be allowed by the operator, in the approval too', async (t) => {
  const strict = await open(t, { fetch: {} })
  const body = 'try { return (await fetch(origin)).status } catch (error) { return error.code }'
  // The run approves it as a private host, but the operator of this gateway does not allow it.
  const refused = await (await strict.sandbox()).run(code(body), { input: origin, fetch: { hosts } })
  assert.equal(refused.value, 'ERR_FETCH_ADDRESS_NOT_ALLOWED')
  const row = await lastFetch(strict)
  assert.deepEqual([row.outcome, row.subject], ['ERR_FETCH_ADDRESS_NOT_ALLOWED', '127.0.0.1 (this machine itself)'])
  const request = await strict.fetchApproval({ agent: 'plain', hosts })
  assert.deepEqual(request.privateHosts, [])
  await strict.approveFetch({ agent: 'plain', hosts, digest: request.digest })
  const agent = await (await gateway.agent('plain')).sandbox()
  await failure(agent.run(code(body), { input: origin, fetch: { hosts } }), 'ERR_FETCH_NOT_APPROVED')
})

test('a request has as many bytes as maxArgumentBytes allows, and none more', async (t) => {
  const limit = 1024
  const small = await open(t, { limits: { maxArgumentBytes: limit } })
  const box = await small.sandbox()
  const send = (bytes) =>
    box.run(
      code(
        `try { return (await (await fetch(origin, { method: 'POST', body: 'x'.repeat(${bytes}) })).json()).body.length } catch (error) { return error.message }`,
      ),
      { input: origin, fetch: { hosts } },
    )
  const refusal = (await send(limit)).value
  const size = Number(/has (\d+) bytes \(the limit maxArgumentBytes is 1024\)/.exec(refusal)?.[1])
  assert.ok(size > limit && size < 2 * limit, refusal)
  const most = 2 * limit - size
  assert.equal((await send(most)).value, most)
  assert.match((await send(most + 1)).value, /has 1025 bytes \(the limit maxArgumentBytes is 1024\)/)
})

test('an abort within the code ends the request, and the end of the run ends all', async () => {
  const { value } = await run(
    'try { await fetch(origin + "/slow", { signal: AbortSignal.timeout(50) }) } catch (error) { return error.name }',
  )
  assert.equal(value, 'TimeoutError')
  assert.equal((await lastFetch()).outcome, 'cancelled')
  const { logs } = await run('fetch(origin + "/slow"); return 1')
  assert.match(logs[0].text, /^1 fetch had not finished when the handler returned; await it in the handler$/)
  await failure(run('await fetch(origin + "/slow")', { timeoutMs: 300 }), 'ERR_RUN_TIMEOUT')
})

test('without the option, code has no fetch', async () => {
  const { value } = await sandbox.run('export const handler = () => [typeof fetch, typeof Response, typeof ReadableStream]')
  assert.deepEqual(value, ['undefined', 'undefined', 'undefined'])
  const direct =
    'globalThis[Symbol.for("hyperlight-mcp")].bind("fetch:", "open")({ method: "GET", url: origin, headers: [], redirect: "follow" })'
  await failure(sandbox.run(code(`return ${direct}`), { input: origin }), 'ERR_GUEST_THREW')
  await failure(run('return (await fetch(origin)).status', { fetch: false }), 'ERR_GUEST_THREW')
})

test("an agent's entry in the config is the default of its runs and their ceiling", async (t) => {
  const agents = { reader: { fetch: { hosts: [origin, 'a.example'] } }, other: {} }
  const ruled = await open(t, { config: { mcpServers: {}, agents } })
  const agent = ruled.agent('reader')
  const reader = await agent.sandbox()
  const body = 'return typeof fetch === "function" ? (await fetch(origin)).status : "none"'
  const unapproved = await reader.run(code(body), { input: origin })
  assert.equal(unapproved.value, 'none')
  assert.match(
    unapproved.warnings[0],
    /the code of this run has no fetch: agent "reader" may not fetch from .*approve --fetch '.*' --agent reader --state .*$/,
  )
  assert.ok(!(await agent.systemMessage()).includes('fetch'))
  const request = await ruled.fetchApproval({ agent: 'reader' })
  assert.deepEqual(request.hosts, ['a.example', origin])
  await ruled.approveFetch({ agent: 'reader', digest: request.digest })
  assert.deepEqual([(await reader.run(code(body), { input: origin })).value, (await lastFetch(ruled)).agent], [200, 'reader'])
  assert.ok((await agent.systemMessage()).includes(`Code has \`fetch\`, only for these hosts: a.example, ${origin}.`))
  const tools = agent.agentTools()
  const tool = tools.find(({ name }) => name === 'run_javascript')
  assert.ok(tool.description.includes(`The code has fetch, only for these hosts: a.example, ${origin}.`), tool.description)
  const ran = await tool.execute({ code: code(body), input: JSON.stringify(origin), timeoutMs: null })
  assert.equal(ran.value ?? ran.result, 200, JSON.stringify(ran))
  const beyond = await failure(reader.run(code(body), { fetch: { hosts: ['b.example'] } }), 'ERR_FETCH_NOT_APPROVED')
  assert.match(
    beyond.message,
    /agent "reader" may not fetch from b\.example: agents\.NAME\.fetch\.hosts in the config does not have these hosts/,
  )
  await failure((await ruled.agent('other').sandbox()).run(code(body), { fetch: { hosts } }), 'ERR_FETCH_NOT_APPROVED')
})

test('a revocation ends the fetches of runs, and holds for the next', async () => {
  const request = await gateway.fetchApproval({ agent: 'brief', hosts })
  await gateway.approveFetch({ agent: 'brief', hosts, digest: request.digest })
  const brief = await gateway.agent('brief').sandbox()
  const body = 'console.log("begins"); try { await fetch(origin + "/slow") } catch (error) { return error.code }'
  const begun = deferred()
  const onEvent = (event) => event.type === 'log' && begun.resolve()
  const running = brief.run(code(body), { input: origin, fetch: { hosts }, onEvent })
  await begun.promise
  assert.equal(await gateway.revokeFetch({ agent: 'brief' }), true)
  assert.equal((await running).value, 'ERR_FETCH_NOT_APPROVED')
  await failure(brief.run(code(body), { input: origin, fetch: { hosts } }), 'ERR_FETCH_NOT_APPROVED')
  assert.equal(await gateway.revokeFetch({ agent: 'brief' }), false)
})

test('a person approves and revokes on the command line', async (t) => {
  const at = place(t, {})
  const shown = await command(at, ['approve', '--fetch', 'c.example,*.d.example', '--agent', 'typed'])
  assert.equal(shown.code, 1, shown.stderr)
  assert.match(shown.stdout, /Code of agent "typed" asks to fetch from:\n {2}\*\.d\.example \(with all subdomains\)\n {2}c\.example\n/)
  assert.match(shown.stdout, /code that a model writes may send any data that it has to these hosts/)
  const [, digest] = /--digest (\w{64})/.exec(shown.stdout)
  const yes = await command(at, ['approve', '--fetch', 'c.example,*.d.example', '--agent', 'typed', '--digest', digest])
  assert.deepEqual([yes.code, yes.stdout], [0, 'fetch of agent "typed": approved: *.d.example, c.example\n'])
  const other = await open(t, { stateDir: join(at.home, '.hyperagent/hyperlight-mcp') })
  const approved = async (host) => (await other.fetchApproval({ agent: 'typed', hosts: [host] })).approved
  assert.deepEqual([await approved('c.example'), await approved('x.d.example')], [true, false])
  const revoked = await command(at, ['revoke', '--fetch', '--agent', 'typed', '--json'])
  assert.deepEqual([revoked.code, JSON.parse(revoked.stdout)], [0, { agent: 'typed', revoked: true }])
  assert.equal(await approved('c.example'), false)
})

test('a script on the command line fetches from the hosts that a person has approved for it', async (t) => {
  const at = place(t, {})
  write(at, 'get.js', code('return (await (await fetch(origin)).json()).method'))
  const script = ['run', 'get.js', '--input', JSON.stringify(origin)]
  const words = [...script, '--fetch', 'c.example', '--fetch', origin, '--private-hosts', origin]
  const before = asked.length
  const refused = await command(at, words)
  assert.equal(refused.code, 1)
  assert.match(refused.stderr, /may not fetch from .*c\.example/)
  const [, approval] = / hyperlight-mcp (approve --fetch \S+ --private-hosts \S+)/.exec(refused.stderr)
  const approve = approval.replaceAll("'", '').split(' ')
  const { stdout } = await command(at, approve)
  const yes = await command(at, [...approve, '--digest', /--digest (\w{64})/.exec(stdout)[1]])
  assert.equal(yes.code, 0, yes.stderr)
  assert.equal(asked.length, before, 'nothing was sent without the approval')
  const fetched = await command(at, words)
  assert.deepEqual([fetched.code, fetched.stdout], [0, '"GET"\n'], fetched.stderr)
  const without = await command(at, script)
  assert.equal(without.code, 1, 'an approval alone gives no fetch')
  const wider = await command(at, [...words, '--fetch', 'other.example'])
  assert.match(wider.stderr, /may not fetch from other\.example/)
  const wrong = await command(at, [...script, '--fetch', 'a/b'])
  assert.equal(wrong.code, 2)
  assert.match(wrong.stderr, /--fetch: /)
  assert.equal((await command(at, [...words, '--agent', 'someone'])).code, 1, 'the approval is for the operator alone')
})

test('the command of a refusal approves what the run needs, and keeps what was approved', async (t) => {
  const at = place(t, {})
  const own = await open(t, { stateDir: join(at.home, '.hyperagent/hyperlight-mcp') })
  const { digest } = await own.fetchApproval({ agent: 'advised', hosts: ['a.example'] })
  await own.approveFetch({ agent: 'advised', hosts: ['a.example'], digest })
  const advised = await own.agent('advised').sandbox()
  const get = () => advised.run(code('return (await fetch(origin)).status'), { input: origin, fetch: { hosts } })
  const refused = await failure(get(), 'ERR_FETCH_NOT_APPROVED')
  const words = (text) => [...text.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain)
  const [, advice] = /npx hyperlight-mcp (approve .*)$/.exec(refused.message)
  const shown = await command(at, words(advice))
  assert.equal(shown.code, 1, shown.stderr)
  assert.doesNotMatch(shown.stdout, /approved before/)
  const [, yes] = /hyperlight-mcp (approve .*--digest \w{64})/s.exec(shown.stdout)
  assert.equal((await command(at, words(yes))).code, 0)
  assert.equal((await get()).value, 200)
  assert.equal((await own.fetchApproval({ agent: 'advised', hosts: ['a.example'] })).approved, true)
})

test('a refusal that no approval can change says what can', async (t) => {
  const agents = { reader: { fetch: { hosts: ['a.example'] } } }
  const ruled = await open(t, { config: { mcpServers: {}, agents } })
  const beyond = await failure(
    (await ruled.agent('reader').sandbox()).run(code('return 1'), { fetch: { hosts } }),
    'ERR_FETCH_NOT_APPROVED',
  )
  assert.match(beyond.message, /the config does not have these hosts\. Add them there, and let a person approve them$/)
})

test('after close() no thread of its fetches is left', async (t) => {
  const threads = () => held().threads.filter((name) => name === 'mcp-fetch').length
  const before = threads()
  const own = await open(t, { stateDir: join(folder(t), 'state') })
  const { digest } = await own.fetchApproval({ hosts })
  await own.approveFetch({ hosts, digest })
  const sandboxOfOwn = await own.sandbox()
  const { value } = await sandboxOfOwn.run(code('return (await fetch(origin)).status'), { input: origin, fetch: { hosts } })
  assert.equal(value, 200)
  assert.ok(threads() > before)
  await own.close()
  await waitFor('the end of the threads', () => threads() === before)
})
