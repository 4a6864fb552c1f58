// The engines behind the port: what each does, and draining, restarting, removing and adding them.
import { askJson } from "../../lib/api.js";
import { el } from "../../lib/dom.js";
import { count } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { stateWords } from "../../lib/server_words.js";
import { notice } from "../../shell/notice.js";
import { queryOf } from "./policies.js";

const EVERY_MS = 2000;
const ACTIONS = ["drain", "restart", "remove"];

export class Replicas {
  constructor(app) {
    this.app = app;
    this.body = el("div", {}, el("p", { class: "dim", t: "not_asked" }));
    this.add = el("button", { type: "button", t: "add_replica", disabled: true, onclick: () => this.#act("add") });
    this.node = el("div", { class: "card" }, el("h2", { t: "replicas" }), this.body, this.add);
  }

  draw(engine) {
    this.engine = engine;
    if (!engine || this.app.store.recorded || this.app.feed.state !== "live") return;
    if (performance.now() - (this.asked ?? -Infinity) > EVERY_MS) this.#ask();
  }

  async #ask() {
    this.asked = performance.now();
    try {
      this.#show(await askJson("admin/replicas", { query: queryOf(this.engine, this.app.store) }));
    } catch (error) {
      this.body.replaceChildren(el("p", { class: "bad", text: error.message }));
    }
  }

  #show(report) {
    const shown = JSON.stringify([report, t("replicas")]);
    this.add.disabled = false;
    if (shown === this.shown) return;
    this.shown = shown;
    const head = ["replica", "state", "requests", "tokens", "restarts", ""].map((key, at) => (key ? el("th", { scope: "col", class: at > 1 && "number", t: key }) : el("td")));
    const rows = report.replicas.map((replica) => this.#row(replica));
    const router = el("p", { class: "dim" }, el("span", { t: "router" }), " ", el("code", { text: report.router }));
    this.body.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)), router);
  }

  #row({ name, state, requests, tokens, ranks, restarts, reason, worker }) {
    const buttons = ACTIONS.map((action) => el("button", { type: "button", t: action, onclick: () => this.#act(action, name) }));
    const divided = ranks > 1 && el("div", { class: "dim", text: t("ranks", { count: count(ranks) }) });
    const where = [reason && el("div", { class: "bad", text: reason }), worker && el("div", { class: "dim", text: worker }), divided];
    return el(
      "tr",
      {},
      el("th", { scope: "row", text: name }),
      el("td", {}, stateWords(state), where),
      [requests, tokens, restarts].map((number) => el("td", { class: "number", text: count(number) })),
      el("td", {}, el("span", { class: "bar" }, buttons)),
    );
  }

  async #act(action, replica) {
    if (replica !== undefined && !confirm(t("confirm_replica", { action: t(action), name: replica }))) return;
    try {
      const body = replica === undefined ? { action } : { action, replica };
      this.#show(await askJson("admin/replicas", { method: "POST", body, query: queryOf(this.engine, this.app.store) }));
      notice("");
    } catch (error) {
      notice(error.message);
    }
  }
}
