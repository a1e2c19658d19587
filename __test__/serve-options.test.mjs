// Tests of the options of `hyperlight-mcp serve`: a wrong option gives one line and an exit code, and a right one does what it says.
import assert from 'node:assert/strict'
import { generateKeyPairSync, sign } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { request } from 'node:https'
import { join } from 'node:path'
import { test } from 'node:test'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { approved, environment, LIMIT, place, program, run, small } from './command-line.mjs'
import { ask } from './serve-raw.mjs'
import { issuerOf, overHttp, overStdio, runs } from './serving.mjs'
import { afterwards, arrived, endOf, listenTo, waitFor } from './support.mjs'

/** A self-signed certificate for `localhost`. Its key was not kept. */
const CERTIFICATE = `-----BEGIN CERTIFICATE-----
MIIBPjCB8aADAgECAhRMqSRL3Qa2VMCx2PItLSkkg5YdojAFBgMrZXAwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMzAzMjEzNFoYDzIxMjYxMDMwMDMyMTM0
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwKjAFBgMrZXADIQA3s21zcSJYX+gOa8mG
LeX1dcBRjTRIMUMCabN6Ga/AOqNTMFEwHQYDVR0OBBYEFMWrrADFZa5OjeOpLS+X
Uw55UDSdMB8GA1UdIwQYMBaAFMWrrADFZa5OjeOpLS+XUw55UDSdMA8GA1UdEwEB
/wQFMAMBAf8wBQYDK2VwA0EAhdLHSgGu1+tUOUyBElSYToqDz+T2IU9qTdTJpY6y
D8IQ8zUjoNsHm5m+HzhPZQZznOeJ7EavtuesnwCBojtMCg==
-----END CERTIFICATE-----
`
const TOKEN = '0123456789abcdef0123456789abcdef'
const RESOURCE = 'https://mcp.example/mcp'

/** An HTTP server of this test, and its port. */
async function listening(t, answer = () => {}) {
  const server = createServer(answer)
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  afterwards(t, () => new Promise((resolve) => server.close(resolve).closeAllConnections()))
  return server.address().port
}

/** Starts `serve` over HTTP, and gives its URL. */
async function serving(t, at, words = []) {
  const child = listenTo(t, process.execPath, [program, 'serve', '--http', '0', ...words], {
    cwd: at.work,
    env: environment(at),
    limit: LIMIT,
  })
  const ended = endOf(child)
  await waitFor('the address', () => child.output.stderr.includes('serving http') || child.exitCode !== null, LIMIT)
  const url = /serving (http\S+)/.exec(child.output.stderr)?.[1] ?? assert.fail(child.output.stderr)
  return { url, child, ended }
}

test('What is wrong with an option is said in one line, and the exit code is 1 or 2', async (t) => {
  const at = place(t, { fixture: small() })
  const file = (name, text, mode = 0o600) => {
    writeFileSync(join(at.work, name), text, { mode })
    return name
  }
  const key = (name) => file(name, generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }))
  const [open, sound, bad] = [file('open', `ci:${TOKEN}`, 0o644), file('sound', `ci:${TOKEN}`), file('bad', 'ci:short')]
  const [certificate, other] = [file('certificate.pem', CERTIFICATE), key('other.key')]
  const busy = await listening(t)
  const oauth = (resource, issuer) => ['--oauth-resource', resource, '--oauth-issuer', issuer]
  for (const [words, code, says] of [
    [['--http', `${busy}`], 1, /port \d+ of 127\.0\.0\.1 is in use: choose another port/],
    [['--http', 'nowhere:port'], 2, /--http: .*"nowhere:port" is not an address/],
    [['--http', '70000'], 2, /--http: .*"70000" is not an address/],
    [['--http', '192.0.2.1:0', '--token-file', sound], 1, /192\.0\.2\.1 is not an address of this machine/],
    [['--http', '0.0.0.0:0'], 1, /--token-file/],
    [['--http', '0', '--token-file', open], 1, /can be read or written by others \(mode 644\): run chmod 600/],
    [['--http', '0', '--token-file', 'none'], 1, /the token file none cannot be read/],
    [['--http', '0', '--token-file', bad], 1, /line 1: a token must have 32/],
    [['--http', '0', '--tls-cert', certificate, '--tls-key', other], 1, /the key belongs to another certificate/],
    [['--http', '0', '--tls-cert', other, '--tls-key', other], 1, /has no certificate/],
    [['--http', '0', '--tls-cert', certificate, '--tls-key', 'none'], 1, /none cannot be read \(check --tls-key/],
    [['--http', '0', ...oauth('mcp.example', 'https://a.example')], 1, /the OAuth resource .*"mcp\.example" is not a URL/],
    [['--http', '0', ...oauth(RESOURCE, 'http://a.example')], 1, /the OAuth issuer .*must begin with https/],
    [['--http', '0', '--allowed-hosts', 'a b'], 1, /--allowed-hosts.*write NAME or NAME:PORT/],
    [['--http', '0', '--allowed-origins', 'a.example'], 1, /--allowed-origins.*write https/],
    [['--servers', 'nobody'], 1, /"nobody"/],
    [['--allow-writes', 'nobody'], 1, /"nobody"/],
    [['--agent', 'a b'], 1, /name must match/],
  ]) {
    const { code: exit, stdout, stderr } = await run(at, ['serve', ...words])
    const [line, ...more] = stderr
      .trim()
      .split('\n')
      .filter((line) => !line.startsWith('warning:'))
    assert.deepEqual([exit, stdout, more], [code, '', []], `${words.join(' ')}: ${stderr}`)
    assert.match(line, says)
    assert.ok(!line.includes('not redacted'), line)
  }
})

