// Tests of completion at real prompts: a person types a line and Tab, and the shell shows the completed line.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { environment, LIMIT, place, program, run } from './command-line.mjs'
import { listenTo } from './support.mjs'

const SERVERS = { 'weather-now': { command: 'true' }, 'weather-past': { command: 'true' }, files: { command: 'true' } }
const PROMPT = '@ready@'
const READY = new RegExp(PROMPT)

/** The commands that start each shell. A start file of the person loads the completion. */
const shells = {
  bash: ({ home }, script) => {
    writeFileSync(join(home, 'rc'), `PS1='${PROMPT}'\nbind 'set enable-bracketed-paste off'\n. '${script}'\n`)
    return `bash --noprofile --rcfile '${join(home, 'rc')}' -i`
  },
  zsh: ({ home }, script) => {
    writeFileSync(join(home, '.zshrc'), `PS1='${PROMPT}'\nunset zle_bracketed_paste\nautoload -Uz compinit\ncompinit -u\n. '${script}'\n`)
    return 'zsh -i'
  },
  fish: ({ home }, script) => {
    mkdirSync(join(home, '.config/fish'), { recursive: true })
    // Without this folder, fish fills it from all manual pages, in the background.
    mkdirSync(join(home, '.local/share/fish/generated_completions'), { recursive: true })
    writeFileSync(
      join(home, '.config/fish/config.fish'),
      `function fish_prompt; echo -n '${PROMPT}'; end\nset -g fish_greeting\nsource '${script}'\n`,
    )
    return 'fish -i'
  },
}

/** Makes a home where the program completes lines, and where a completed line only prints its arguments. */
function installed(t) {
  const at = place(t, SERVERS)
  const bins = [join(at.home, 'bin'), join(at.work, 'node_modules/.bin')]
  for (const bin of bins) {
    mkdirSync(bin, { recursive: true })
    const text = `#!/bin/sh\nif [ "$1" = complete ]; then exec '${process.execPath}' '${program}' "$@"; fi\nprintf '<%s>' ran "$@"\n`
    writeFileSync(join(bin, 'hyperlight-mcp'), text, { mode: 0o755 })
  }
  mkdirSync(join(at.work, 'node_modules/hyperlight-mcp'))
  const manifest = { name: 'hyperlight-mcp', version: '1.0.0', bin: '../.bin/hyperlight-mcp' }
  writeFileSync(join(at.work, 'node_modules/hyperlight-mcp/package.json'), JSON.stringify(manifest))
  writeFileSync(join(at.work, 'my other.json'), JSON.stringify({ mcpServers: { elsewhere: { command: 'true' } } }))
  writeFileSync(join(at.work, 'package.json'), '{ "name": "work", "private": true }')
  return at
}

/** Starts a shell at a terminal, and returns functions: one types a line, Tab and Enter, and returns what the completed line printed. */
async function prompt(at, shell, script) {
  const env = environment(at, { PATH: `${join(at.home, 'bin')}:${process.env.PATH}`, TERM: 'xterm', ZDOTDIR: at.home })
  const command = shells[shell](at, script)
  const child = listenTo(at.t, 'script', ['-qec', `stty cols 200; ${command}`, '/dev/null'], { cwd: at.work, env, limit: LIMIT })
  const text = () => child.output.stdout.slice(from)
  const ended = once(child, 'exit')
  let from = 0
  const until = async (pattern) => {
    while (!pattern.test(text())) {
      if (child.exitCode !== null) throw new Error(`${shell} ended before ${pattern}:\n${child.output.stdout}`)
      await Promise.race([once(child.stdout, 'data'), ended])
    }
    return text().match(pattern)[0]
  }
  await until(READY)
  const type = async (line) => {
    from = child.output.stdout.length
    child.stdin.write(`${line}\t\r`)
    const ran = await until(/<ran>(<[^<>]*>)*/)
    await until(READY)
    return ran
  }
  const leave = async () => {
    child.stdin.write('exit\r')
    await ended
  }
  return { type, leave }
}

for (const shell of Object.keys(shells))
  test(`${shell} completes commands, options and names of servers at its prompt, also behind npx`, async (t) => {
    const at = installed(t)
    const script = join(at.home, 'completion')
    writeFileSync(script, (await run(at, ['completion', shell])).stdout)
    const { type, leave } = await prompt(at, shell, script)
    assert.equal(await type('hyperlight-mcp appr'), '<ran><approve>')
    assert.equal(await type('hyperlight-mcp info f'), '<ran><info><files>')
    assert.equal(await type('hyperlight-mcp test wea'), '<ran><test><weather->', 'two servers begin so')
    assert.equal(await type('hyperlight-mcp run a.js --servers files,weather-n'), '<ran><run><a.js><--servers><files,weather-now>')
    assert.equal(await type('hyperlight-mcp types --servers=fi'), '<ran><types><--servers=files>')
    assert.equal(await type("hyperlight-mcp --config 'my other.json' info e"), '<ran><--config><my other.json><info><elsewhere>')
    assert.equal(await type('npx hyperlight-mcp logs f'), '<ran><logs><files>')
    assert.equal(await type('npx -y hyperlight-mcp logs weather-p'), '<ran><logs><weather-past>')
    await leave()
  })

test('what the scripts ask for is printed without a word on standard error, whatever the config is', async (t) => {
  const at = installed(t)
  const lines = async (...words) => (await run(at, ['complete', 'hyperlight-mcp', ...words])).stdout.split('\n').filter(Boolean)
  assert.deepEqual(await lines('info', 'w'), ['weather-now', 'weather-past'])
  assert.deepEqual(await lines('--config', 'my other.json', 'info', ''), ['elsewhere'])
  writeFileSync(join(at.home, '.hyperagent/config.json'), '{ broken')
  const broken = await run(at, ['complete', 'hyperlight-mcp', 'info', 'w'])
  assert.deepEqual([broken.code, broken.stdout.trim(), broken.stderr], [0, '', ''])
  assert.deepEqual(await lines('appro'), ['approve\tRead what a server would run and offer, and say yes or no'])
})
