// Tests with two hosts at once, in orders that a seed determines: each answer reaches only the call that asked.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { approved } from './command-line.mjs'
import { ERAS, overHttp, runs, served } from './serving.mjs'
import { deferred, fixture, gated } from './support.mjs'

/** The same orders are tried in each run; `scripts/test --seeds` tries others. */
const SEED = Number(process.env.HYPERLIGHT_MCP_SEED ?? 20261123)
const ROUNDS = 24
const CALLS_OF_A_HOST = 2
const OLD_ROUNDS = 6

/** A generator of numbers from a seed (mulberry32): integers below `bound`. */
function numbers(seed) {
  let state = seed
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound
  }
}

/** The questions of all hosts that wait for an answer, and the calls that have not ended. */
class Table {
  #questions = []
  #calls = []
  #changed = deferred()

  ask(host, text) {
    const question = { host, text, ...deferred() }
    this.#questions.push(question)
    this.#tell()
    return question.promise
  }

  begin(calls) {
    this.#calls = [...calls]
  }

  end(call) {
    this.#calls.splice(this.#calls.indexOf(call), 1)
    this.#tell()
  }

  /**
   * Waits until each run has asked a question or ended, so that only the seed decides what comes next. Then removes one question and
   * returns it. Returns undefined when all calls have ended. A session runs its calls one after the other. A request without a session does
   * not wait for other calls.
   */
  async next(below) {
    const isNext = ({ host, inSession }, index, calls) => !inSession || calls.findIndex((call) => call.host === host) === index
    while (this.#questions.length < this.#calls.filter(isNext).length) await this.#changed.promise
    // Questions arrive in any order, so they are sorted by their texts.
    this.#questions.sort((one, other) => (one.text < other.text ? -1 : 1))
    return this.#questions.splice(below(Math.max(this.#questions.length, 1)), 1)[0]
  }

  #tell() {
    this.#changed.resolve()
    this.#changed = deferred()
  }
}

/** The operations of a run, as code that contains a token. */
const OPERATIONS = {
  elicit: (token) => `fixture.elicit({ message: '${token}' })`,
  sample: (token) => `fixture.sample({ prompt: '${token}' })`,
  write: (token) => `fixture.write_note({ text: '${token}' })`,
}

/** Returns one call of a host: a run with some operations, and the list of its expected results. */
function planned(host, name, below) {
  const operations = Array.from({ length: 1 + below(3) }, (_, index) => {
    const kind = Object.keys(OPERATIONS)[below(3)]
    return { kind, token: `${name}-${index}-end` }
  })
  const each = operations.map(({ kind, token }) => `outcome(() => ${OPERATIONS[kind](token)})`)
  // A refused call throws, as calls of a model do.
  const outcome = 'const outcome = (call) => { try { return call() } catch (error) { return error.code } };'
  return { host, inSession: host.endsWith('2025-11-25'), operations, expected: [], code: `{ ${outcome} return [${each}] }` }
}

/**
 * Returns the next operation that asks a person. Once a person has answered 'this run' or 'no', later writes of the run do not ask: their
 * expected results are added, and they are skipped.
 */
function advance({ operations, expected, settled }) {
  while (settled && operations[expected.length]?.kind === 'write') expected.push(settled)
  return operations[expected.length]
}

/** Answers a question, and records the result that the asking call must get. */
function answer({ host, text }, calls, below, unique) {
  const call = calls.find(({ operations }) => operations.some(({ token }) => text.includes(token)))
  assert.equal(call?.host, host, `${host} was asked: ${text}`)
  const operation = advance(call)
  assert.ok(text.includes(operation.token), `asked for ${text} and not for ${operation.token}`)
  if (operation.kind === 'write') {
    const allow = ['this call', 'this run', 'no'][below(3)]
    const outcome = allow === 'no' ? 'ERR_CALL_DENIED' : 'noted'
    if (allow === 'this call') call.expected.push(outcome)
    else call.settled = outcome
    return { action: 'accept', content: { allow } }
  }
  if (operation.kind === 'sample') {
    const said = { role: 'assistant', content: { type: 'text', text: unique }, model: 'none' }
    call.expected.push(said)
    return said
  }
  const action = ['accept', 'decline', 'cancel'][below(3)]
  const given = action === 'accept' ? { action, content: { answer: unique } } : { action }
  call.expected.push(given)
  return given
}

/** Returns two of the hosts, in any order. */
function pair(names, below) {
  const rest = [...names]
  return [0, 1].map(() => rest.splice(below(rest.length), 1)[0])
}