test('A wrong word is named in one line, and the exit code is 2', async (t) => {
  const at = place(t, { fixture: small() })
  for (const [words, says] of [
    [['--htp', '0'], /'--htp'/],
    [['8080'], /'8080'/],
    [['--http'], /--http/],
    [['--http', '0', '--tls-cert', 'x'], /required/],
    [['--http', '0', '--oauth-issuer', 'https://a.example'], /required/],
    [['--allowed-hosts', 'a.example'], /required/],
    [['--watch', 'maybe'], /'maybe'/],
  ]) {
    const { code, stdout, stderr } = await run(at, ['serve', ...words])
    assert.deepEqual([code, stdout], [2, ''], words.join(' '))
    const [line, ...more] = stderr.trim().split('\n')
    assert.match(line, says)
    assert.deepEqual(more, [], words.join(' '))
  }
})

/** The certificate above for another key: its public key is replaced, and it is signed anew. */
function certificateFor({ publicKey, privateKey }) {
  const der = Buffer.from(CERTIFICATE.replaceAll(/-----.*-----|\s/g, ''), 'base64')
  const key = publicKey.export({ type: 'spki', format: 'der' })
  // The certificate is a sequence of its content, the algorithm and the signature, which ends it.
  const content = der.subarray(4, 4 + 3 + der[6])
  key.copy(content, content.indexOf(key.subarray(0, 12)))
  sign(null, content, privateKey).copy(der, der.length - 64)
  return `-----BEGIN CERTIFICATE-----\n${der.toString('base64').replaceAll(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`
}

test('With --tls-cert and --tls-key, hosts come in by TLS and by nothing else', async (t) => {
  const at = await approved(t, { fixture: small() })
  const keys = generateKeyPairSync('ed25519')
  const certificate = certificateFor(keys)
  writeFileSync(join(at.work, 'certificate.pem'), certificate)
  writeFileSync(join(at.work, 'key.pem'), keys.privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 })
  const { url } = await serving(t, at, ['--tls-cert', 'certificate.pem', '--tls-key', 'key.pem'])
  assert.match(url, /^https:\/\/127\.0\.0\.1:\d+\/mcp$/)
  const { port } = new URL(url)
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
  const message = {
    jsonrpc: '2.0',
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'Test Host', version: '1' } },
  }
  const answer = await new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, path: '/mcp', method: 'POST', headers, ca: certificate, servername: 'localhost' }
    const asking = request(options, (response) => {
      let body = ''
      response.on('data', (data) => {
        body += data
        if (body.includes('"result"')) resolve(body)
      })
      response.once('end', () => resolve(body))
    })
    asking.once('error', reject).end(JSON.stringify(message))
  })
  assert.match(answer, /"serverInfo":\{"name":"hyperlight-mcp"/)
  await assert.rejects(fetch(`http://127.0.0.1:${port}/health`))
  await assert.rejects(fetch(`https://127.0.0.1:${port}/health`), 'a certificate that nobody trusts')
})

test('SIGTERM lets a request in progress end', async (t) => {
  const log = `${place(t).home}/log`
  const at = await approved(t, { fixture: { ...small('--log', log), confirm: 'never' } })
  const { url, child, ended } = await serving(t, at)
  const client = new Client({ name: 'Test Host', version: '1.0.0' })
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  const code = 'import { sleep } from "host:mcp-fixture"; export const handler = () => sleep({ ms: 1000 })'
  const slow = client.callTool({ name: 'run_javascript', arguments: { code, input: null, timeoutMs: null } })
  await waitFor('the call', () => arrived(log, 'sleep').length > 0, LIMIT)
  child.kill('SIGTERM')
  assert.equal((await slow).structuredContent.value, 'slept')
  await client.close().catch(() => {})
  assert.equal((await ended).code, 0)
})

