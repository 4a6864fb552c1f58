// Numbers and times as people read them.
const SIMULATED = 1e8;

/** A time of day; of a simulation, whose clock begins at 0, the seconds since. */
export function clock(seconds) {
  if (seconds < SIMULATED) return `${seconds.toFixed(seconds < 100 ? 2 : 1)} s`;
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds === 0) return "0";
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(seconds < 0.0995 ? 1 : 0)} ms`;
  if (seconds < 99.5) return `${seconds.toFixed(seconds < 9.95 ? 2 : 1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function count(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  if (Math.abs(number) >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  if (Math.abs(number) >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  return Number.isInteger(number) ? String(number) : number.toFixed(number < 10 ? 2 : 1);
}

export const percent = (share) => (Number.isFinite(share) ? `${(share * 100).toFixed(share !== 0 && Math.abs(share) < 0.0995 ? 1 : 0)}%` : "–");

/** The share `q` of sorted numbers, interpolated; NaN of none. */
export function quantile(sorted, q) {
  if (!sorted.length) return NaN;
  const at = (sorted.length - 1) * q;
  const low = Math.floor(at);
  return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (at - low);
}

/** An id that fits in a cell. */
export const short = (id) => (id.length > 14 ? `${id.slice(0, 6)}…${id.slice(-5)}` : id);
