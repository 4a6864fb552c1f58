// The KV pool, a cell for each block (or for several, where the pool is large), host memory below it, and which requests hold it.
import { el, facts, tip } from "../../lib/dom.js";
import { BLOCKS, swatch } from "../../lib/canvas.js";
import { count, duration, percent } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { EngineChoice } from "../engine_choice.js";
import { requestFacts } from "../request_facts.js";
import { Engines } from "./engines.js";
import { cellAt, drawGrid, gridOf } from "./grid.js";
import { Holders } from "./holders.js";

const LATELY = 100;
const MOST_CELLS = 4096;
const WORDS = { held: "held", shared: "shared", pinned: "pinned", cached: "cached_blocks", swapped: "swapped", free: "free" };

export const mount = (section, app) => new Memory(section, app);

class Memory {
  constructor(section, app) {
    this.app = app;
    this.engine = new EngineChoice(app);
    this.pool = el("canvas", { class: "pool", role: "img" });
    this.swap = el("canvas", { class: "swap", role: "img", tLabel: "swap_label" });
    this.host = el("p", { class: "dim told", t: "swap_label" });
    this.empty = el("p", { class: "empty" });
    this.facts = el("div", { class: "card" });
    this.holders = new Holders(app, (id) => this.#light(id));
    this.engines = new Engines(app, (key) => this.engine.choose(key));
    this.groups = el("div", { class: "card", hidden: true });
    this.cell = el("span", { class: "dim" });
    const legend = Object.entries(WORDS).map(([name, key]) => el("span", { class: "entry" }, swatch(name, BLOCKS[name]), el("span", { t: key })));
    this.cards = el("div", { class: "cards memory" }, this.facts, this.holders.node, this.engines.node, this.groups);
    section.append(el("div", { class: "bar legend" }, this.engine.node, legend, this.cell), this.empty, this.pool, this.host, this.swap, this.cards);
    for (const canvas of [this.pool, this.swap]) {
      canvas.addEventListener("pointermove", (event) => this.#point(canvas, event));
      canvas.addEventListener("pointerleave", () => this.#leave());
    }
  }

  draw() {
    const engine = this.engine.now();
    const kv = engine?.kv;
    const empty = !kv || !kv.capacity;
    this.empty.hidden = !empty;
    if (empty) this.empty.textContent = t(kv ? "kv_none" : "no_kv");
    for (const node of [this.pool, this.facts, this.holders.node, this.cell]) node.hidden = empty;
    this.host.hidden = this.swap.hidden = empty || !kv.swap;
    this.groups.hidden = !kv?.groups?.length;
    this.engines.draw(engine);
    if (empty) return;
    this.#tell(engine, kv);
    this.holders.draw(engine, kv);
    this.#drawPool(engine, kv);
  }

  #drawPool(engine, kv) {
    const { cell: blocks = 1, unit } = kv;
    this.pool.grid = gridFor(this.pool, engine.cells, blocks);
    drawGrid(this.pool, this.pool.grid, this.lit);
    const units = this.pool.grid.each === 1 ? t("one_block") : t("blocks_each", { number: this.pool.grid.each });
    this.cell.textContent = t("cells_of", { units, positions: unit });
    this.pool.setAttribute("aria-label", t("pool_label", { units, free: kv.free ?? 0, capacity: kv.capacity }));
    if (this.swap.hidden) return;
    if (this.swap.of !== kv) [this.swap.of, this.swap.all] = [kv, swapCells(kv)];
    this.swap.grid = gridFor(this.swap, this.swap.all, 1);
    drawGrid(this.swap, this.swap.grid);
  }

  #tell(engine, kv) {
    const share = (name) => `${count(kv[name] ?? 0)} (${percent((kv[name] ?? 0) / kv.capacity)})`;
    const pairs = [
      ["capacity", `${count(kv.capacity)} ${t("positions")}`],
      ["block_positions", kv.unit],
      ...["held", "shared", "cached", "pinned"].map((name) => [WORDS[name], share(name)]),
      ["available", share("free")],
      ["hit_rate", percent(kv.hit_rate ?? 0)],
      ["evictions", `${count(kv.evictions ?? 0)} ${t("positions")}`],
      ["evicted_lately", `${count(engine.steps.slice(-LATELY).reduce((sum, step) => sum + (step.evicted ?? 0), 0))} ${t("positions")}`],
      ["swap", kv.swap ? t("used_of", { used: count(kv.swapped ?? 0), all: count(kv.swap) }) : "–"],
    ];
    const told = JSON.stringify([pairs, kv.groups]);
    if (told === this.told) return;
    this.told = told;
    this.facts.replaceChildren(el("h2", { t: "kv_pool" }), facts(pairs, { class: "facts" }));
    this.groups.replaceChildren(el("h2", { t: "groups" }), groupTable(kv.groups ?? []));
  }

  #light(id) {
    if (id === this.lit) return;
    this.lit = id;
    this.app.refresh();
  }