/** Makes the calls of two hosts at once, and answers each question when the seed says so. */
async function round({ clients, table }, below, name) {
  const chosen = pair(Object.keys(clients), below)
  const calls = chosen.flatMap((host) =>
    Array.from({ length: CALLS_OF_A_HOST }, (_, index) => planned(host, `${name}-${host}-${index}`, below)),
  )
  table.begin(calls)
  const results = calls.map((call) => runs(clients[call.host], call.code).finally(() => table.end(call)))
  const all = Promise.all(results)
  all.catch(() => {})
  for (let count = 0; ; count += 1) {
    const question = await table.next(below)
    if (!question) break
    question.resolve(answer(question, calls, below, `${name}-answer-${count}-end`))
  }
  for (const [index, { structuredContent }] of (await all).entries()) {
    advance(calls[index])
    assert.deepEqual(structuredContent.value, calls[index].expected, JSON.stringify({ call: calls[index], structuredContent }))
  }
}

/**
 * Makes calls of all hosts at once that ask through a server of an older protocol, whose questions do not name their calls. Each host answers its
 * questions after as many turns of the event loop as the seed says. Returns the answers by host.
 */
async function crossed(clients, below, name) {
  const answers = {}
  const calls = Object.entries(clients).flatMap(([host, client]) => {
    answers[host] = []
    return Array.from({ length: 1 + below(3) }, async (_, index) => {
      for (let turns = below(20); turns > 0; turns -= 1) await new Promise(setImmediate)
      const token = `${name}-${host}-${index}-end`
      const { structuredContent } = await runs(client, `fixture.elicit({ message: '${token}' })`)
      const { value, error } = structuredContent
      if (error) return
      // The host of the call has answered, and with the text of this question.
      if (value.action === 'accept') assert.equal(value.content.answer, `${host} answers ${token}`)
      answers[host].push(value.action)
    })
  })
  await Promise.all(calls)
  return answers
}

test('A server of 2025-11-25 that asks for two hosts at once gets answers of the host whose call asked, or none', async (t) => {
  const below = numbers(SEED)
  const at = await approved(t, { fixture: fixture('--protocol', '2025-11-25', '--tools', 'elicit') })
  const { url } = await served(t, at)
  const [clients, wrong] = [{}, []]
  for (const era of Object.keys(ERAS)) {
    for (const name of ['a', 'b']) {
      const host = `host-${name}-${era}`
      const onElicit = async ({ message }) => {
        const [token] = /\S+-end/.exec(message)
        if (!token.includes(host)) wrong.push(`${host} was asked for ${token}`)
        for (let turns = below(20); turns > 0; turns -= 1) await new Promise(setImmediate)
        return { action: 'accept', content: { answer: `${host} answers ${token}` } }
      }
      clients[host] = await overHttp(t, url, { name: host, era, onElicit })
    }
  }
  const accepted = Object.fromEntries(Object.keys(clients).map((host) => [host, 0]))
  for (let count = 0; count < OLD_ROUNDS; count += 1) {
    const answers = await crossed(clients, below, `round${count}`)
    for (const [host, actions] of Object.entries(answers)) accepted[host] += actions.filter((action) => action === 'accept').length
  }
  assert.deepEqual(wrong, [], `with HYPERLIGHT_MCP_SEED=${SEED}`)
  for (const [host, count] of Object.entries(accepted)) assert.ok(count > 0, `${host} has answered ${count} questions`)
})

test('Two hosts that are asked at once get each answer where it belongs, in any order and in both eras', async (t) => {
  const below = numbers(SEED)
  // The server speaks this protocol, in which each question names the call that it belongs to.
  const at = await approved(t, { fixture: gated('--era', '2026', '--tools', 'elicit,sample,write_note') })
  const { url } = await served(t, at)
  const table = new Table()
  const clients = {}
  for (const era of Object.keys(ERAS)) {
    for (const name of ['a', 'b']) {
      const host = `host-${name}-${era}`
      const onElicit = ({ message }) => table.ask(host, message)
      const onSample = ({ messages }) => table.ask(host, JSON.stringify(messages))
      clients[host] = await overHttp(t, url, { name: host, era, onElicit, onSample })
    }
  }
  try {
    for (let count = 0; count < ROUNDS; count += 1) await round({ clients, table }, below, `round${count}`)
  } catch (error) {
    throw new Error(`with HYPERLIGHT_MCP_SEED=${SEED}: ${error.message}`, { cause: error })
  }
})
