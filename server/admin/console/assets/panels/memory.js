// The KV pool, a cell for each block (or for several, where the pool is large), and which requests hold it.
import { el, facts, tip } from "../lib/dom.js";
import { BLOCKS, colour, context, fill, swatch } from "../lib/canvas.js";
import { count, duration, percent, short } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { EngineChoice } from "./engine_choice.js";
import { engineName } from "../data/store.js";
import { requestFacts, stateName } from "./request_facts.js";

const [LEAST, MOST] = [5, 44];
const HOLDERS = 14;
const LATELY = 100;
const WORDS = { held: "held", shared: "shared", pinned: "pinned", cached: "cached_blocks", free: "free" };
const TELLING = ["pinned", "shared", "held", "cached", "free"];

export const mount = (section, app) => new Memory(section, app);

class Memory {
  constructor(section, app) {
    this.app = app;
    this.engine = new EngineChoice(app);
    this.canvas = el("canvas", { class: "pool", role: "img" });
    this.empty = el("p", { class: "empty", t: "no_kv" });
    this.facts = el("div", { class: "card" });
    this.list = el("ol", { class: "list", tabindex: "0", tLabel: "holders" });
    this.nobody = el("p", { class: "dim", t: "holders_none" });
    this.holders = el("div", { class: "card" }, el("h2", { t: "holders" }), this.list, this.nobody);
    this.groups = el("div", { class: "card", hidden: true });
    this.engines = el("div", { class: "card", hidden: true });
    this.cell = el("span", { class: "dim" });
    const legend = ["held", "shared", "pinned", "cached", "free"].map((name) => el("span", { class: "entry" }, swatch(name, BLOCKS[name]), el("span", { t: WORDS[name] })));
    section.append(el("div", { class: "bar legend" }, this.engine.node, legend, this.cell), this.empty, this.canvas);
    section.append(el("div", { class: "cards" }, this.facts, this.holders, this.engines, this.groups));
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => tip(null));
  }

  draw() {
    const engine = this.engine.now();
    const kv = engine?.kv;
    this.empty.hidden = Boolean(kv);
    for (const node of [this.canvas, this.facts, this.holders, this.cell]) node.hidden = !kv;
    this.groups.hidden = !kv?.groups?.length;
    this.#tellEngines(engine);
    if (!kv) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (this.grid?.kv !== kv || this.size !== `${width} ${height}`) this.grid = gridOf(kv, width, height);
    this.size = `${width} ${height}`;
    this.#drawPool(kv);
    this.#tell(engine, kv);
    this.#tellHolders(engine, kv);
  }

  #drawPool(kv) {
    const { ctx, width, height } = context(this.canvas);
    const { size, across, each, cells } = this.grid;
    const gap = size > 8 ? 2 : 1;
    ctx.fillStyle = colour("back");
    ctx.fillRect(0, 0, width, height);
    for (const [state, kind] of Object.entries(BLOCKS)) {
      ctx.fillStyle = fill(ctx, state, kind);
      cells.forEach((cell, at) => {
        if (cell.state === state) ctx.fillRect((at % across) * size, Math.floor(at / across) * size, size - gap, size - gap);
      });
    }
    const units = each === 1 ? t("one_block") : t("blocks_each", { number: each });
    this.cell.textContent = t("cells_of", { units, positions: kv.unit });
    this.canvas.setAttribute("aria-label", t("pool_label", { units, free: kv.free ?? 0, capacity: kv.capacity }));
  }

  #tell(engine, kv) {
    const share = (name) => `${count(kv[name] ?? 0)} (${percent((kv[name] ?? 0) / kv.capacity)})`;
    const pairs = [
      ["kv_pool", `${count(kv.capacity)} ${t("positions")}`],
      ["block_positions", kv.unit],
      ...["held", "shared", "cached", "pinned"].map((name) => [WORDS[name], share(name)]),
      ["available", share("free")],
      ["hit_rate", percent(kv.hit_rate ?? 0)],
      ["evictions", count(kv.evictions ?? 0)],
      ["evicted_lately", count(engine.steps.slice(-LATELY).reduce((sum, step) => sum + (step.evicted ?? 0), 0))],
      ["swap", kv.swap ? `${count(kv.swapped ?? 0)} / ${count(kv.swap)}` : "–"],
    ];
    const told = JSON.stringify([pairs, kv.groups]);
    if (told === this.told) return;
    this.told = told;
    this.facts.replaceChildren(el("h2", { t: "kv_pool" }), facts(pairs, { class: "facts" }));
    const rows = (kv.groups ?? []).map(({ window, held = 0, cached = 0 }) => {
      const name = window ? t("window_of", { number: window }) : t("window_all");
      return el("tr", {}, el("th", { scope: "row", text: name }), [held, cached].map((number) => el("td", { class: "number", text: count(number) })));
    });
    const head = el("tr", {}, el("td"), ["held", "cached_blocks"].map((key) => el("th", { scope: "col", class: "number", t: key })));
    this.groups.replaceChildren(el("h2", { t: "groups" }), el("table", {}, el("thead", {}, head), el("tbody", {}, rows)));
  }

  /** The requests with the most positions in memory; what they share counts for each. */
  #tellHolders(engine, kv) {
    const { store } = this.app;
    const holds = (one) => one.ended === null && one.engine === engine && ["prefill", "decode"].includes(one.state) && one.computed > 0;
    const all = [...store.requests.values()].filter(holds);
    const most = all.sort((a, b) => b.computed - a.computed).slice(0, HOLDERS);
    const rows = most.map((request) => {
      const bar = el("span", { class: `grant ${request.state}` });
      bar.style.width = `${Math.min(100, (100 * request.computed) / kv.capacity)}%`;
      const about = [request.client, `${count(request.computed)} ${t("positions")}`, stateName(request), duration(store.now - request.arrival)];
      const node = el("li", {}, el("span", { class: "who" }, el("code", { text: short(request.id) }), " ", el("span", { class: "dim", text: about.filter(Boolean).join(" · ") })), bar);
      node.addEventListener("pointermove", (event) => tip(requestFacts(request, store.now), event));
      node.addEventListener("pointerleave", () => tip(null));
      return node;
    });
    this.list.replaceChildren(...rows);
    this.list.hidden = !rows.length;
    this.nobody.hidden = rows.length > 0;
  }

  /** All engines beside each other, where there are several: a click looks into one. */
  #tellEngines(chosen) {
    const { engines } = this.app.store;
    this.engines.hidden = engines.size < 2;
    if (this.engines.hidden) return;
    const rows = [...engines.values()].map((engine) => {
      const { kv_capacity: capacity = 0, kv_free: free = 0, running = 0, waiting = 0 } = engine.stats ?? {};
      const bar = el("span", { class: "grant" });
      bar.style.width = `${capacity ? (100 * (capacity - free)) / capacity : 0}%`;
      const about = `${percent(capacity ? 1 - free / capacity : NaN)} · ${t("running")} ${count(running)} · ${t("waiting")} ${count(waiting)}`;
      const choose = el("button", { type: "button", "aria-pressed": String(engine === chosen), text: engineName(engine, engines) });
      choose.addEventListener("click", () => this.engine.choose(engine.key));
      return el("li", {}, el("span", { class: "pair" }, choose, el("span", { class: "dim", text: about })), bar);
    });
    const focused = [...this.engines.querySelectorAll("button")].indexOf(document.activeElement);
    this.engines.replaceChildren(el("h2", { t: "replicas" }), el("ol", { class: "list" }, rows));
    this.engines.querySelectorAll("button")[focused]?.focus();
  }

  #point(event) {
    if (!this.grid) return;
    const box = this.canvas.getBoundingClientRect();
    const { size, across, cells } = this.grid;
    const column = Math.floor((event.clientX - box.left) / size);
    const cell = column < across ? cells[Math.floor((event.clientY - box.top) / size) * across + column] : null;
    tip(cell && this.#about(cell), event);
  }

  /** What there is to say of a cell: its state, whose it is, how many use it, and how far the same goes on. */
  #about({ state, run, owner, users }) {
    const { store } = this.app;
    const { cell: blocks, kv } = this.grid;
    const pairs = [["state", t(WORDS[state])], ["run", `${count(run[1] * blocks)} ${t("blocks")}`]];
    if (owner < 0) pairs.push(["pinned_prefix", kv.pins[-owner - 1]]);
    if (users > 1) pairs.push(["users", count(users)]);
    if (owner <= 0) return pairs;
    const id = kv.holders[owner - 1];
    const request = store.requests.get(id);
    return [...pairs, ...(request ? requestFacts(request, store.now).map(([key, text]) => [key === "state" ? "phase" : key, text]) : [["request", id]])];
  }
}