  #leave() {
    this.#light(null);
    tip(null);
  }

  #point(canvas, event) {
    const box = canvas.getBoundingClientRect();
    const cell = canvas.grid && cellAt(canvas.grid, event.clientX - box.left, event.clientY - box.top);
    this.#light(cell?.id ?? null);
    tip(cell ? this.#about(cell, canvas === this.pool ? (this.engine.now()?.kv?.cell ?? 1) : 1) : null, event);
  }

  /** What there is to say of a cell: its state and since when, whose it is, how many use it, and how far the same goes on. */
  #about({ state, run, id, pin, users, since, sure, had }, blocks) {
    const { store } = this.app;
    const pairs = [["state", t(WORDS[state])], ["run", `${count(run[1] * blocks)} ${t("blocks")}`]];
    if (since) pairs.push(["age", `${sure ? "" : "> "}${duration(Math.max(0, store.now - since))}`]);
    if (pin) pairs.push(["pinned_prefix", pin]);
    if (users > 1) pairs.push(["users", count(users)]);
    if (had) pairs.push(["computed_by", named(store, had)]);
    if (!id) return pairs;
    const request = store.requests.get(id);
    return [...pairs, ...(request ? requestFacts(request, store.now).map(([key, text]) => [key === "state" ? "phase" : key, text]) : [["request", id]])];
  }
}

const named = (store, id) => [store.requests.get(id)?.client, id].filter(Boolean).join(" · ");

/** The grid of a canvas, made anew only where its cells or its size are others. */
function gridFor(canvas, cells, blocks) {
  const { clientWidth: width, clientHeight: height, grid } = canvas;
  if (grid && canvas.cells === cells && grid.width === width && grid.height === height) return grid;
  canvas.cells = cells;
  return gridOf(cells, blocks, width, height);
}

/** Host memory has no map: what is used comes first, each cell a block, or several of them. */
function swapCells({ swap, swapped = 0, unit }) {
  const each = Math.max(1, Math.ceil(swap / unit / MOST_CELLS));
  const [all, used] = [swap, swapped].map((positions) => Math.ceil(positions / unit));
  const runs = [["swapped", used], ["free", Math.max(0, all - used)]];
  return runs.flatMap((run) => Array.from({ length: Math.ceil(run[1] / each) }, () => ({ state: run[0], run, id: null })));
}

function groupTable(groups) {
  const rows = groups.map(({ window, held = 0, cached = 0 }) => {
    const name = window ? t("window_of", { number: window }) : t("window_all");
    return el("tr", {}, el("th", { scope: "row", text: name }), [held, cached].map((number) => el("td", { class: "number", text: count(number) })));
  });
  const head = el("tr", {}, el("td"), ["held", "cached_blocks"].map((key) => el("th", { scope: "col", class: "number", t: key })));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, rows));
}
