// An engine's figures over the last hour, a second each: as much room from the start as it ever takes.
import { quantile } from "../lib/format.js";

const SECONDS = 3600;
const COUNTERS = ["output_tokens", "computed_tokens", "preemptions", "swap_outs"];
const GAUGES = ["running", "waiting", "kv"];
const GIVEN = ["ttft", "ttft95", "tpot", "tpot95"];
const LATENCIES = ["ttft", "tpot"];
/** Latencies that are kept of each second: of more, any, each as likely as the others. */
const SAMPLES = 16;
/** Requests that ended, of which the latest are kept. */
const ENDED = 4096;

const table = (names, size, value) => Object.fromEntries(names.map((name) => [name, new Float32Array(size).fill(value)]));

export class Series {
  constructor() {
    this.first = this.last = this.stats = null;
    /** The second that each place has; those of an hour before are overwritten. */
    this.held = new Float64Array(SECONDS).fill(-1);
    this.values = table([...COUNTERS, ...GAUGES], SECONDS, 0);
    /** Latencies of each second, and how many there were. */
    this.samples = table(LATENCIES, SECONDS * SAMPLES, NaN);
    this.sampled = table(LATENCIES, SECONDS, 0);
    /** What the server kept of seconds before this page was opened. */
    this.given = table(GIVEN, SECONDS, NaN);
    this.ends = { at: new Float64Array(ENDED), ...table([...LATENCIES, "whole"], ENDED, NaN) };
    this.ended = 0;
  }

  /** Takes an engine's `stats`, whose counters grow from its start; a smaller one is of another engine. */
  add(at, stats) {
    const place = this.#placeOf(at);
    if (this.stats) {
      for (const name of COUNTERS) {
        const [now, before] = [stats[name] ?? 0, this.stats[name] ?? 0];
        this.values[name][place] += now >= before ? now - before : now;
      }
    }
    this.stats = stats;
    this.values.running[place] = stats.running ?? 0;
    this.values.waiting[place] = stats.waiting ?? 0;
    this.values.kv[place] = stats.kv_capacity ? 1 - (stats.kv_free ?? 0) / stats.kv_capacity : 0;
  }

  /** What is counted until the next report is not of the second in which that comes; the server has kept it. */
  interrupt() {
    this.stats = null;
  }

  /** Takes a latency of one request: `ttft` when its first token came, `tpot` when it ended. */
  sample(name, value, at) {
    const place = this.#placeOf(at);
    const before = this.sampled[name][place]++;
    const sample = before < SAMPLES ? before : Math.floor(Math.random() * (before + 1));
    if (sample < SAMPLES) this.samples[name][place * SAMPLES + sample] = value;
  }

  /** Takes the timings of a request that ended. */
  addEnded(timings, at) {
    if (timings.tpot !== null) this.sample("tpot", timings.tpot, at);
    const end = this.ended++ % ENDED;
    this.ends.at[end] = at;
    for (const name of [...LATENCIES, "whole"]) this.ends[name][end] = timings[name] ?? NaN;
  }

  /** The latencies that are kept of a second. */
  samplesOf(name, place) {
    const first = place * SAMPLES;
    return this.samples[name].subarray(first, first + Math.min(SAMPLES, this.sampled[name][place]));
  }

  /** Requests that ended from `from` on: [{at, ttft, tpot, whole}, …], NaN where it is not known. */
  endedFrom(from) {
    const found = [];
    const { at, ttft, tpot, whole } = this.ends;
    for (let end = 0; end < Math.min(ENDED, this.ended); end += 1) {
      if (at[end] >= from) found.push({ at: at[end], ttft: ttft[end], tpot: tpot[end], whole: whole[end] });
    }
    return found;
  }

  /** Takes what the server kept: points of `seconds` each. What this page has seen itself stays. */
  addPast(points, seconds) {
    const latest = Math.max(this.last ?? 0, Math.floor(points.at(-1).at) + seconds);
    for (const point of points) {
      const begins = Math.floor(point.at);
      for (let second = begins; second < begins + seconds && this.held[second % SECONDS] !== second; second += 1) {
        if (second > latest - SECONDS) this.#putPast(second, point, seconds);
      }
    }
  }

