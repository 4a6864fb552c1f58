// Changes the scheduler of a running engine, and compares what requests saw before with what they see since.
import { askJson } from "../../lib/api.js";
import { el } from "../../lib/dom.js";
import { duration, percent } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { notice } from "../../shell/notice.js";
import { compared } from "./effect.js";
import { queryOf } from "./policies.js";

const BEFORE_SECONDS = 600;
const LEAST = 8;

export class Scheduler {
  constructor(app) {
    this.app = app;
    this.name = el("input", { id: "scheduler-name", list: "schedulers", required: true, autocomplete: "off" });
    this.names = el("datalist", { id: "schedulers" });
    this.options = el("textarea", { id: "scheduler-options", rows: "2", tPlaceholder: "options_hint", spellcheck: "false" });
    const button = el("button", { class: "main", t: "apply" });
    const labelled = (id, key, node) => [el("label", { for: id, t: key }), node];
    const form = el("form", { class: "fields" }, labelled("scheduler-name", "scheduler", this.name), labelled("scheduler-options", "options", this.options), button);
    form.addEventListener("submit", (event) => this.#change(event));
    this.told = el("p", { class: "good", role: "status" });
    this.effect = el("div");
    this.node = el("div", { class: "card" }, el("h2", { t: "change_scheduler" }), form, this.names, this.told, this.effect);
  }

  opened() {
    this.asked = false;
  }

  draw(engine) {
    this.engine = engine;
    const still = this.app.store.recorded || !engine;
    for (const field of this.node.querySelectorAll("input, textarea, button")) field.disabled = still;
    if (!engine || still) return;
    if (!this.asked) this.#learnNames();
    if (!this.name.value && document.activeElement !== this.name) this.name.value = (engine.scheduler ?? "").split(":")[0];
    this.#drawEffect();
  }

  async #learnNames() {
    this.asked = true;
    try {
      const { plugins } = await askJson("admin/plugins", { query: queryOf(this.engine, this.app.store) });
      const known = plugins.filter(({ kind, state }) => kind === "scheduler" && state === "ok");
      this.names.replaceChildren(...known.map(({ name }) => el("option", { value: name })));
    } catch (error) {
      notice(error.message);
    }
  }

  async #change(event) {
    event.preventDefault();
    const body = { name: this.name.value.trim(), options: parsedOptions(this.options.value) };
    try {
      const { scheduler } = await askJson("admin/scheduler", { method: "POST", body, query: queryOf(this.engine, this.app.store) });
      const at = this.app.store.now;
      this.changed = { at, engine: this.engine, name: scheduler, before: this.#ended(at - BEFORE_SECONDS) };
      this.told.textContent = t("changed", { name: scheduler });
      notice("");
    } catch (error) {
      this.told.textContent = "";
      notice(error.message);
    }
    this.app.refresh();
  }

  /** Requests of the arm that ended from then on. */
  #ended(from) {
    return [...this.app.store.engines.values()].filter((one) => alike(one, this.engine)).flatMap((one) => one.series.endedFrom(from));
  }

  #drawEffect() {
    if (!this.changed || !alike(this.changed.engine, this.engine)) {
      this.shown = this.effect.replaceChildren();
      return;
    }
    const { at, before } = this.changed;
    const after = this.#ended(at).filter((one) => one.at - one.whole >= at);
    const shown = `${at}/${before.length}/${after.length}/${t("effect")}`;
    if (shown === this.shown) return;
    this.shown = shown;
    const content = before.length < LEAST || after.length < LEAST ? el("p", { class: "dim", text: t("effect_wait", { number: after.length }) }) : table(before, after);
    this.effect.replaceChildren(el("h2", { t: "effect" }), content, el("p", { class: "dim", t: "effect_note" }));
  }
}

/** Whether two engines are replicas of one arm: a change of the scheduler is one of all of them. */
const alike = (one, other) => one.model === other.model && one.arm === other.arm;

function table(before, after) {
  const head = ["metric", "before", "after", "change", "interval"].map((key) => el("th", { scope: "col", t: key }));
  const rows = ["ttft", "tpot", "whole"].map((name) => {
    const found = compared(before.map((one) => one[name]), after.map((one) => one[name]));
    if (!found) return null;
    const sign = (share) => `${share > 0 ? "+" : ""}${percent(share)}`;
    const verdict = found.low > 0 ? "bad" : found.high < 0 ? "good" : "dim";
    const cells = [duration(found.before), duration(found.after), sign(found.change), `${sign(found.low)} … ${sign(found.high)}`];
    return el("tr", {}, el("th", { scope: "row", t: name }), cells.map((text, at) => el("td", { text, class: at > 1 && verdict })));
  });
  return el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows));
}

/** `name=value` lines as an object; values are JSON where they can be. */
function parsedOptions(text) {
  const pairs = text.split(/[\n,]/).map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(pairs.map((pair) => {
    const [name, ...rest] = pair.split("=");
    const value = rest.join("=").trim();
    try {
      return [name.trim(), JSON.parse(value)];
    } catch {
      return [name.trim(), value];
    }
  }));
}
