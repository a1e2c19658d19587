// Follows a guide from its beginning to its end in an empty folder, as its reader would.
//
// In the guide, a comment before a block says what becomes of it:
//   <!-- file: notes.ts -->   it is written to that file; `~` is the home folder, which lies within the test's own
//   <!-- terminal: y y -->    its command runs at a terminal, where these answers are typed to the questions that the block shows
//   <!-- exit: 1 0 -->        its commands end with these codes; else each ends with 0
// Lines of `console` blocks that begin with `$ ` are run by bash, one shell a block; what follows each is all that it printed. There, `…` is
// anything within a line, and a line of `…` alone any number of lines. In a command, `…` is the digest that was printed last.
// Every block is one of these. Of the commands, `npm init` and `npm install` alone are not run: the test's folder has what they would install.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { ms, run, typed } from './support.mjs'

/** The time limit of one block. */
export const LIMIT = ms(120_000)

/** The blocks of a document in their order; throws for one that nothing would become of. */
export function blocks(text, name = 'a guide') {
  const found = []
  let notes = {}
  let open
  for (const [index, line] of text.split('\n').entries()) {
    const fence = /^\s*(`{3,}|~{3,})(.*)$/.exec(line)
    const note = /^<!-- (\w+): (.+) -->$/.exec(line)
    if (open && fence?.[1] === '```' && fence[2] === '') {
      found.push(open)
      open = undefined
    } else if (open) {
      open.lines.push(line)
    } else if (fence) {
      open = { line: index + 1, language: fence[2], lines: [], ...notes }
      notes = {}
      assert.match(line, /^```\w+$/, `${name}:${index + 1}: a block begins with three backticks and its language`)
      const known = open.language === 'console' ? open.file === undefined : open.file !== undefined && !open.terminal && !open.exit
      assert.ok(known, `${name}:${index + 1}: this block is neither run nor written`)
    } else if (note) {
      assert.match(note[1], /^(file|terminal|exit)$/, `${name}:${index + 1}: what is "${note[1]}"?`)
      notes[note[1]] = note[2]
    } else {
      assert.deepEqual(notes, {}, `${name}:${index + 1}: the comment above is followed by no block`)
      assert.ok(!line.includes('<!--'), `${name}:${index + 1}: a comment that is not understood`)
    }
  }
  assert.equal(open, undefined, 'the last block does not end')
  return found
}

/** The commands of a `console` block, each with the lines that it prints. */
function commands({ line, lines }, name) {
  const found = []
  for (const text of lines) {
    if (text.startsWith('$ ')) found.push({ command: text.slice(2), printed: [] })
    else if (found.length > 0) found.at(-1).printed.push(text)
    else assert.fail(`${name}:${line}: a console block begins with a command`)
  }
  return found
}

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')

/** Does an output look like these lines? */
export function looksLike(output, lines) {
  const pattern = lines.map((line) => (line.trim() === '…' ? '(?:.*\\n)*?' : `${line.split('…').map(escaped).join('.*')}\\n`)).join('')
  return new RegExp(`^${pattern}$`).test(output)
}

/** A terminal's text as it stands there at last: without colours, of what was written over a line only the last. */
const settled = (text) =>
  text
    // biome-ignore lint/suspicious/noControlCharactersInRegex: that is what a terminal is sent
    .replace(/\u001b\[1G|\u001b\[2?K/g, '\r')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the same
    .replace(/\u001b\[[0-9;?]*[A-Za-z]/g, '')
    .split('\n')
    .map((line) => line.slice(line.lastIndexOf('\r') + 1))
    .join('\n')

/** An output as lines, without blank ones around it. */
const tidy = (text) => (text.trim() === '' ? '' : `${text.replace(/[ \t]+$/gm, '').replace(/^\n+|\n+$/g, '')}\n`)

function write({ home, work }, { file, lines }) {
  const path = file.startsWith('~/') ? join(home, file.slice(2)) : join(work, file)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, `${lines.join('\n')}\n`)
}

/** Runs commands in one shell; what each printed, in the order in which it came, and its exit code. */
async function shell(t, { work, env }, lines) {
  const script = `exec 2>&1\n${lines.map((line) => `${line}\nprintf '\\036%d\\036' $?\n`).join('')}`
  const { stdout } = await run(t, 'bash', ['-c', script], { cwd: work, env, limit: LIMIT })
  const parts = stdout.split('\u001e')
  return lines.map((_, index) => ({ text: parts[2 * index] ?? '', code: Number(parts[2 * index + 1] ?? Number.NaN) }))
}

/** Runs a command at a terminal; the questions are the block's lines that end with the answers. */
async function terminal(t, { work, env }, { command, printed }, answers, where) {
  const rest = [...printed]
  const dialogue = answers.map((answer) => {
    const line = rest.splice(0, rest.findIndex((text) => text.endsWith(`] ${answer}`) || text.endsWith(`: ${answer}`)) + 1).at(-1)
    assert.ok(line, `${where}: no line shows the answer ${answer}`)
    return [line.slice(0, -answer.length).split('…').at(-1), `${answer}\n`]
  })
  const { text, code, unanswered } = await typed(t, command, dialogue, { cwd: work, env, limit: LIMIT })
  assert.equal(unanswered, 0, `${where}: not all was asked\n${text}`)
  return { text: settled(text), code }
}

/** Writes each file of a guide and runs each command, and compares what it prints. `at`: the home folder, the folder in it, and the environment. */
export async function follow(t, at, name, all) {
  let digest
  for (const block of all) {
    if (block.language !== 'console') {
      write(at, block)
      continue
    }
    const where = `${name}:${block.line}`
    const wanted = commands(block, name).filter(({ command }) => !/^npm (init|install)\b/.test(command))
    const codes = block.exit?.split(' ').map(Number) ?? wanted.map(() => 0)
    assert.equal(codes.length, wanted.length, `${where}: an exit code for each command`)
    const answers = block.terminal?.split(' ')
    assert.ok(!answers || wanted.length === 1, `${where}: one command at a terminal`)
    const run = async (lines) => {
      const filled = lines.map((line) => line.replace('…', () => digest ?? assert.fail(`${where}: no digest was printed`)))
      return answers ? [await terminal(t, at, { ...wanted[0], command: filled[0] }, answers, where)] : await shell(t, at, filled)
    }
    // A digest may be what the block's own command before has printed: then they are run one by one.
    const together = wanted.every(({ command }) => !command.includes('…'))
    const outcomes = together ? await run(wanted.map(({ command }) => command)) : []
    for (const [index, { command, printed }] of wanted.entries()) {
      const { text, code } = together ? outcomes[index] : (await run([command]))[0]
      digest = text.match(/\b[0-9a-f]{64}\b/g)?.at(-1) ?? digest
      const output = tidy(text)
      while (printed.at(-1) === '') printed.pop()
      assert.ok(looksLike(output, printed), `${where}: $ ${command}\nthe guide has\n${printed.join('\n')}\nand this came\n${output}`)
      assert.equal(code, codes[index], `${where}: the exit code of ${command}\n${output}`)
    }
  }
}