  #putPast(second, point, seconds) {
    const place = second % SECONDS;
    this.held[place] = second;
    for (const name of COUNTERS) this.values[name][place] = (point[name] ?? 0) / seconds;
    for (const name of GAUGES) this.values[name][place] = point[name] ?? 0;
    for (const name of GIVEN) this.given[name][place] = point[name] ?? NaN;
    this.first = Math.min(this.first ?? second, second);
    this.last = Math.max(this.last ?? second, second);
  }

  /** The place of a time; one before the last that was told of counts as that. */
  #placeOf(at) {
    const second = Math.max(this.last ?? 0, Math.floor(at));
    const place = second % SECONDS;
    if (this.held[place] === second) return place;
    this.held[place] = second;
    for (const name of COUNTERS) this.values[name][place] = 0;
    for (const name of GAUGES) this.values[name][place] = this.last === null ? 0 : this.values[name][this.last % SECONDS];
    for (const name of GIVEN) this.given[name][place] = NaN;
    for (const name of LATENCIES) this.sampled[name][place] = 0;
    this.first = Math.max(this.first ?? second, second - SECONDS + 1);
    this.last = second;
    return place;
  }

  /** Calls with the place of each second that is known, of those from `from` to `to`. */
  each(from, to, call) {
    if (this.first === null) return;
    for (let second = Math.max(this.first, Math.ceil(from)); second <= Math.min(to, this.last); second += 1) {
      const place = second % SECONDS;
      if (this.held[place] === second) call(place, second);
    }
  }

  /** The sum of a counter over some seconds. */
  sum(name, from, to) {
    let sum = 0;
    this.each(from, to, (place) => (sum += this.values[name][place]));
    return sum;
  }
}

/** Figures of several engines, put together in stretches of `seconds`, from `from` to `to`. */
export function gathered(all, from, to, seconds) {
  const stretches = new Map();
  for (const series of all) {
    const own = new Map();
    series.each(from - seconds, to, (place, second) => {
      const start = Math.floor(second / seconds) * seconds;
      if (!own.has(start)) own.set(start, []);
      own.get(start).push(place);
    });
    for (const [start, places] of own) addStretch(stretches, start, series, places);
  }
  return [...stretches.values()].sort((a, b) => a.start - b.start).map((stretch) => figures(stretch, seconds));
}

function addStretch(stretches, start, series, places) {
  const { values, given } = series;
  if (!stretches.has(start)) stretches.set(start, { start, running: 0, waiting: 0, kv: [], ttft: [], tpot: [], sums: {}, given: [] });
  const stretch = stretches.get(start);
  const sum = (name) => places.reduce((all, place) => all + values[name][place], 0);
  stretch.running += sum("running") / places.length;
  stretch.waiting += sum("waiting") / places.length;
  stretch.kv.push(sum("kv") / places.length);
  for (const name of COUNTERS) stretch.sums[name] = (stretch.sums[name] ?? 0) + sum(name);
  for (const place of places) {
    for (const name of LATENCIES) stretch[name].push(...series.samplesOf(name, place));
    if (!Number.isNaN(given.ttft[place]) || !Number.isNaN(given.tpot[place])) stretch.given.push(Object.fromEntries(GIVEN.map((name) => [name, given[name][place]])));
  }
}

function figures(stretch, seconds) {
  const { start, running, waiting, kv, sums, given } = stretch;
  const sorted = (values) => values.sort((a, b) => a - b);
  const [ttft, tpot] = [sorted(stretch.ttft), sorted(stretch.tpot)];
  const told = (name, values, q) => (values.length ? quantile(values, q) : mean(given.map((one) => one[name])));
  return {
    at: start,
    running,
    waiting,
    kv: Math.max(...kv),
    output: sums.output_tokens / seconds,
    prefill: Math.max(0, sums.computed_tokens - sums.output_tokens) / seconds,
    preemptions: (sums.preemptions / seconds) * 60,
    ttft: told("ttft", ttft, 0.5),
    ttft95: told("ttft95", ttft, 0.95),
    tpot: told("tpot", tpot, 0.5),
    tpot95: told("tpot95", tpot, 0.95),
  };
}

function mean(values) {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}
