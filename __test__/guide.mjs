// Follows a guide from its beginning to its end in an empty folder, as its reader would.
//
// In the guide, a comment before a block says how the block is used:
//  <!-- file: notes.ts -->   the block is written to this file; `~` is the home folder, which is in the folder of the test
//  <!-- terminal: y y -->    its command runs at a terminal, where these answers are typed to the questions that the block shows
//  <!-- exit: 1 0 -->        its commands end with these codes; without this comment, each ends with 0
// Bash runs the lines of `console` blocks that begin with `$ `, in one shell for each block. The lines after a command are everything that
// it prints. There, `…` matches any text within a line, and a line with only `…` matches any number of lines. In a command, `…` is the
// digest that was printed last. Every block must have one of these uses. Only the commands `npm init` and `npm install` are not run: the
// test's folder has what they would install.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { ms, run, typed } from './support.mjs'

/** The time limit of one block. */
export const LIMIT = ms(120_000)

/** Returns the blocks of a document in their order. Throws an error for a block that has no use. */
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

/** Returns the commands of a `console` block, each with the lines that it prints. */
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

/** Returns whether an output matches these lines. */
export function looksLike(output, lines) {
  const pattern = lines.map((line) => (line.trim() === '…' ? '(?:.*\\n)*?' : `${line.split('…').map(escaped).join('.*')}\\n`)).join('')
  return new RegExp(`^${pattern}$`).test(output)
}

/** Returns the text that a terminal shows at the end: without colours, and with only the last version of a line that was overwritten. */
const settled = (text) =>
  text
    // biome-ignore lint/suspicious/noControlCharactersInRegex: that is what a terminal is sent
    .replace(/\u001b\[1G|\u001b\[2?K/g, '\r')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the same
    .replace(/\u001b\[[0-9;?]*[A-Za-z]/g, '')
    .split('\n')
    .map((line) => line.slice(line.lastIndexOf('\r') + 1))
    .join('\n')

/** Returns an output as lines, without blank lines around it. */
const tidy = (text) => (text.trim() === '' ? '' : `${text.replace(/[ \t]+$/gm, '').replace(/^\n+|\n+$/g, '')}\n`)

function write({ home, work }, { file, lines }) {
  const path = file.startsWith('~/') ? join(home, file.slice(2)) : join(work, file)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, `${lines.join('\n')}\n`)
}

/** Runs commands in one shell. Returns each command's output, in the order in which it was written, and its exit code. */
async function shell(t, { work, env }, lines) {
  const script = `exec 2>&1\n${lines.map((line) => `${line}\nprintf '\\036%d\\036' $?\n`).join('')}`
  const { stdout } = await run(t, 'bash', ['-c', script], { cwd: work, env, limit: LIMIT })
  const parts = stdout.split('\u001e')
  return lines.map((_, index) => ({ text: parts[2 * index] ?? '', code: Number(parts[2 * index + 1] ?? Number.NaN) }))
}

/** Runs a command at a terminal. The questions are the lines of the block that end with the answers. */
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

/**
 * Follows a guide: writes each file, runs each command, and compares its output. `at` has the home folder, the working folder in it, and
 * the environment.
 */
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
    // A command may need a digest that an earlier command of the block prints. Then the commands are run one by one.
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
