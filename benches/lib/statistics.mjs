// Medians and spreads: what a figure is made of.

export function median(values) {
  const sorted = values.filter(Number.isFinite).toSorted((a, b) => a - b)
  const middle = sorted.length / 2
  return sorted.length === 0 ? undefined : (sorted[Math.ceil(middle) - 1] + sorted[Math.floor(middle)]) / 2
}

/** The least value that so many of a hundred do not exceed. */
export function percentile(values, percent) {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(Math.ceil((sorted.length * percent) / 100) - 1, 0)]
}

/** The median, and the least and the most; nothing of no numbers. */
export function spread(values) {
  const finite = values.filter(Number.isFinite)
  return finite.length === 0 ? undefined : { median: median(finite), min: Math.min(...finite), max: Math.max(...finite) }
}

/**
 * What rounds of `{ value, reference }` come to. The ratio is the median of the rounds' own ratios: what the machine did in a round, it did
 * to both sides.
 */
export function summary(rounds) {
  return {
    value: spread(rounds.map(({ value }) => value)),
    reference: spread(rounds.map(({ reference }) => reference)),
    ratio: spread(rounds.map(({ value, reference, ratio }) => ratio ?? value / reference)),
  }
}