test('SIGTERM lets the run of a task end, which no request waits for', async (t) => {
  const log = `${place(t).home}/log`
  const at = await approved(t, { fixture: { ...small('--log', log), confirm: 'never' } })
  const { url, child, ended } = await serving(t, at)
  const code = `import { sleep } from "host:mcp-fixture"
    export const handler = () => { sleep({ ms: 4000 }); return sleep({ ms: 0 }) }`
  const capabilities = { extensions: { 'io.modelcontextprotocol/tasks': {} } }
  const created = await ask(
    url,
    'tools/call',
    { name: 'run_javascript', arguments: { code, input: null, timeoutMs: null } },
    { capabilities },
  )
  assert.equal(created.resultType, 'task', JSON.stringify(created))
  child.kill('SIGTERM')
  assert.equal((await ended).code, 0)
  assert.equal(arrived(log, 'sleep').length, 2)
})

test('A second signal ends the process at once, also if it is of another kind', async (t) => {
  const log = `${place(t).home}/log`
  const at = await approved(t, { fixture: { ...small('--log', log), confirm: 'never', box: 'off' } })
  const { url, child, ended } = await serving(t, at)
  const client = await overHttp(t, url)
  const outcome = runs(client, 'fixture.sleep({ ms: 300000 })').catch(() => {})
  await waitFor('the call', () => arrived(log, 'sleep').length === 1, LIMIT)
  child.kill('SIGTERM')
  await waitFor(
    'the drain',
    () =>
      fetch(new URL('/health', url)).then(
        ({ status }) => status === 503,
        () => true,
      ),
    LIMIT,
  )
  child.kill('SIGINT')
  const { signal, stderr } = await ended
  assert.equal(signal, 'SIGINT')
  assert.doesNotMatch(stderr, /did not end in the time/)
  await client.close().catch(() => {})
  await outcome
})

test('A request that outlasts the time after SIGTERM is cancelled, which a warning and exit code 130 tell', async (t) => {
  const log = `${place(t).home}/log`
  const at = await approved(t, { fixture: { ...small('--log', log), confirm: 'never', box: 'off' } })
  const web = await serving(t, at)
  const hosts = [{ ...web, client: await overHttp(t, web.url) }, await overStdio(t, at)]
  const calls = hosts.map(({ client }) => runs(client, 'fixture.sleep({ ms: 300000 })'))
  const outcomes = Promise.allSettled(calls)
  await waitFor('the calls', () => arrived(log, 'sleep').length === 2, LIMIT)
  for (const { child } of hosts) child.kill('SIGTERM')
  for (const { ended } of hosts) {
    const { code, stderr } = await ended
    assert.match(stderr, /warning: a request did not end in the time after the signal, and was cancelled/)
    assert.equal(code, 130)
  }
  for (const { client } of hosts) await client.close().catch(() => {})
  for (const { value } of await outcomes) assert.notEqual(value?.structuredContent?.value, 'slept')
})

test('With --oauth-issuer, callers come in by an access token for this server', async (t) => {
  const { issuer, keysUrl, token: signed } = await issuerOf(t, RESOURCE)
  const token = (claims) => signed({ sub: 'ada', scope: 'mcp read', ...claims })
  const at = await approved(t, { fixture: small() })
  const words = ['--oauth-issuer', issuer, '--oauth-resource', RESOURCE, '--oauth-jwks', keysUrl, '--oauth-scopes', 'mcp,read']
  const { url } = await serving(t, at, words)
  const client = new Client({ name: 'Test Host', version: '1.0.0' })
  const requestInit = { headers: { authorization: `Bearer ${token({})}` } }
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }))
  assert.equal((await client.listTools()).tools.length, 6)
  await client.close()
  const status = async (headers) => (await fetch(url, { method: 'POST', headers })).status
  assert.equal(await status({}), 401)
  assert.equal(await status({ authorization: `Bearer ${token({ aud: 'https://other.example/mcp' })}` }), 401)
  assert.equal(await status({ authorization: `Bearer ${token({ scope: 'mcp' })}` }), 403)
  const metadata = await (await fetch(new URL('/.well-known/oauth-protected-resource/mcp', url))).json()
  assert.deepEqual([metadata.resource, metadata.authorization_servers], [RESOURCE, [issuer]])
})

test('A page comes in only where --allowed-origins names it', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { url } = await serving(t, at, ['--allowed-hosts', 'mcp.example', '--allowed-origins', 'https://page.example,https://b.example'])
  const message = { jsonrpc: '2.0', id: 1, method: 'ping' }
  const status = async (origin) => {
    const headers = { origin, 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
    return (await fetch(url, { method: 'POST', headers, body: JSON.stringify(message) })).status
  }
  assert.equal(await status('https://evil.example'), 403)
  for (const origin of ['https://page.example', 'https://b.example']) assert.notEqual(await status(origin), 403)
})
