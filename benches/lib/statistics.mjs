// Medians and spreads of values.

export function median(values) {
  const sorted = values.filter(Number.isFinite).toSorted((a, b) => a - b)
  const middle = sorted.length / 2
  return sorted.length === 0 ? undefined : (sorted[Math.ceil(middle) - 1] + sorted[Math.floor(middle)]) / 2
}

/** Returns the smallest value of the list that at least `percent` percent of the values do not exceed. */
export function percentile(values, percent) {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(Math.ceil((sorted.length * percent) / 100) - 1, 0)]
}

/** Returns the median, the smallest and the largest value. Returns undefined if there are no numbers. */
export function spread(values) {
  const finite = values.filter(Number.isFinite)
  return finite.length === 0 ? undefined : { median: median(finite), min: Math.min(...finite), max: Math.max(...finite) }
}

/**
 * Summarises rounds of `{ value, reference }`. The ratio is the median of the rounds' own ratios, because the state of the machine in a
 * round affects both sides.
 */
export function summary(rounds) {
  return {
    value: spread(rounds.map(({ value }) => value)),
    reference: spread(rounds.map(({ reference }) => reference)),
    ratio: spread(rounds.map(({ value, reference, ratio }) => ratio ?? value / reference)),
  }
}
