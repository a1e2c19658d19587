// Tests of `search: 'hybrid'`: tools that are found by their meaning, with the model itself and with programs in its place that hang, lie and crash.
import assert from 'node:assert/strict'
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { approved, run } from './command-line.mjs'
import { answering, children, failure, folder, ms, openApproved, openGateway, root, testBox, waitFor } from './support.mjs'

const version = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version
const REMEDY = new RegExp(`ranks only by words until the next start: .*npm install hyperlight-mcp-search-model@${version}$`)

/** Returns a server with these tools, by their names with their descriptions. */
function tools(described) {
  const listed = Object.entries(described).map(([name, description]) => ({ name, description, inputSchema: { type: 'object' } }))
  const code = `const answers = {
      'tools/list': () => ({ tools: ${JSON.stringify(listed)} }),
    }`
  return { command: process.execPath, args: answering(code), box: testBox }
}

const meadow = tools({ list_sheep: 'Lists the animals of a farm', count_items: 'Counts items' })
const sky = tools({ storm_warning: 'Says whether a storm is coming', list_items: 'Lists the items of a shop' })
/** A question with no word of the tool that answers it. */
const QUESTION = 'do I need an umbrella?'

/** Makes a package with a program in the place of the model's. */
function fake(t, behaviour = 'honest') {
  const path = join(folder(t), 'hyperlight-mcp-search-model')
  mkdirSync(path)
  const program = join(path, 'hyperlight-mcp-embed')
  writeFileSync(program, `#!${process.execPath}\n${readFileSync(join(root, '__test__/fixtures/embedder.cjs'), 'utf8')}`)
  chmodSync(program, 0o755)
  for (const name of ['model.onnx', 'tokenizer.json']) writeFileSync(join(path, name), '')
  writeFileSync(join(path, 'behaviour'), behaviour)
  copyFileSync(join(root, 'npm/search-model/package.json'), join(path, 'package.json'))
  const entries = () => {
    if (!existsSync(join(path, 'asked'))) return []
    const lines = readFileSync(join(path, 'asked'), 'utf8').split('\n').slice(0, -1)
    return lines.map((line) => JSON.parse(line))
  }
  return {
    path,
    starts: () => entries().filter(({ pid }) => pid !== undefined),
    texts: () => entries().flatMap(({ text }) => text ?? []),
  }
}

/** Opens a gateway that ranks by meaning too. Returns it with its warnings about that. */
async function openHybrid(t, servers, searchModel, options) {
  const warnings = []
  const onEvent = ({ type, message }) => type === 'warning' && message.startsWith('search ') && warnings.push(message)
  const gateway = await openApproved(t, servers, { search: 'hybrid', searchModel, onEvent, ...options })
  return { gateway, warnings }
}

const names = (hits) => hits.map(({ server, tool }) => `${server}.${tool}`)
const found = async (caller, question, options) => names(await caller.searchTools(question, options))
/** Waits until a search finds a tool first: the first searches come before the vectors. */
const finds = (caller, question, tool) =>
  waitFor(`"${question}" to find ${tool}`, async () => (await found(caller, question))[0] === tool, ms(20_000))

