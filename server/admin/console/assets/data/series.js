// An engine's figures over the last hour, a bucket a second.
import { quantile } from "../lib/format.js";

const BUCKETS = 3600;
const COUNTERS = ["output_tokens", "computed_tokens", "preemptions", "swap_outs"];
const SAMPLES = 64;

export class Series {
  constructor() {
    this.buckets = [];
    this.ended = [];
  }

  /** Takes an engine's `stats`, whose counters grow from its start; a smaller one is of another engine. */
  add(at, stats) {
    const bucket = this.#bucketOf(at);
    if (this.last) {
      for (const name of COUNTERS) {
        const [now, before] = [stats[name] ?? 0, this.last[name] ?? 0];
        bucket[name] += now >= before ? now - before : now;
      }
    }
    this.last = stats;
    bucket.running = stats.running ?? 0;
    bucket.waiting = stats.waiting ?? 0;
    bucket.kv = stats.kv_capacity ? 1 - (stats.kv_free ?? 0) / stats.kv_capacity : 0;
  }

  /** Takes the timings of a request that ended. */
  addEnded(timings, at) {
    const bucket = this.#bucketOf(at);
    if (timings.ttft !== null && bucket.ttft.length < SAMPLES) bucket.ttft.push(timings.ttft);
    if (timings.tpot !== null && bucket.tpot.length < SAMPLES) bucket.tpot.push(timings.tpot);
    this.ended.push({ at, ...timings });
    if (this.ended.length > 4000) this.ended.splice(0, 1000);
  }

  #bucketOf(at) {
    const second = Math.floor(at);
    const last = this.buckets.at(-1);
    if (last && last.second >= second) return last;
    const { running = 0, waiting = 0, kv = 0 } = last ?? {};
    const bucket = { second, running, waiting, kv, ttft: [], tpot: [] };
    for (const name of COUNTERS) bucket[name] = 0;
    this.buckets.push(bucket);
    if (this.buckets.length > BUCKETS) this.buckets.splice(0, this.buckets.length - BUCKETS);
    return bucket;
  }
}

/** Buckets of several engines, put together in stretches of `seconds`, from `from` to `to`: one figure a stretch. */
export function gathered(all, from, to, seconds) {
  const stretches = new Map();
  for (const series of all) {
    const own = new Map();
    for (const bucket of series.buckets) {
      if (bucket.second < from - seconds || bucket.second > to) continue;
      const start = Math.floor(bucket.second / seconds) * seconds;
      if (!own.has(start)) own.set(start, []);
      own.get(start).push(bucket);
    }
    for (const [start, buckets] of own) addStretch(stretches, start, buckets);
  }
  return [...stretches.values()].sort((a, b) => a.start - b.start).map((stretch) => figures(stretch, seconds));
}

function addStretch(stretches, start, buckets) {
  if (!stretches.has(start)) stretches.set(start, { start, running: 0, waiting: 0, kv: [], ttft: [], tpot: [], sums: {} });
  const stretch = stretches.get(start);
  const mean = (name) => buckets.reduce((sum, bucket) => sum + bucket[name], 0) / buckets.length;
  stretch.running += mean("running");
  stretch.waiting += mean("waiting");
  stretch.kv.push(mean("kv"));
  for (const name of COUNTERS) stretch.sums[name] = (stretch.sums[name] ?? 0) + buckets.reduce((sum, one) => sum + one[name], 0);
  for (const bucket of buckets) {
    stretch.ttft.push(...bucket.ttft);
    stretch.tpot.push(...bucket.tpot);
  }
}

function figures(stretch, seconds) {
  const { start, running, waiting, kv, sums } = stretch;
  const sorted = (values) => values.sort((a, b) => a - b);
  const [ttft, tpot] = [sorted(stretch.ttft), sorted(stretch.tpot)];
  return {
    at: start,
    running,
    waiting,
    kv: Math.max(...kv),
    output: sums.output_tokens / seconds,
    prefill: Math.max(0, sums.computed_tokens - sums.output_tokens) / seconds,
    preemptions: sums.preemptions,
    ttft: quantile(ttft, 0.5),
    ttft95: quantile(ttft, 0.95),
    tpot: quantile(tpot, 0.5),
    tpot95: quantile(tpot, 0.95),
  };
}
