// The requests with the most positions in memory, or in host memory; what they share counts for each.
import { el, tip } from "../../lib/dom.js";
import { count, duration, short } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { requestFacts, stateName } from "../request_facts.js";

const MOST = 14;
const HOLDING = ["prefill", "decode", "swapped"];

export class Holders {
  /** `light`: called with the id of the request that is pointed at, or null. */
  constructor(app, light) {
    [this.app, this.light] = [app, light];
    this.list = el("ol", { class: "list", tabindex: "0", tLabel: "holders" });
    this.nobody = el("p", { class: "dim", t: "holders_none" });
    this.node = el("div", { class: "card" }, el("h2", { t: "holders" }), this.list, this.nobody);
  }

  draw(engine, kv) {
    const holds = (one) => one.ended === null && one.engine === engine && HOLDING.includes(one.state) && one.computed > 0;
    const all = [...this.app.store.requests.values()].filter(holds).sort((a, b) => b.computed - a.computed);
    this.list.replaceChildren(...all.slice(0, MOST).map((request) => this.#row(request, kv)));
    this.list.hidden = !all.length;
    this.nobody.hidden = all.length > 0;
  }

  #row(request, kv) {
    const { now } = this.app.store;
    const bar = el("span", { class: `grant ${request.state}` });
    bar.style.width = `${Math.min(100, (100 * request.computed) / kv.capacity)}%`;
    const about = [request.client, `${count(request.computed)} ${t("positions")}`, stateName(request), duration(now - request.arrival)];
    const node = el("li", {}, el("span", { class: "who" }, el("code", { text: short(request.id) }), " ", el("bdi", { class: "dim", text: about.filter(Boolean).join(" · ") })), bar);
    node.addEventListener("pointermove", (event) => {
      this.light(request.id);
      tip(requestFacts(request, now), event);
    });
    node.addEventListener("pointerleave", () => {
      this.light(null);
      tip(null);
    });
    return node;
  }
}
