// All that the page knows of the server: engines and their requests, steps and memory, from the events of the feed.
import { cellsOf } from "./cells.js";
import { Series } from "./series.js";

const MAX_ENDED = 5000;
const MAX_STEPS = 1000;
const KEEP_SECONDS = 3600;
/** Of a request; past them, the latest are kept, and the first, which tell of its first token. */
const MAX_SPANS = 200;
const FIRST_SPANS = 8;
const MAX_BREADTHS = 64;
/** How long after a new beginning a request may stay unmentioned before it counts as ended. */
const GRACE_SECONDS = 3;
const DEFAULTS = {
  client: "", priority: 0, prompt_tokens: 0, max_tokens: 0, n: 1, arrival: 0, computed: 0, cached_tokens: 0,
  output_tokens: 0, preemptions: 0, finish_reason: null, resumed: false, moved_from: null,
};

/** What an engine is known by, from event to event. */
const keyOf = (engine) => JSON.stringify([engine.model ?? "", engine.arm ?? "", engine.replica ?? ""]);

export class Store extends EventTarget {
  constructor() {
    super();
    this.recorded = false;
    this.maxSteps = MAX_STEPS;
    this.forget();
  }

  forget() {
    this.engines = new Map();
    this.requests = new Map();
    this.missing = new Map();
    /** Those that the event at hand ends: when exactly, their last spans say. */
    this.ending = [];
    this.arms = null;
    this.at = 0;
    this.received = 0;
  }

  /** The server's time, now. A recording's stands still. */
  get now() {
    if (this.recorded || !this.at) return this.at;
    return this.at + Math.min(2, (performance.now() - this.received) / 1000);
  }

  apply(event) {
    this.at = Math.max(this.at, event.at);
    this.received = performance.now();
    if (event.first) this.#begin();
    for (const engine of event.engines ?? []) this.#applyEngine(engine);
    this.#endMissing(this.at);
    for (const request of this.ending.splice(0)) request.engine.series?.addEnded(timings(request), request.ended);
    if (event.arms !== undefined) this.arms = event.arms;
    this.#retire();
    this.dispatchEvent(new Event("change"));
  }

  /** Takes what the server kept of the hour before this page was opened. */
  remember({ seconds, engines }) {
    for (const { points, ...named } of engines) {
      const engine = this.engines.get(keyOf(named));
      if (engine && points.length) engine.series.addPast(points, seconds);
    }
    this.dispatchEvent(new Event("change"));
  }

  #applyEngine(news) {
    const key = keyOf(news);
    let engine = this.engines.get(key);
    if (!engine) this.engines.set(key, (engine = newEngine(key, news)));
    for (const field of ["state", "scheduler", "policies"]) if (news[field] !== undefined) engine[field] = news[field];
    if (news.scheduler) engine.policies = { ...engine.policies, scheduler: news.scheduler }; // it may change without the others
    engine.expected = Infinity;
    if (news.began || news.state === "gone") this.#expect((request) => request.engine === engine);
    if (news.kv) [engine.kv, engine.cells] = [news.kv, cellsOf(news.kv, this.at, engine.cells)];
    for (const request of news.requests ?? []) this.#applyRequest(engine, request);
    for (const told of news.progress ?? []) this.#applyProgress(engine, told);
    for (const [id, phase, start, end = null] of news.spans ?? []) this.#applySpan(engine, id, { phase, start, end, engine });
    for (const [id, at, number] of news.breadths ?? []) this.#applyBreadth(id, { at, number });
    for (const step of news.steps ?? []) engine.steps.push(this.#step(step, engine.steps.at(-1)));
    if (engine.steps.length > this.maxSteps) engine.steps.splice(0, engine.steps.length - this.maxSteps);
    if (news.stats?.steps) { // else nothing was heard of it as yet
      engine.stats = news.stats;
      engine.series.add(this.at, news.stats);
    }
    if (news.state === "gone") this.#forget(engine);
  }

