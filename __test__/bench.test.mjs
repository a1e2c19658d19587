// Tests of the benchmark's own functions (statistics, goals, the table, the comparison of two runs) and of its command line. They measure
// nothing.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { apart, compared, differences } from '../benches/lib/compare.mjs'
import { copies, instructions, perCall } from '../benches/lib/reading.mjs'
import { median, percentile, spread, summary } from '../benches/lib/statistics.mjs'
import { aligned, figure, table } from '../benches/lib/table.mjs'
import { allMet, goalOf, judged, meets, ROWS } from '../benches/lib/verdict.mjs'
import { folder, root, runSync } from './support.mjs'

const rowOf = (key) => ROWS.find((row) => row.key === key)
const rounds = (...pairs) => pairs.map(([value, reference]) => ({ value, reference }))
const machine = { cpu: 'a processor', cpus: 2, node: 'v20', guest: 'ring3', emulated: false }
const options = { rounds: 2, calls: 10, growth: 4000 }

/** Returns a run in the form that the benchmark writes, with one row. */
const runOf = (...pairs) => ({
  format: 2,
  version: '1.0.0',
  date: '2026-01-01T00:00:00.000Z',
  machine,
  options,
  rows: [judged(rowOf('emptyCall'), { rounds: rounds(...pairs) }, 'ring3')],
})

describe('statistics of the benchmark', () => {
  it('takes the middle of an odd number of values, and the mean of the middle two of an even one', () => {
    assert.equal(median([9, 1, 5]), 5)
    assert.equal(median([4, 1, 3, 2]), 2.5)
  })

  it('takes for a percentile the least value that so many do not exceed', () => {
    const hundred = Array.from({ length: 100 }, (_, index) => 100 - index)
    assert.deepEqual([percentile(hundred, 50), percentile(hundred, 99), percentile(hundred, 100), percentile([7], 1)], [50, 99, 100, 7])
  })

  it('knows nothing of no values, and ignores what is none', () => {
    assert.equal(median([]), undefined)
    assert.equal(spread([undefined, Number.NaN]), undefined)
    assert.deepEqual(spread([undefined, 3, 1]), { median: 2, min: 1, max: 3 })
  })

  it('takes the ratio round by round, so that a slow round slows both sides', () => {
    const { value, reference, ratio } = summary(rounds([1, 10], [100, 1000], [2, 20]))
    assert.equal(value.median, 2)
    assert.equal(reference.median, 20)
    assert.deepEqual(ratio, { median: 0.1, min: 0.1, max: 0.1 })
  })

  it('takes a ratio that a round brings along', () => {
    assert.equal(summary([{ ratio: 3 }]).ratio.median, 3)
  })
})

describe('goals of the benchmark', () => {
  it('holds up to and with the limit', () => {
    assert.ok(meets({ kind: 'atMost', limit: 1.5 }, 1.5))
    assert.ok(!meets({ kind: 'atMost', limit: 1.5 }, 1.51))
    assert.ok(meets({ kind: 'atLeast', limit: 4 }, 4))
    assert.ok(!meets({ kind: 'atLeast', limit: 4 }, 3.99))
  })

  it('asks more of a warm run where a boot is emulated', () => {
    assert.equal(goalOf(rowOf('warmRun'), 'ring3').text, 'at most 1/10')
    assert.equal(goalOf(rowOf('warmRun'), 'standard').text, 'at most 1/50')
    assert.equal(goalOf(rowOf('emptyCall'), 'standard').text, 'at most 1/3')
  })

  it('judges by the median of the ratios', () => {
    const row = judged(rowOf('emptyCall'), { rounds: rounds([1, 10], [1, 10], [9, 10]) }, 'ring3')
    assert.equal(row.verdict, 'ok')
    assert.equal(judged(rowOf('emptyCall'), { rounds: rounds([4, 10]) }, 'ring3').verdict, 'missed')
  })

  it('counts as missed what cannot be measured, and says why', () => {
    const row = judged(rowOf('parallel'), { unavailable: 'there is no .async' }, 'ring3')
    assert.deepEqual([row.verdict, row.why], ['not available', 'there is no .async'])
    assert.ok(!allMet([row]))
    assert.equal(judged(rowOf('parallel'), {}, 'ring3').verdict, 'not available')
  })

  it('keeps what stands beside a row, by its median', () => {
    const details = [{ title: 'alone', unit: 'us', values: [3, 1, 2] }]
    assert.deepEqual(judged(rowOf('parallel'), { unavailable: 'no', details }, 'ring3').details, [{ title: 'alone', unit: 'us', value: 2 }])
  })

  it('has a key for each row, and no key twice', () => {
    assert.equal(new Set(ROWS.map(({ key }) => key)).size, ROWS.length)
  })
})

