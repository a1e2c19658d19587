// Tests the packages as they would be published, installed into an empty folder without access to Rust, clang or the repository.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { code, model, plan, planned, provider } from '../booting.mjs'
import { blocks, follow } from '../guide.mjs'
import { outputOf, run as runProgram, runSync, typed } from '../processes.mjs'

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
const work = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-package-'))
const home = join(work, 'home')
// The folder that the guide tells the reader to make.
const app = join(home, 'first')
const bin = join(work, 'bin')
// Only those programs of the machine are visible that npm and a shell script need.
const environment = { PATH: bin, HOME: home, NODE_ENV: 'test' }
const version = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version
const tarballs = [`hyperlight-mcp-${version}.tgz`, `hyperlight-mcp-linux-x64-gnu-${version}.tgz`].map((name) => join(root, 'dist', name))

/** Returns the examples of the README, by the names under which it says to save them. */
function readmeExamples() {
  const [, ...parts] = readFileSync(join(root, 'README.md'), 'utf8').split(/[Ss]ave this as `/)
  return Object.fromEntries(parts.map((part) => [/^[^`]+/.exec(part)[0], /\n```js\n([\s\S]*?)```/.exec(part)[1]]))
}

function node(...args) {
  return runSync(process.execPath, args, { cwd: app, env: environment })
}

before(() => {
  for (const folder of [app, bin]) mkdirSync(folder, { recursive: true })
  symlinkSync(process.execPath, join(bin, 'node'))
  symlinkSync('/bin/sh', join(bin, 'sh'))
  outputOf(join(root, 'scripts/pack'), [], { stdio: 'inherit' })
  writeFileSync(join(app, 'package.json'), '{ "private": true }')
  // npm and its cache are those of this machine. The installed package can use neither.
  const install = [
    'install',
    '--no-audit',
    '--no-fund',
    '--prefer-offline',
    ...tarballs,
    '@modelcontextprotocol/server-everything@2026.8.31',
    '@modelcontextprotocol/server-filesystem@2026.8.31',
    '@modelcontextprotocol/client@2.4.0',
  ]
  outputOf('npm', install, { cwd: app, stdio: 'inherit' })
})

after(() => rmSync(work, { recursive: true, force: true }))

