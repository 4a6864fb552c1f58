// What the scheduler decided, step by step: the queue's order, what each request was granted, who gave way, and why.
import { el, facts } from "../lib/dom.js";
import { colour, context, fill } from "../lib/canvas.js";
import { grantsOf } from "../data/store.js";
import { clock, count, duration, short } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { EngineChoice } from "./engine_choice.js";

const COLUMN = 6;
const MOVES = { copy: "kv_copied", swap_out: "kv_swapped_out", swap_in: "kv_swapped_in" };

export const mount = (section, app) => new Decisions(section, app);

class Decisions {
  constructor(section, app) {
    this.app = app;
    this.frozen = null;
    this.engine = new EngineChoice(app);
    this.canvas = el("canvas", { class: "steps", tabindex: "0", role: "slider", tLabel: "steps_label" });
    this.empty = el("p", { class: "empty", t: "no_steps" });
    this.where = el("strong", { class: "mono" });
    this.freeze = el("button", { type: "button", t: "freeze", onclick: () => this.#freeze(this.frozen ? null : this.#list().at(-1)) });
    this.body = el("div", { class: "cards decisions" });
    const go = (key, by) => el("button", { type: "button", t: key, onclick: () => this.#go(by) });
    const newest = el("button", { type: "button", t: "newest", onclick: () => this.#freeze(null) });
    section.append(el("div", { class: "bar" }, this.engine.node, this.freeze, go("back", -1), go("forward", 1), newest, this.where));
    section.append(this.empty, this.canvas, this.body);
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("pointerdown", (event) => this.#pick(event));
  }

  /** The steps that can be looked at: those kept when the reader froze them, else all there are. */
  #list() {
    return this.kept ?? this.engine.now()?.steps ?? [];
  }

  draw() {
    const engine = this.engine.now();
    if (engine !== this.of) {
      this.of = engine;
      this.frozen = this.kept = null;
    }
    const steps = this.#list();
    const step = this.frozen ?? steps.at(-1);
    this.empty.hidden = Boolean(step);
    this.canvas.hidden = this.body.hidden = !step;
    this.freeze.setAttribute("aria-pressed", String(this.frozen !== null));
    this.where.textContent = step ? `${t("step")} ${step.number} · ${clock(step.started)}` : "";
    if (!step) return;
    this.#drawSteps(steps, step);
    const signature = `${step.number}/${step.started}/${t("step")}`;
    if (signature === this.signature) return;
    this.signature = signature;
    this.body.replaceChildren(...this.#cards(step));
  }

  #drawSteps(steps, step) {
    const { ctx, width, height } = context(this.canvas);
    const room = Math.floor(width / COLUMN);
    const at = steps.indexOf(step);
    const last = Math.min(steps.length, Math.max(room, at + Math.ceil(room / 2)));
    this.first = this.frozen ? Math.max(0, last - room) : Math.max(0, steps.length - room);
    const seen = steps.slice(this.first, this.first + room);
    const most = Math.max(1, ...seen.map((one) => one.tokens ?? 0));
    ctx.fillStyle = colour("panel");
    ctx.fillRect(0, 0, width, height);
    seen.forEach((one, column) => drawStep(ctx, one, column * COLUMN, height - 12, most, one === step));
    this.canvas.setAttribute("aria-valuetext", `${t("step")} ${step.number}: ${step.tokens ?? 0} ${t("tokens")}`);
    this.canvas.setAttribute("aria-valuemin", steps[0].number);
    this.canvas.setAttribute("aria-valuemax", steps.at(-1).number);
    this.canvas.setAttribute("aria-valuenow", step.number);
  }

  #cards(step) {
    const card = (key, ...content) => el("div", { class: "card" }, el("h2", { t: key }), content);
    const rows = (list, key, row) => (list?.length ? el("ol", { class: "list" }, list.map(row)) : el("p", { class: "dim", t: key }));
    const some = (list, key, row) => (list?.length ? [el("h2", { t: key, class: "next" }), rows(list, key, row)] : []);
    const one = (id) => el("li", {}, this.#request(id));
    const about = card(
      "step",
      facts(stepFacts(step), { class: "facts" }),
      some(step.preempted, "victims", ([id, how]) => el("li", {}, this.#request(id), el("span", { class: "bad", t: how === "swap" ? "by_swap" : "by_recompute" }))),
      some(step.admitted, "admitted", one),
    );
    if (step.thin) return [about, card("order", el("p", { class: "dim", t: "thin" }))];
    const why = Object.entries(step.why ?? {});
    const words = why.map(([id, text]) => el("li", {}, this.#request(id), el("div", { class: "why", dir: "auto", text })));
    return [
      about,
      card("grants", rows(grantsOf(step), "grants_empty", (grant) => this.#grant(grant, step))),
      card("order", rows(step.order, "order_empty", (id) => el("li", {}, this.#request(id, step)))),
      card("why", words.length ? el("ul", { class: "list" }, words) : el("p", { class: "dim", t: "no_why" })),
    ];
  }

  #grant([id, tokens, phase, computed, total], step) {
    const bar = el("span", { class: `grant ${phase}` });
    bar.style.width = `${Math.max(1, (100 * tokens) / Math.max(1, step.tokens ?? 0))}%`;
    const progress = phase === "prefill" ? ` ${count(computed)} / ${count(total)}` : "";
    const told = el("span", { class: "dim" }, `+${count(tokens)} `, el("span", { t: phase }), progress);
    return el("li", {}, el("span", { class: "pair" }, this.#request(id), told), bar);
  }

  /** Who it is; with a step, how long it had waited then. */
  #request(id, step) {
    const request = this.app.store.requests.get(id);
    const more = request ? [request.client, step && t("waited", { time: duration(Math.max(0, step.started - request.arrival)) })] : [];
    return el("span", { class: "who" }, el("code", { text: short(id), title: id }), " ", el("bdi", { class: "dim", text: more.filter(Boolean).join(" · ") }));
  }

  /** Looks at a step, with the steps of this moment kept beside it; null looks at the newest again. */
  #freeze(step) {
    this.frozen = step ?? null;
    this.kept = step ? (this.kept ?? [...this.#list()]) : null;
    this.app.refresh();
  }

  #go(by) {
    const steps = this.#list();
    const at = this.frozen ? steps.indexOf(this.frozen) : steps.length - 1;
    if (steps.length) this.#freeze(steps[Math.max(0, Math.min(steps.length - 1, at + by))]);
  }

  #key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50, Home: -Infinity }[event.key];
    if (event.key === "End") this.#freeze(null);
    else if (by) this.#go(by);
    else return;
    event.preventDefault();
  }

  #pick(event) {
    const column = Math.floor((event.clientX - this.canvas.getBoundingClientRect().left) / COLUMN);
    const step = this.#list()[this.first + column];
    if (step) this.#freeze(step);
  }
}

/** A column: tokens of decode below, of prefill above; a mark below it where a request was preempted. */
function drawStep(ctx, step, x, height, most, chosen) {
  const sums = { decode: 0, prefill: 0 };
  for (const [, tokens, phase] of (step.base ?? step).grants ?? []) sums[phase] += tokens;
  if (step.thin) sums.decode = step.tokens ?? 0;
  let y = height;
  for (const phase of ["decode", "prefill"]) {
    const tall = (sums[phase] / most) * (height - 6);
    ctx.fillStyle = colour(phase);
    ctx.fillRect(x, y - tall, COLUMN - 1.5, tall);
    y -= tall;
  }
  if (step.preempted?.length) {
    ctx.fillStyle = fill(ctx, "preempted", "hatch");
    ctx.fillRect(x, height + 3, COLUMN - 1.5, 7);
  }
  if (!chosen) return;
  ctx.strokeStyle = colour("text");
  ctx.lineWidth = 1.5;
  ctx.strokeRect(x - 1.2, 1, COLUMN + 1, height + 10);
}

function stepFacts(step) {
  return [
    ["took", duration(step.ended - step.started)],
    ["policy_took", duration((step.policy_ms ?? 0) / 1000)],
    ...["tokens", "rows", "running", "waiting", "kv_free"].map((name) => [name, count(step[name] ?? 0)]),
    ...(step.evicted ? [["evicted", `${count(step.evicted)} ${t("tokens")}`]] : []),
    ...Object.entries(step.moved ?? {}).map(([what, tokens]) => [MOVES[what] ?? "tokens", `${count(tokens)} ${t("tokens")}`]),
  ];
}