describe('the table of the benchmark', () => {
  it('writes as many digits as a figure is worth', () => {
    assert.deepEqual([1234.5, 12.34, 1.234, 0.01234, undefined].map(figure), ['1235', '12.3', '1.23', '0.0123', '-'])
  })

  it('lines up its columns, and lets a remark be as long as it likes', () => {
    assert.deepEqual(aligned([['a', '1'], ['long', '22'], ['a remark that is longer']], [1]), [
      'a      1',
      'long  22',
      'a remark that is longer',
    ])
  })

  it('has a line a row with figure, reference, ratio, goal and verdict, and its reasons and details below', () => {
    const met = judged(rowOf('emptyCall'), { rounds: rounds([50, 200]), details: [{ title: 'beside', unit: 'us', values: [7] }] }, 'ring3')
    const missing = judged(rowOf('growth'), { unavailable: 'not built' }, 'ring3')
    const [, first, detail, second, why] = table([met, missing])
    assert.match(first, /^empty host call : the baseline's +50\.0 us +200 us +0\.25 +at most 1\/3 +ok$/)
    assert.match(detail, /^ {4}beside +7\.00 us$/)
    assert.match(second, / - +- +- +at most 1\.05 +not available$/)
    assert.equal(why, '    not built')
  })
})

describe('two runs of the benchmark', () => {
  const marks = (then, now) => compared(then, now).map(({ mark }) => mark)

  it('are as different as their rounds lie apart', () => {
    assert.ok(apart({ median: 2, min: 1, max: 3 }, { median: 5, min: 4, max: 6 }))
    assert.ok(!apart({ median: 2, min: 1, max: 4 }, { median: 5, min: 4, max: 6 }))
    assert.ok(!apart({ median: 1000, min: 1000, max: 1000 }, { median: 1001, min: 1001, max: 1001 }))
    assert.ok(!apart(undefined, { median: 1, min: 1, max: 1 }))
  })

  it('differ in nothing within noise', () => {
    assert.deepEqual(marks(runOf([20, 100], [30, 100]), runOf([25, 100], [35, 100])), [''])
  })

  it('say what became better and what worse', () => {
    assert.deepEqual(marks(runOf([20, 100], [30, 100]), runOf([5, 100], [6, 100])), ['better'])
    assert.deepEqual(marks(runOf([5, 100], [6, 100]), runOf([20, 100], [30, 100])), ['WORSE'])
  })

  it('say it of the figure alone where both sides moved together', () => {
    assert.deepEqual(marks(runOf([20, 100], [30, 150]), runOf([5, 25], [6, 30])), ['figure better'])
  })

  it('say which goals are met now, and which no longer', () => {
    assert.deepEqual(marks(runOf([20, 100]), runOf([90, 100])), ['WORSE, ok -> missed'])
  })

  it('know rows that only one of them has', () => {
    const empty = { ...runOf(), rows: [] }
    assert.deepEqual(marks(empty, runOf([20, 100])), ['not measured -> ok'])
    assert.deepEqual(marks(runOf([20, 100]), empty), ['ok -> not measured'])
  })

  it('say what makes them hard to compare', () => {
    const other = { ...runOf(), machine: { ...machine, node: 'v22' } }
    assert.deepEqual(differences(runOf(), runOf()), [])
    assert.deepEqual(differences(runOf(), other), ['Node: v20, now v22'])
  })
})

describe('what the benchmark reads', () => {
  const list =
    '# T\n\n## Copies\n\n| place | text | bytes |\n|---|---|---|\n| a | 1 | 1 |\n| b, of `x` | 1 | 0 |\n\n## Next\n\n| c | 5 | 5 |\n'

  it('is the list of copies of its own section, and no other', () => {
    assert.deepEqual(copies(list), { text: 2, bytes: 1 })
  })

  it('is nothing where none are listed', () => {
    assert.equal(copies('# T\n'), undefined)
    assert.equal(copies('## Copies\n\n| place | text | bytes |\n|---|---|---|\n'), undefined)
  })

  it('is the count that callgrind gives at its end', () => {
    assert.equal(instructions('==1== Events    : Ir\n==1== Collected : 1234567\n'), 1234567)
    assert.throws(() => instructions('valgrind: no such program'), /told no count/)
  })

  it('is what a further call costs', () => {
    assert.equal(perCall([1, 1000], [101, 6000]), 50)
  })
})

describe("the benchmark's command line", () => {
  const bench = (...args) => runSync(process.execPath, [join(root, 'benches/bench.mjs'), ...args])

  function files(t, ...runs) {
    const path = folder(t)
    return runs.map((run, index) => {
      const file = join(path, `${index}.json`)
      writeFileSync(file, typeof run === 'string' ? run : JSON.stringify(run))
      return file
    })
  }

  it('compares two files, and is content where every goal is met', (t) => {
    const [then, now] = files(t, runOf([30, 100]), runOf([10, 100]))
    const { status, stdout } = bench('--compare', then, '--from', now)
    assert.equal(status, 0)
    assert.match(stdout, /every goal is met/)
    assert.match(stdout, /^empty host call +30\.0 us +10\.0 us +0\.33 .* better$/m)
  })

  it('ends with 1 where a goal is missed', (t) => {
    const [then, now] = files(t, runOf([30, 100]), runOf([90, 100]))
    const { status, stdout } = bench('--compare', then, '--from', now)
    assert.equal(status, 1)
    assert.match(stdout, /1 of 1 goals missed: emptyCall/)
  })

  it('ends with 2, and says which, for what it does not understand', (t) => {
    const [other, broken] = files(t, { results: {} }, 'no JSON')
    const refused = (said, ...args) => {
      const { status, stderr } = bench(...args)
      assert.match(stderr, said)
      assert.equal(status, 2)
    }
    refused(/no row "nonsense"; there are: toolCall, /, '--only', 'toolCall,nonsense')
    refused(/--rounds is a whole number from 1/, '--rounds', '0')
    refused(/--growth is a whole number from 4000/, '--growth', '10')
    refused(/--guest is one of auto, standard, ring3/, '--guest', 'other')
    refused(/--from needs --compare/, '--from', other)
    refused(/is not what this benchmark writes \(format missing/, '--compare', other, '--from', other)
    refused(/1\.json: /, '--compare', broken, '--from', broken)
    refused(/Unknown option '--nonsense'/, '--nonsense')
  })
})
