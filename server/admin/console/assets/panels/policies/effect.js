// How two samples' means differ, with Welch's interval: samples need not be of one size, nor vary alike.
const NORMAL = 1.96;

/** Means, the change as a share of `before`, and its 95% interval; null where there is too little to tell. */
export function compared(before, after) {
  const [one, two] = [moments(before), moments(after)];
  if (!one || !two || one.mean === 0) return null;
  const error = Math.sqrt(one.error + two.error);
  const freedom = (one.error + two.error) ** 2 / (one.error ** 2 / (one.size - 1) + two.error ** 2 / (two.size - 1) || 1);
  const reach = (quantileOfT(freedom) * error) / one.mean;
  const change = two.mean / one.mean - 1;
  return { before: one.mean, after: two.mean, change, low: change - reach, high: change + reach };
}

function moments(values) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  if (known.length < 2) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const variance = known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (known.length - 1);
  return { mean, size: known.length, error: variance / known.length };
}

/** Student's t at 97.5%, by Cornish and Fisher's expansion: to 1% from 4 degrees of freedom on. */
function quantileOfT(freedom) {
  const v = Math.max(2, freedom || 2);
  const z = NORMAL;
  return z + (z ** 3 + z) / (4 * v) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * v ** 2) + (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * v ** 3);
}
