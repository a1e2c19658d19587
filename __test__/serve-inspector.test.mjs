// The command line of the MCP Inspector drives every tool of `hyperlight-mcp serve`, over both transports.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspector, newerNode } from '../scripts/lib/tools.mjs'
import { approved, environment, LIMIT, program, small } from './command-line.mjs'
import { CALLS, served } from './serving.mjs'
import { run } from './support.mjs'

test("The Inspector's command line drives every tool over both transports", async (t) => {
  const at = await approved(t, { fixture: small() })
  // The Inspector cannot answer questions.
  const allowed = ['--allow-writes', 'fixture']
  const { url } = await served(t, at, allowed)
  const inspect = async (target, name, args) => {
    const pairs = Object.entries(args).map(([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    const call = ['--method', 'tools/call', '--tool-name', name, ...(pairs.length > 0 ? ['--tool-arg', ...pairs] : [])]
    const options = { cwd: at.work, env: environment(at), limit: LIMIT }
    const { code, stdout, stderr } = await run(t, newerNode(), [inspector(), '--cli', ...call, ...target], options)
    assert.equal(code, 0, `${name}: ${stdout}${stderr}`)
    return JSON.parse(stdout)
  }
  const targets = [
    ['--transport', 'http', url],
    ['--', process.execPath, program, 'serve', ...allowed],
  ]
  for (const target of targets) {
    const answers = Object.entries(CALLS).map(async ([name, [args, expected]]) => {
      const { isError, structuredContent } = await inspect(target, name, args)
      assert.notEqual(isError, true, `${name}: ${JSON.stringify(structuredContent)}`)
      assert.match(JSON.stringify(structuredContent), expected, name)
    })
    await Promise.all(answers)
  }
})
