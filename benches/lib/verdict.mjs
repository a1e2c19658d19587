// The rows of `npm run bench` with their goals, and the comparison of a measurement with its goal.
import { median, summary } from './statistics.mjs'

const atMost = (limit, text) => ({ kind: 'atMost', limit, text: `at most ${text}` })
const atLeast = (limit, text) => ({ kind: 'atLeast', limit, text: `at least ${text}` })

/**
 * `reference` names the value by which `value` is divided, or with which it is compared. `group` names the group that measures the row. A
 * goal may differ by guest.
 */
export const ROWS = [
  {
    key: 'toolCall',
    group: 'calls',
    title: 'own cost of a tool call (less rmcp alone)',
    unit: 'us',
    reference: "the baseline's",
    goal: atMost(1 / 5, '1/5'),
  },
  { key: 'emptyCall', group: 'calls', title: 'empty host call', unit: 'us', reference: "the baseline's", goal: atMost(1 / 3, '1/3') },
  {
    key: 'busyCall',
    group: 'busy',
    title: "tool call while Node's main thread is busy 80 %",
    unit: 'us',
    reference: 'while it is idle',
    goal: atMost(1.2, '1.2'),
  },
  {
    key: 'floods',
    group: 'floods',
    title: "another server's call beside four that flood, the worst way",
    unit: 'ms',
    reference: 'beside four that compute as much and say nothing',
    goal: atMost(3, '3'),
  },
  {
    key: 'warmRun',
    group: 'start',
    title: 'empty run, warm',
    unit: 'ms',
    reference: 'cold start of a sandbox',
    goal: { ring3: atMost(1 / 10, '1/10'), standard: atMost(1 / 50, '1/50') },
  },
  {
    key: 'parallel',
    group: 'parallel',
    title: '100 calls of 50 ms in parallel',
    unit: 'ms',
    reference: 'one call',
    goal: atMost(1.5, '1.5'),
  },
  {
    key: 'throughput',
    group: 'throughput',
    title: 'two sandboxes that compute, on two cores',
    unit: 'runs/s',
    reference: 'one sandbox',
    goal: atLeast(1.8, '1.8'),
  },
  {
    key: 'serveRun',
    group: 'serve',
    title: 'run of ten calls, served over HTTP',
    unit: 'ms',
    reference: 'ten calls made directly, and 10 ms',
    goal: atMost(1, '1'),
  },
  {
    key: 'serveTail',
    group: 'serve',
    title: 'the same, as many clients as cores: the slowest hundredth',
    unit: 'ms',
    reference: 'its median',
    goal: atMost(5, '5'),
  },
  {
    key: 'serveLoad',
    group: 'serve',
    title: '64 clients for a minute: memory in the last third',
    unit: 'MiB',
    reference: 'from 10 to 30 s',
    goal: atMost(1.1, '1.1'),
  },
  {
    key: 'bootCall',
    group: 'boot',
    title: 'calls of a booted tool, one after the other',
    unit: 'calls/s',
    reference: "the same code in Node's vm",
    goal: atLeast(1 / 10, '1/10'),
  },
  {
    key: 'bootMany',
    group: 'boot',
    title: 'the same, 64 callers at once',
    unit: 'calls/s',
    reference: 'one caller',
    goal: atLeast(1, '1'),
  },
  {
    key: 'bootStart',
    group: 'boot',
    title: 'boot --locked, from its start to its address',
    unit: 'ms',
    reference: '1,000 ms',
    goal: atMost(1, '1'),
  },
  {
    key: 'boxStart',
    group: 'boxes',
    title: 'start of a server in a box, to its first answer',
    unit: 'ms',
    reference: 'without a box, and 30 ms',
    goal: atMost(1, '1'),
  },
  {
    key: 'boxCall',
    group: 'boxes',
    title: 'tool call of a server in a box',
    unit: 'us',
    reference: 'without a box',
    goal: atMost(1.05, '1.05'),
  },
  {
    key: 'boxDownload',
    group: 'boxes',
    title: 'download through the border of a box',
    unit: 'MiB/s',
    reference: 'without a box',
    goal: atLeast(0.7, '0.7'),
  },
  {
    key: 'manyList',
    group: 'registry',
    title: 'the first servers() with 10,000 servers in the store',
    unit: 'ms',
    reference: '20 ms',
    goal: atMost(1, '1'),
  },
  {
    key: 'manySearch',
    group: 'registry',
    title: 'the first search with 10,000 servers',
    unit: 'ms',
    reference: '200 ms',
    goal: atMost(1, '1'),
  },
  {
    key: 'manyCall',
    group: 'registry',
    title: 'tool call with 10,000 servers',
    unit: 'us',
    reference: 'with one',
    goal: atMost(1.1, '1.1'),
  },
  {
    key: 'memoryIdle',
    group: 'memory',
    title: 'memory of a further sandbox, idle',
    unit: 'MiB',
    reference: 'a booted one',
    goal: atMost(1 / 20, '1/20'),
  },
  {
    key: 'memoryRan',
    group: 'memory',
    title: 'memory of a further sandbox, after a small run',
    unit: 'MiB',
    reference: 'a booted one',
    goal: atMost(1 / 4, '1/4'),
  },
  {
    key: 'firstResult',
    group: 'first',
    title: 'new process to first result, snapshot kept',
    unit: 'ms',
    reference: "2 warm runs + Node's start",
    goal: atMost(1, '1'),
  },
  {
    key: 'text',
    group: 'bytes',
    title: 'result of 1 MiB, text',
    unit: 'MiB/s',
    reference: "the baseline's",
    goal: atLeast(4, '4'),
  },
  {
    key: 'bytes',
    group: 'bytes',
    title: 'result of 1 MiB, Uint8Array',
    unit: 'MiB/s',
    reference: "the baseline's",
    goal: atLeast(4, '4'),
  },
  {
    key: 'copies',
    group: 'copies',
    title: 'copies of such a result in our own code',
    unit: '',
    reference: 'as docs/PERFORMANCE.md lists them',
    goal: atMost(3, '3'),
  },
  {
    key: 'growth',
    group: 'growth',
    title: "instructions of a call on the host's path: the most",
    unit: '',
    reference: 'the least',
    goal: atMost(1.05, '1.05'),
  },
]

export const goalOf = ({ goal }, guest) => goal[guest] ?? goal.ring3 ?? goal

/** Returns whether a ratio meets its goal. */
export function meets({ kind, limit }, ratio) {
  return kind === 'atMost' ? ratio <= limit : ratio >= limit
}

/**
 * Returns a row of the result: the measurement (`{ rounds, details }`, or `{ unavailable }` with the reason), and whether it meets its
 * goal. A row that could not be measured does not meet its goal.
 */
export function judged(row, measured, guest) {
  const goal = goalOf(row, guest)
  const { key, title, unit, reference } = row
  const { rounds = [], details = [], unavailable } = measured
  const head = { key, title, unit, referenceTitle: reference, goal, details: details.map(detail) }
  if (unavailable !== undefined || rounds.length === 0) {
    return { ...head, verdict: 'not available', why: unavailable ?? 'nothing was measured' }
  }
  const figures = summary(rounds)
  return { ...head, ...figures, verdict: meets(goal, figures.ratio.median) ? 'ok' : 'missed', rounds }
}

const detail = ({ values, ...rest }) => ({ ...rest, value: median(values) })

/** Returns whether each row meets its goal. */
export const allMet = (rows) => rows.every(({ verdict }) => verdict === 'ok')
