// Runs each example in a separate process, like a user, and checks its exit code and its output.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { fixture, folder, ms, root, run as runProgram } from './support.mjs'

const LIMIT = ms(60_000)

/**
 * Returns the output of a program, and how it ended. Its home and its temporary folder belong to the test, so that nothing is left behind.
 */
async function run(t, [program, ...args], { stdin = 'ignore', env = {} } = {}) {
  const home = folder(t)
  const environment = { ...process.env, HOME: home, TMPDIR: home, NO_COLOR: '1', ...env }
  const options = { cwd: root, env: environment, stdio: [stdin, 'pipe', 'pipe'], limit: LIMIT }
  const { code, signal, stdout, stderr } = await runProgram(t, process.execPath, [join(root, program), ...args], options)
  return { home, stdout, stderr, code: code ?? signal }
}

function succeeded({ code, stdout, stderr }) {
  assert.equal(code, 0, `${stdout}\n${stderr}`)
  assert.equal(stderr, '')
}

describe('the examples', { timeout: 4 * LIMIT }, () => {
  it('demo.mjs: the main job, from approvals to what the guest cannot do', async (t) => {
    const result = await run(t, ['examples/demo.mjs'])
    succeeded(result)
    const { stdout } = result
    for (const name of ['files', 'memory', 'everything']) {
      assert.match(stdout, new RegExp(`^  ${name}: command  .*node.*server-`, 'm'))
      assert.match(stdout, new RegExp(`^  ${name}: tools  .* has \\d+`, 'm'))
    }
    assert.match(stdout, /MEMORY_FILE_PATH$/m, 'names of the environment, not its values')
    assert.match(stdout, /^ {2}secrets +not approved/m)
    const asked = stdout.match(/^ {2}may it be called\? +memory\.\w+ .*$/gm)
    assert.deepEqual(
      asked.map((line) => /memory\.(\w+)/.exec(line)[1]),
      ['create_entities', 'create_relations'],
    )
    assert.equal(stdout.match(/^ {2}answer +session: yes/gm).length, 2)
    for (const level of ['log', 'info', 'debug', 'error']) assert.match(stdout, new RegExp(`\\[guest ${level}\\]`))
    const [, files, lines] = /^ {2}(\d+) files, (\d+) lines/m.exec(stdout).map(Number)
    assert.ok(files > 50 && lines > 5000, `${files} files, ${lines} lines`)
    const [, entities, relations] = /graph +(\d+) entities, (\d+) relations/.exec(stdout).map(Number)
    assert.ok(entities > files && relations > files, `${entities} entities, ${relations} relations`)
    assert.match(stdout, /who uses src\/sandbox +.*src\/bridge/)
    assert.match(stdout, /image +image\/png, 4033 bytes, with PNG's signature/)
    assert.match(stdout, /calls +\d{2,} calls of tools/)
    assert.match(stdout, /(?:9\d|100)\.\d % was kept out of its context/)
    assert.match(stdout, /start to result +\d/)
    const refusals = stdout.slice(stdout.indexOf('What the guest cannot do'))
    assert.equal(refusals.match(/-> ERR_\w+ .+/g).length, 7, refusals)
    assert.match(refusals, /fetch is not defined/)
    assert.match(refusals, /host:mcp-secrets/)
    assert.match(refusals, /memory\.delete_entities was not called: it was denied by onApproval/)
    assert.ok(!stdout.includes('a-secret') && !stdout.includes('\u001b'))
  })

  it('demo.mjs: a failure is one clear message, and exit code 1', async (t) => {
    const result = await run(t, ['examples/demo.mjs'], { env: { HYPERLIGHT_MCP_GUEST: 'none' } })
    assert.equal(result.code, 1)
    assert.match(result.stderr, /^\ndemo: ERR_INVALID_OPTION: .*guest.*\n$/)
  })

  it('quickstart.mjs prints what a person approves, then the answer', async (t) => {
    const result = await run(t, ['examples/quickstart.mjs'])
    succeeded(result)
    assert.match(result.stdout, /stage: 'command'/)
    assert.match(result.stdout, /^Echo: hello, world$/m)
    assert.ok(existsSync(join(result.home, '.hyperagent/hyperlight-mcp')), 'the approval is kept in its default folder')
  })

  it('quickstart.mjs is what the README shows, in at most 12 lines', () => {
    const code = readFileSync(join(root, 'examples/quickstart.mjs'), 'utf8')
    assert.ok(code.split('\n').filter(Boolean).length <= 12)
    assert.ok(readFileSync(join(root, 'README.md'), 'utf8').includes(`\`\`\`js\n${code}\`\`\``))
  })

  it('two-agents.mjs: each agent has exactly what it is granted', async (t) => {
    const result = await run(t, ['examples/two-agents.mjs'])
    succeeded(result)
    const [greeter, accountant, echo, refused, why] = result.stdout.split('\n')
    assert.equal(greeter, 'greeter: echo')
    assert.match(accountant, /^accountant: .*get_sum/)
    assert.doesNotMatch(accountant, /echo|get_env/)
    assert.equal(echo, 'Echo: hello')
    assert.match(refused, /^ERR_NOT_GRANTED: agent "greeter" may not use everything\/get-sum: .*the toolbox "counters" has it/)
    assert.equal(why, 'the pattern "!everything/get-env" of the toolbox "counters" denies everything/get-env')
  })

  it('own-module.cjs: functions of the agent, sync and async, with bytes', async (t) => {
    const result = await run(t, ['examples/own-module.cjs'])
    succeeded(result)
    assert.match(result.stdout, /total: 216, of an unknown order: null/)
    assert.match(result.stdout, /receipt: 11 bytes, signature: d49dfeea947161fc…/)
    assert.match(result.stdout, /refused: .*order A-1 is paid out already/)
  })

  it('provider.mjs: a package brings servers, once it is approved', async (t) => {
    const result = await run(t, ['examples/provider.mjs'], { env: { ACME_API_KEY: '' } })
    succeeded(result)
    assert.match(result.stdout, /^before: unapproved 0 servers$/m)
    assert.match(result.stdout, /^asked: {2}acme-mcp 1\.0\.0 provider\.js 3 files$/m)
    assert.match(result.stdout, /^brings: acme-mcp--greeter unapproved$/m)
    assert.match(result.stdout, /^brings: acme-mcp--files not-ready ACME_API_KEY$/m)
    assert.match(result.stdout, /^says: {3}Good morning, Ada$/m)
  })

  it('approve.mjs --yes shows both stages and approves; what fails is named', async (t) => {
    const path = folder(t)
    const config = join(path, 'config.json')
    const state = join(path, 'state')
    writeFileSync(
      config,
      JSON.stringify({ mcpServers: { good: fixture('--tools', 'echo,write_note'), bad: { command: '/nonexistent/server' } } }),
    )
    const both = await run(t, ['examples/approve.mjs', config, '--state', state, '--yes'])
    assert.equal(both.code, 1, both.stderr)
    assert.match(both.stdout, /good: may this run\?\n {2}runs +.*fixture-server --tools echo,write_note/)
    assert.match(both.stdout, /good: may a model read and call this\?[\s\S]* {2}WRITES write_note:/)
    assert.match(both.stdout, /^good: approved$/m)
    assert.match(both.stdout, /^bad: ERR_SPAWN_FAILED: /m)
    const again = await run(t, ['examples/approve.mjs', config, '--state', state, '--yes', 'good'])
    succeeded(again)
    assert.equal(again.stdout, 'good: approved\n', 'nothing is asked twice')
  })

  it('proposal.mjs: a model proposes a server, and a person decides', async (t) => {
    const { command, args } = fixture('--tools', 'echo')
    const yes = await run(t, ['examples/proposal.mjs', '--yes', command, ...args])
    succeeded(yes)
    assert.match(yes.stdout, /agent helper proposes the server my-helper-[0-9a-f]{8}, which it calls "My Helper"/)
    assert.match(yes.stdout, /model: manage_mcp -> ERR_INVALID_ARGUMENTS\n {2}model: manage_mcp -> ERR_NOT_APPROVED/)
    assert.match(yes.stdout, /may this run\?[\s\S]*may a model read and call this\?[\s\S]*my-helper-[0-9a-f]{8}: approved, with 1 tools/)
    const no = await run(t, ['examples/proposal.mjs', '--no', command, ...args])
    succeeded(no)
    assert.match(no.stdout, /my-helper-[0-9a-f]{8}: refused and removed; 0 servers are left/)
    assert.doesNotMatch(no.stdout, /may a model read/)
  })

  it('approve.mjs asks nobody where there is no terminal', async (t) => {
    const config = join(folder(t), 'config.json')
    writeFileSync(config, '{}')
    const result = await run(t, ['examples/approve.mjs', config])
    assert.equal(result.code, 2)
    assert.match(result.stderr, /stdin is not a terminal/)
  })
})

describe('the benchmarks', { timeout: LIMIT }, () => {
  it('print what the micro-VM and the bridge cost as a table, and write JSON', async (t) => {
    const json = join(folder(t), 'figures.json')
    const result = await run(t, ['benches/figures.mjs', '--repetitions', '1', '--calls', '20', '--json', json])
    succeeded(result)
    assert.match(result.stdout, /^first run +ms +[\d.]+/m)
    const { results, machine } = JSON.parse(readFileSync(json, 'utf8'))
    assert.ok(['standard', 'ring3'].includes(machine.guest))
    for (const key of ['sandboxFirst', 'runFirst', 'emptyCall', 'toolGuest', 'toolNode', 'memoryPeakOne'])
      assert.ok(results[key].median > 0, key)
  })

  it('hold rows against their goals: each measured beside its reference, whether it is met or not', async (t) => {
    const json = join(folder(t), 'bench.json')
    const words = ['--rounds', '1', '--calls', '20', '--only', 'emptyCall,warmRun,bytes', '--json', json]
    const result = await run(t, ['benches/bench.mjs', ...words], { env: { HYPERLIGHT_MCP_BENCH_BUILD: 'debug' } })
    assert.ok([0, 1].includes(result.code), result.stderr)
    assert.match(result.stdout, /^empty host call : the baseline's +[\d.]+ us +[\d.]+ us /m)
    const { rows, machine } = JSON.parse(readFileSync(json, 'utf8'))
    assert.ok(['standard', 'ring3'].includes(machine.guest))
    assert.deepEqual(
      rows.map(({ key }) => key),
      ['emptyCall', 'warmRun', 'bytes'],
    )
    for (const { key, value, reference, ratio } of rows) {
      assert.ok(value.median > 0 && reference.median > 0, key)
      assert.ok(Math.abs(ratio.median - value.median / reference.median) < 1e-9, key)
    }
  })
})