describe('a search by meaning', () => {
  test('finds a tool that has no word of the question, and by words alone it does not', async (t) => {
    const { gateway, warnings } = await openHybrid(t, { meadow, sky }, fake(t).path)
    await finds(gateway, QUESTION, 'sky.storm_warning')
    assert.deepEqual(await found(gateway, QUESTION), ['sky.storm_warning'], 'and no tool whose meaning is far')
    const sandbox = await gateway.sandbox()
    const code = 'import { search } from "host:mcp"; export const handler = (question) => search(question)[0].tool'
    assert.equal((await sandbox.run(code, { input: QUESTION })).value, 'storm_warning')
    const message = await gateway.systemMessage({ task: QUESTION, budgetTokens: 400 })
    assert.match(message, /storm_warning/)
    assert.deepEqual(warnings, [])

    const words = await openApproved(t, { meadow, sky }, { search: 'words', searchModel: fake(t).path })
    assert.deepEqual(await found(words, QUESTION), [])
  })

  test('keeps the tools that have the words, with scores that fall', async (t) => {
    const { gateway } = await openHybrid(t, { meadow, sky }, fake(t).path)
    await finds(gateway, QUESTION, 'sky.storm_warning')
    const hits = await gateway.searchTools('list items before the rain')
    assert.deepEqual(new Set(names(hits)), new Set(['meadow.count_items', 'meadow.list_sheep', 'sky.list_items', 'sky.storm_warning']))
    assert.ok(hits.every(({ score }, index) => score > 0 && (index === 0 || score <= hits[index - 1].score)))
  })

  test('finds only what an agent may see, and no longer what is not approved any more', async (t) => {
    const config = { mcpServers: { meadow, sky }, defaultGrant: 'none' }
    const { gateway } = await openHybrid(t, { meadow, sky }, fake(t).path, { config })
    await finds(gateway, QUESTION, 'sky.storm_warning')
    const shepherd = gateway.agent('shepherd')
    assert.deepEqual(await found(shepherd, QUESTION), [], 'an agent without a grant')
    assert.deepEqual(await found(gateway, QUESTION, { servers: ['meadow'] }), [])
    await gateway.revoke('sky')
    assert.deepEqual(await found(gateway, QUESTION), [])
    await shepherd.close()
  })

  test('computes the vector of a tool once, and keeps it for the next gateway', async (t) => {
    const stateDir = join(folder(t), 'state')
    const first = fake(t)
    const { gateway } = await openHybrid(t, { meadow, sky }, first.path, { stateDir })
    await finds(gateway, QUESTION, 'sky.storm_warning')
    await waitFor('all texts', () => first.texts().length === 5, ms(20_000))
    await gateway.close()
    assert.equal(statSync(join(stateDir, 'search-vectors')).mode & 0o777, 0o600)

    const second = fake(t)
    const again = await openGateway(t, { meadow, sky }, { search: 'hybrid', searchModel: second.path, stateDir, enable: 'approved' })
    await finds(again, QUESTION, 'sky.storm_warning')
    assert.deepEqual(second.texts(), [QUESTION])
    await again.close()
    assert.deepEqual(second.texts(), [QUESTION])
  })

  test('starts its program at the first search, with no environment, in the root folder, and ends it', async (t) => {
    const model = fake(t)
    const { gateway } = await openHybrid(t, { meadow, sky }, model.path)
    assert.deepEqual(model.starts(), [])
    await finds(gateway, QUESTION, 'sky.storm_warning')
    const [{ pid, words, environment, folder: at, descriptors }] = model.starts()
    assert.deepEqual([words, Object.keys(environment), at], [[], [], '/'])
    assert.ok(!descriptors.some((path) => path.includes('.sqlite') || path.startsWith('socket:')), descriptors.join(' '))
    await gateway.close()
    assert.ok(!children().some((child) => child.pid === pid))
  })

  test('refuses another word for the ranking', async (t) => {
    for (const search of ['meaning', true, null]) {
      const error = await failure(openGateway(t, {}, { search }), 'ERR_INVALID_OPTION')
      assert.match(error.message, /search/)
    }
  })
})

