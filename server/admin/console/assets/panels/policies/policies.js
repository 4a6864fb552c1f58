// Which policies are in place, and the ways to change them: scheduler, models, arms of an A/B test, replicas.
import { el } from "../../lib/dom.js";
import { EngineChoice } from "../engine_choice.js";
import { Arms } from "./arms.js";
import { Models } from "./models.js";
import { Replicas } from "./replicas.js";
import { Scheduler } from "./scheduler.js";

export const mount = (section, app) => new Policies(section, app);

class Policies {
  constructor(section, app) {
    this.app = app;
    this.engine = new EngineChoice(app);
    this.table = el("tbody");
    const head = el("tr", {}, el("th", { scope: "col", t: "kind" }), el("th", { scope: "col", t: "policy" }));
    const inPlace = el("div", { class: "card" }, el("h2", { t: "in_place" }), el("table", { class: "policies" }, el("thead", {}, head), this.table));
    this.parts = [new Scheduler(app), new Models(app), new Arms(app), new Replicas(app)];
    this.note = el("p", { class: "dim", t: "recorded_only", hidden: true });
    const [scheduler, models, arms, replicas] = this.parts.map((part) => part.node);
    section.append(el("div", { class: "bar" }, this.engine.node, this.note));
    section.append(el("div", { class: "columns" }, el("div", {}, inPlace, scheduler), el("div", {}, models, arms, replicas)));
  }

  opened() {
    for (const part of this.parts) part.opened?.();
  }

  draw() {
    const engine = this.engine.now();
    this.note.hidden = !this.app.store.recorded;
    const rows = Object.entries(engine?.policies ?? {});
    const shown = JSON.stringify(rows);
    if (shown !== this.shown) {
      this.shown = shown;
      this.table.replaceChildren(...rows.map(([kind, policy]) => el("tr", {}, el("td", { text: kind }), el("td", {}, el("code", { text: String(policy) })))));
    }
    for (const part of this.parts) part.draw(engine);
  }
}

/** The query that names an engine's model, since others may have no engine now, and its arm where there are several. */
export function queryOf(engine, { engines }) {
  const arms = new Set([...engines.values()].map((one) => one.arm));
  return { model: engine?.model, arm: arms.size > 1 ? engine?.arm : undefined };
}