/** How many blocks a cell stands for, its size, and the cells: each as the most telling of its blocks. */
function gridOf(kv, width, height) {
  const units = unitsOf(kv);
  const { cell = 1 } = kv;
  const fits = (size) => Math.floor(width / size) * Math.floor(height / size);
  const merged = Math.max(1, Math.ceil(units.length / Math.max(1, fits(LEAST))));
  const cells = merged === 1 ? units : mergedCells(units, merged);
  let size = LEAST;
  while (size < MOST && fits(size + 1) >= cells.length) size += 1;
  return { kv, cell, each: cell * merged, size, across: Math.max(1, Math.floor(width / size)), cells };
}

/** The pool from its start: each unit's state with the run that it is of, its owner's number, and how many use it. */
function unitsOf({ runs, owners = [] }) {
  const units = [];
  for (const run of runs) for (let left = run[1]; left > 0; left -= 1) units.push({ state: run[0], run, owner: 0, users: 0 });
  let place = 0;
  for (const [owner, users, many] of owners) {
    for (const unit of owner ? units.slice(place, place + many) : []) {
      Object.assign(unit, { owner, users });
      if (owner < 0 && unit.state === "cached") unit.state = "pinned";
    }
    place += many;
  }
  return units;
}

function mergedCells(units, merged) {
  const cells = [];
  for (let place = 0; place < units.length; place += merged) {
    const telling = units.slice(place, place + merged).sort((a, b) => TELLING.indexOf(a.state) - TELLING.indexOf(b.state));
    cells.push(telling[0]);
  }
  return cells;
}