describe('without a usable program, words alone rank, and one warning names the remedy:', () => {
  const SHARED = 'list items of a shop'

  for (const behaviour of ['exit', 'model', 'short', 'zero', 'nan', 'fraction', 'large', 'other', 'huge', 'endless', 'crash'])
    test(`a program that does this: ${behaviour}`, async (t) => {
      const model = fake(t, behaviour)
      const words = await found(await openApproved(t, { meadow, sky }), SHARED)
      const { gateway, warnings } = await openHybrid(t, { meadow, sky }, model.path)
      await waitFor(
        'a warning',
        async () => {
          assert.deepEqual(await found(gateway, SHARED), words)
          return warnings.length > 0
        },
        ms(20_000),
      )
      assert.deepEqual(await found(gateway, SHARED), words)
      await gateway.close()
      assert.equal(warnings.length, 1, warnings.join('\n'))
      assert.match(warnings[0], REMEDY)
      assert.ok(model.starts().length <= 3, 'it is not started for ever')
      const pids = model.starts().map(({ pid }) => pid)
      assert.ok(!children().some(({ pid }) => pids.includes(pid)))
    })

  test('a program that answers twice is ended at the next question', async (t) => {
    const model = fake(t, 'twice')
    const { gateway } = await openHybrid(t, { meadow, sky }, model.path)
    await found(gateway, SHARED)
    const [{ pid }] = await waitFor('another program', () => model.starts().length > 1 && model.starts(), ms(20_000))
    assert.ok(!children().some((child) => child.pid === pid))
  })

  test('a program that never answers delays no search and no end', async (t) => {
    const model = fake(t, 'silent')
    const words = await found(await openApproved(t, { meadow, sky }), SHARED)
    const { gateway } = await openHybrid(t, { meadow, sky }, model.path)
    assert.deepEqual(await found(gateway, SHARED), words)
    const [{ pid }] = await waitFor('the program', () => model.starts().length > 0 && model.starts(), ms(20_000))
    await gateway.close()
    assert.ok(!children().some((child) => child.pid === pid))
  })

  test('a package that is missing, and one of another version', async (t) => {
    const model = fake(t)
    writeFileSync(join(model.path, 'package.json'), '{ "name": "hyperlight-mcp-search-model", "version": "9.9.9" }')
    for (const [path, problem] of [
      [join(model.path, 'nowhere'), /cannot be read/],
      [model.path, /it has version 9\.9\.9/],
    ]) {
      const { gateway, warnings } = await openHybrid(t, { meadow, sky }, path)
      assert.equal((await found(gateway, SHARED))[0], 'sky.list_items')
      await waitFor('a warning', () => warnings.length > 0, ms(20_000))
      assert.match(warnings[0], problem)
      assert.match(warnings[0], REMEDY)
    }
    assert.deepEqual(model.starts(), [])
  })

  test('a package that others could change is not started', async (t) => {
    const model = fake(t)
    chmodSync(join(model.path, 'hyperlight-mcp-embed'), 0o777)
    const { gateway, warnings } = await openHybrid(t, { meadow, sky }, model.path)
    assert.equal((await found(gateway, SHARED))[0], 'sky.list_items')
    await waitFor('a warning', () => warnings.length > 0, ms(20_000))
    assert.match(warnings[0], /can be written by other users/)
    await gateway.close()
    assert.deepEqual(model.starts(), [])
  })

  for (const behaviour of ['stuck', 'fragile'])
    test(`a text for which the program is ${behaviour} costs only its own vector`, async (t) => {
      const model = fake(t, behaviour)
      const { gateway, warnings } = await openHybrid(t, { meadow, sky }, model.path)
      await finds(gateway, QUESTION, 'sky.storm_warning')
      await waitFor('a second start', () => model.starts().length === 2, ms(20_000))
      assert.deepEqual(await found(gateway, 'sheep'), ['meadow.list_sheep'], 'the question itself is not answered either')
      assert.deepEqual(warnings, [])
    })

  test('the command line says it too, and the config chooses the ranking', async (t) => {
    const at = await approved(t, { sky })
    const path = join(at.home, '.hyperagent/config.json')
    const config = JSON.parse(readFileSync(path, 'utf8'))
    writeFileSync(path, JSON.stringify({ ...config, search: 'hybrid' }))
    const { code, stdout, stderr } = await run(at, ['search', 'storm'])
    assert.equal(code, 0, stderr)
    assert.match(stdout, /storm_warning/)
    assert.match(stderr, /the package hyperlight-mcp-search-model is not installed\..*npm install hyperlight-mcp-search-model@/s)
    writeFileSync(path, JSON.stringify({ ...config, search: 'best' }))
    const wrong = await run(at, ['search', 'storm'])
    assert.match(wrong.stderr, /search: must be "words" or "hybrid"/)
  })
})

describe('the model itself', () => {
  const path = join(root, 'npm/search-model')
  const shop = tools({
    whois_domain: 'Returns the registration record of an internet domain',
    resize_picture: 'Changes width and height of an image file',
    send_mail: 'Delivers a message to a mailbox',
    get_forecast: 'Predicts temperature and precipitation for the next days',
  })

  test('finds tools by what a question means', async (t) => {
    assert.ok(existsSync(join(path, 'model.onnx')), 'the package is incomplete; scripts/search-model completes it')
    const { gateway, warnings } = await openHybrid(t, { shop }, path)
    for (const [question, tool] of [
      ['who owns this website', 'whois_domain'],
      ['will it snow tomorrow', 'get_forecast'],
    ]) {
      const words = await found(await openApproved(t, { shop }), question)
      assert.notEqual(words[0], `shop.${tool}`)
      await finds(gateway, question, `shop.${tool}`)
    }
    assert.deepEqual(warnings, [])
  })

  test('has given up files and connections before it reads a text', async (t) => {
    const { gateway } = await openHybrid(t, { shop }, path)
    await finds(gateway, 'will it snow tomorrow', 'shop.get_forecast')
    const { pid } = children().find(({ pid }) => readlinkSync(`/proc/${pid}/exe`) === join(path, 'hyperlight-mcp-embed'))
    const limits = readFileSync(`/proc/${pid}/limits`, 'utf8')
    assert.match(limits, /Max open files +3 +3 /)
    assert.match(limits, /Max file size +0 +0 /)
    assert.match(limits, /Max address space +1073741824 +1073741824 /)
  })
})