describe('the published packages', () => {
  it('hold what users need and nothing else', () => {
    const list = (name) => readdirSync(join(app, 'node_modules', name)).sort()
    assert.deepEqual(list('hyperlight-mcp'), [
      'CHANGELOG.md',
      'LICENSE',
      'README.md',
      'adapters.d.mts',
      'adapters.d.ts',
      'adapters.js',
      'adapters.mjs',
      'bin',
      'docs',
      'examples',
      'guest',
      'index.d.mts',
      'index.d.ts',
      'index.js',
      'index.mjs',
      'package.json',
    ])
    assert.deepEqual(list('hyperlight-mcp/bin'), readdirSync(join(root, 'bin')).sort())
    assert.deepEqual(list('hyperlight-mcp/docs'), readdirSync(join(root, 'docs')).sort())
    assert.ok(list('hyperlight-mcp/examples').includes('quickstart.mjs'))
    const platform = [
      'LICENSE',
      'README.md',
      'hyperlight-mcp-box',
      'hyperlight-mcp-reader',
      'hyperlight-mcp-watchdog',
      'hyperlight-mcp.linux-x64-gnu.node',
      'package.json',
    ]
    assert.deepEqual(list('hyperlight-mcp-linux-x64-gnu'), platform)
  })

  it('say which machines they are for', () => {
    const read = (name) => JSON.parse(readFileSync(join(app, 'node_modules', name, 'package.json'), 'utf8'))
    const [main, platform] = [read('hyperlight-mcp'), read('hyperlight-mcp-linux-x64-gnu')]
    assert.deepEqual(main.optionalDependencies, { 'hyperlight-mcp-linux-x64-gnu': version })
    assert.equal(platform.version, version)
    assert.deepEqual([platform.os, platform.cpu, platform.libc], [['linux'], ['x64'], ['glibc']])
    assert.equal(main.engines.node, '>=20')
    assert.equal(main.scripts, undefined)
  })

  it('show other addons of the process no symbol of SQLite, and none but the entry of the addon', () => {
    const addon = join(app, 'node_modules/hyperlight-mcp-linux-x64-gnu/hyperlight-mcp.linux-x64-gnu.node')
    assert.ok(readFileSync(addon).includes('SQLite format 3'), 'it has SQLite within')
    const symbols = outputOf('nm', ['-D', '--defined-only', addon]).trim().split('\n')
    assert.deepEqual(
      symbols.map((line) => line.split(' ').at(-1)),
      ['napi_register_module_v1'],
    )
  })

  it("run the README's examples as a reader saves them", async (t) => {
    const examples = readmeExamples()
    assert.deepEqual(Object.keys(examples), ['first.mjs', 'asking.mjs'])
    for (const [name, code] of Object.entries(examples)) writeFileSync(join(app, name), code)
    const first = node('first.mjs')
    assert.equal(first.status, 0, first.stderr)
    assert.match(first.stdout, /^Echo: hello, world$/m)
    const env = { PATH: process.env.PATH, HOME: home }
    const asking = await typed(t, 'node asking.mjs', [['allow this call? [y/N] ', 'y\n']], { cwd: app, env, limit: 60_000 })
    assert.equal(asking.code, 0, asking.text)
    assert.match(
      asking.text,
      /everything\.toggle-simulated-logging \{\} \(.+\): allow this call\? [\s\S]*Started simulated, random-leveled logging/,
    )
  })

  it('load the client of a model, which only boot needs', () => {
    const { stderr } = node(
      'node_modules/.bin/hyperlight-mcp',
      'boot',
      '--prompt',
      'x',
      '--dry-run',
      '--api-key',
      'k',
      '--base-url',
      'http://127.0.0.1:1/',
    )
    assert.doesNotMatch(stderr, /Cannot find module '.*model\.mjs'/)
    assert.match(stderr, /npm install/, 'the library for models is an optional dependency')
  })

  it('make tools by npx in an empty folder, with the client of models that a person names beside it, and with no other', async (t) => {
    const { generate } = model({ plans: [plan(planned('add'))], handlers: { add: [code('return 1')] } })
    const { baseUrl } = await provider(t, 'anthropic', { generate })
    const cache = join(work, 'npx-cache')
    mkdirSync(cache)
    // npx installs each package again, from files that were downloaded earlier.
    symlinkSync(join(outputOf('npm', ['config', 'get', 'cache']).trim(), '_cacache'), join(cache, '_cacache'))
    const env = { ...process.env, npm_config_cache: cache, npm_config_prefer_offline: 'true', npm_config_update_notifier: 'false' }
    const packages = tarballs.flatMap((file) => ['-p', file])
    const boot = ['hyperlight-mcp', 'boot', '--prompt', 'Add', '--dry-run', '--no-cache', '--api-key', 'k', '--base-url', baseUrl]
    const npx = (folder, ...more) => runProgram(t, 'npx', ['--yes', ...packages, ...more, ...boot], { cwd: folder, env, limit: 300_000 })
    const [plain, named] = ['plain', 'named'].map((name) => join(home, name))
    for (const folder of [plain, named]) mkdirSync(folder)
    const without = await npx(plain)
    const [, beside, install] =
      /Start with: npx -p hyperlight-mcp (.*) hyperlight-mcp boot …, or install them together: (npm install .*)/.exec(without.stderr) ?? []
    assert.ok(install, without.stderr)
    const clients = beside.split(' ').filter((word) => word !== '-p')
    outputOf('npm', ['install', ...clients, '--no-audit', '--no-fund'], { cwd: plain, env })
    assert.match(
      (await npx(plain)).stderr,
      /the package ai is not installed/,
      'a server in a box may have made what is in the working folder',
    )
    const together = await npx(named, ...beside.split(' '))
    assert.match(together.stdout, /^add \(no network\)/, together.stderr)
  })

  it('load by require and by import as one module', () => {
    const script = `import { createRequire } from 'node:module'; import * as esm from 'hyperlight-mcp'
      const cjs = createRequire(import.meta.url)('hyperlight-mcp'); console.log(Object.keys(cjs).every((name) => cjs[name] === esm[name]))`
    assert.equal(node('--input-type=module', '--eval', script).stdout.trim(), 'true')
  })

  it('have the program hyperlight-mcp', () => {
    const { status, stdout, stderr } = node('node_modules/.bin/hyperlight-mcp', '--version')
    assert.equal(status, 0, stderr)
    assert.equal(stdout, `hyperlight-mcp ${version}\n`)
  })

  it('serve a host its first script, as docs/SERVE.md shows it', async (t) => {
    const guide = 'docs/SERVE.md'
    const [section] = /\n## From an empty folder[\s\S]*?(?=\n## )/.exec(readFileSync(join(root, guide), 'utf8'))
    const env = { PATH: process.env.PATH, HOME: home, npm_config_update_notifier: 'false', npm_config_offline: 'true' }
    await follow(t, { home, work: app, env }, guide, blocks(section, guide))
  })

  it('refuse a platform without a prebuilt addon in one sentence that names those there are', () => {
    const code = `Object.defineProperty(process, 'platform', { value: 'win32' }); require('hyperlight-mcp')`
    const { status, stderr } = node('--eval', code)
    assert.notEqual(status, 0)
    assert.match(stderr, /Error: hyperlight-mcp has no prebuilt addon for win32-x64\. It supports: linux-x64-gnu\.\n/)
  })

  it('say what is missing where the platform package was left out', () => {
    rmSync(join(app, 'node_modules/hyperlight-mcp-linux-x64-gnu'), { recursive: true })
    const { stderr } = node('--eval', `require('hyperlight-mcp')`)
    assert.match(stderr, /hyperlight-mcp-linux-x64-gnu, is not installed/)
  })
})
