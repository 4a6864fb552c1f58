// The memory of all engines beside each other, where there are several: a click looks into one.
import { el } from "../../lib/dom.js";
import { count, percent } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { engineName } from "../../data/store.js";

export class Engines {
  constructor(app, choose) {
    [this.app, this.choose] = [app, choose];
    this.node = el("div", { class: "card", hidden: true });
  }

  draw(chosen) {
    const { engines } = this.app.store;
    this.node.hidden = engines.size < 2;
    if (this.node.hidden) return;
    const focused = [...this.node.querySelectorAll("button")].indexOf(document.activeElement);
    this.node.replaceChildren(el("h2", { t: "engines" }), el("ol", { class: "list" }, [...engines.values()].map((engine) => this.#row(engine, chosen))));
    this.node.querySelectorAll("button")[focused]?.focus();
  }

  #row(engine, chosen) {
    const { kv_capacity: capacity = 0, kv_free: free = 0, running = 0, waiting = 0 } = engine.stats ?? {};
    const bar = el("span", { class: "grant" });
    bar.style.width = `${capacity ? (100 * (capacity - free)) / capacity : 0}%`;
    const about = `${percent(capacity ? 1 - free / capacity : NaN)} · ${t("running")} ${count(running)} · ${t("waiting")} ${count(waiting)}`;
    const choose = el("button", { type: "button", "aria-pressed": String(engine === chosen), text: engineName(engine, this.app.store.engines) });
    choose.addEventListener("click", () => this.choose(engine.key));
    return el("li", {}, el("span", { class: "pair" }, choose, el("span", { class: "dim", text: about })), bar);
  }
}