  /** It is no more; its requests go on to name it. */
  #forget(engine) {
    this.engines.delete(engine.key);
    Object.assign(engine, { kv: null, cells: [], steps: [], series: null });
  }

  /** A step as it is kept: what goes on as the step before refers to it, and ids are the requests' own strings. */
  #step(step, before) {
    if (step.again) return followed(step, before);
    const own = (id) => this.requests.get(id)?.id ?? id;
    for (const grant of step.grants ?? []) grant[0] = own(grant[0]);
    if (step.order) step.order = step.order.map(own);
    return step;
  }

  #applyRequest(engine, news) {
    const before = this.requests.get(news.id);
    if (news.finish_reason === "moved") {
      if (before?.engine === engine) this.#leave(before);
      return;
    }
    const { spans = [], marks = [], breadths = [], row } = before ?? {};
    const request = { ...DEFAULTS, ...news, engine, spans, marks, breadths, row, ended: before?.ended ?? null };
    this.requests.set(news.id, request);
    this.missing.delete(news.id);
    if (request.resumed && !before?.resumed) marks.push({ kind: "resumed", at: this.at });
    if (request.moved_from && request.moved_from !== before?.moved_from) marks.push({ kind: "moved", at: this.at });
    this.#settle(request);
  }

  #applyProgress(engine, [id, state, computed, output, preemptions]) {
    const request = this.requests.get(id);
    if (!request || request.engine !== engine) return;
    this.missing.delete(id);
    [request.state, request.computed, request.output_tokens, request.preemptions] = [state, computed, output, preemptions];
    this.#settle(request);
  }

  #settle(request) {
    if (request.state !== "ended") request.ended = null;
    else if (request.ended === null) this.#end(request, this.at);
  }

  /** It has left its engine for another, which will tell of it soon. */
  #leave(request) {
    close(request, this.at);
    this.missing.set(request.id, this.at + 2 * GRACE_SECONDS);
  }

  #applySpan(engine, id, span) {
    const request = this.requests.get(id);
    if (!request) return;
    const same = request.spans.findLast((one) => one.phase === span.phase && one.start === span.start);
    if (same) same.end = span.end;
    else {
      close(request, span.start);
      if (span.phase === "decode" && request.spans.every((one) => one.phase !== "decode")) this.#firstToken(engine, request, span);
      request.spans.push(span);
      if (request.spans.length > MAX_SPANS && !this.recorded) request.spans.splice(FIRST_SPANS, 1);
    }
    if (request.ended !== null && span.end !== null) request.ended = Math.max(span.end, request.spans[0].start);
  }

  /** Those that came before the page was opened, the server has kept. */
  #firstToken({ series }, request, span) {
    if (this.recorded || series.last !== null) series.sample("ttft", ttftOf(request, span), span.start);
  }

  #applyBreadth(id, breadth) {
    const breadths = this.requests.get(id)?.breadths;
    breadths?.push(breadth);
    if (breadths?.length > MAX_BREADTHS) breadths.shift();
  }

  #end(request, at) {
    close(request, at);
    request.spans = request.spans.slice(); // an array has room for more than it holds, which takes as much as they do
    request.ended = request.spans.at(-1)?.end ?? at;
    if (request.finish_reason === "stop" || request.finish_reason === "length") this.ending.push(request);
  }

  /** The server may be another than before. Where nothing happens, it tells no more than this. */
  #begin() {
    const due = this.at + GRACE_SECONDS;
    for (const engine of this.engines.values()) {
      Object.assign(engine, { expected: due, stats: null, kv: null, cells: [] });
      engine.series.interrupt();
    }
    this.#expect(() => true);
    if (this.recorded) return;
    setTimeout(() => {
      this.#endMissing(due);
      this.dispatchEvent(new Event("change"));
    }, GRACE_SECONDS * 1000);
  }

  /** After a new beginning, requests that live are told of again; those that are not ended while nobody looked. */
  #expect(chosen) {
    for (const [id, request] of this.requests) if (request.ended === null && chosen(request)) this.missing.set(id, this.at + GRACE_SECONDS);
  }

  #endMissing(at) {
    for (const engine of this.engines.values()) if (at >= engine.expected) this.#forget(engine);
    for (const [id, until] of this.missing) {
      if (at < until) continue;
      this.missing.delete(id);
      const request = this.requests.get(id);
      if (!request || request.ended !== null) continue;
      request.state = "ended";
      this.#end(request, this.at);
    }
  }

  #retire() {
    if (this.recorded) return;
    let ended = 0;
    for (const request of this.requests.values()) if (request.ended !== null) ended += 1;
    for (const [id, request] of this.requests) {
      if (request.ended === null) continue;
      if (ended <= MAX_ENDED && request.ended > this.at - KEEP_SECONDS) break;
      this.requests.delete(id);
      ended -= 1;
    }
  }
}

function newEngine(key, { model = "", name = "", arm = null, replica = "", state, scheduler = "" }) {
  const series = new Series();
  return { key, model, name, arm, replica, state, scheduler, policies: {}, stats: null, kv: null, cells: [], steps: [], series };
}

/** A step that goes on as the one before did: the same order, and everyone a token further. */
function followed(step, before) {
  if (before?.number !== step.number - 1 || before.thin) return { ...step, thin: true }; // it was not heard of
  const { base = before, ahead = 0 } = before;
  return { ...step, base, ahead: ahead + 1, order: base.order };
}

/** [[request's id, tokens, phase, computed then, of how many], …] */
export function grantsOf({ grants, base, ahead }) {
  if (!base) return grants ?? [];
  return (base.grants ?? []).map(([id, tokens, phase, computed, total]) => [id, tokens, phase, computed + ahead, total + ahead]);
}

/** Closes a request's open span. */
function close(request, at) {
  const last = request.spans.at(-1);
  if (last && last.end === null) last.end = Math.max(last.start, at);
}

/** What to call an engine where there are several. */
export function engineName(engine, engines) {
  const all = [...engines.values()];
  const parts = ["model", "arm"].filter((part) => new Set(all.map((one) => one[part])).size > 1).map((part) => engine[part]);
  return [...parts.filter(Boolean), engine.replica].join(" / ") || engine.name;
}

const ttftOf = (request, span) => Math.max(0, span.start - request.arrival);

/** Seconds to a request's first token, between its tokens, and in all; null where they are not known. */
export function timings(request) {
  const span = request.spans.find((one) => one.phase === "decode");
  const [first, ttft] = span ? [span.start, ttftOf(request, span)] : [null, null];
  const tokens = request.output_tokens / Math.max(1, request.n);
  const tpot = first !== null && request.ended !== null && tokens > 1 ? (request.ended - first) / (tokens - 1) : null;
  return { ttft, tpot, whole: request.ended === null ? null : request.ended - request.arrival };
}
