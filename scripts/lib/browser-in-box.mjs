// Implementation of scripts/browser-in-box: opens a page of this process with a browser in a box, and checks how that ends with and without "nested".
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { Gateway } from '../../index.mjs'

const [who, program, chromium] = process.argv.slice(2)
const LIMIT = 60_000
/** The page says whether its scripts ran. */
const PAGE = `<title>first</title><h1>Hello</h1><script>document.title = 'It ran ' + 6 * 7</script>`

const server = createServer((_, response) => response.setHeader('content-type', 'text/html').end(PAGE)).listen(0, '127.0.0.1')
await once(server, 'listening')
const { port } = server.address()

async function opens(box, host) {
  // --sandbox: Playwright would leave the browser's own sandbox out.
  const args = [program, '--headless', '--sandbox', '--isolated', '--executable-path', chromium]
  const gateway = await Gateway.open({
    config: { mcpServers: { browser: { command: process.execPath, args, confirm: 'never', box } } },
    stateDir: join(process.env.HOME, `state-${box.nested}-${host}`),
    limits: { connectTimeoutMs: LIMIT, callTimeoutMs: LIMIT },
  })
  try {
    await gateway.approve('browser')
    await gateway.approve('browser')
    await gateway.enable('browser')
    const { content } = await gateway.callTool('browser', 'browser_navigate', { url: `http://${host}:${port}/` })
    return content.map(({ text }) => text).join('\n')
  } finally {
    await gateway.close()
  }
}

const network = [`localhost:${port}`]
for (const host of ['127.0.0.1', 'localhost']) {
  assert.match(await opens({ nested: true, network }, host), /Page Title: It ran 42/, host)
}
assert.match(await opens({ nested: false, network }, '127.0.0.1'), /No usable sandbox/)
console.log(`${who} (uid ${process.getuid()}): the browser's sandbox works with "nested", and is refused without it`)
server.close()
server.closeAllConnections()
