// The arms of an A/B test: what the test can tell so far, and the buttons that end it.
import { askJson } from "../../lib/api.js";
import { el } from "../../lib/dom.js";
import { count, percent } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { findingWords, stateWords, verdictWords } from "../../lib/server_words.js";
import { notice } from "../../shell/notice.js";
import { queryOf } from "./policies.js";

export class Arms {
  constructor(app) {
    this.app = app;
    this.body = el("div");
    this.node = el("div", { class: "card" }, el("h2", { t: "arms" }), this.body);
  }

  draw(engine) {
    const report = this.app.store.arms;
    const shown = JSON.stringify([report, engine?.model, t("arms")]);
    if (shown === this.shown) return;
    this.shown = shown;
    if (!report?.arms) {
      this.body.replaceChildren(el("p", { class: "dim", t: "no_arms" }));
      return;
    }
    const tables = Object.entries(report.comparison?.differences ?? {}).map(([name, rows]) => verdicts(rows, report.comparison.base ?? report.arms[0].name, name));
    const blocks = el("p", { class: "dim", text: t("blocks_so_far", { number: report.comparison?.blocks ?? 0 }) });
    const findings = (report.comparison?.findings ?? []).map((text) => el("p", { class: "bad", text: findingWords(text) }));
    this.body.replaceChildren(this.#arms(report, engine), ...tables, blocks, ...findings);
  }

  #arms({ arms }, engine) {
    const rows = arms.map((arm) => {
      const changes = Object.entries(arm.changes ?? {}).map(([name, value]) => `${name}=${value}`).join(", ");
      const still = this.app.store.recorded || arm.state !== "serving" || arms.filter((one) => one.state === "serving").length < 2;
      const button = (action) => el("button", { type: "button", t: action, disabled: still, onclick: () => this.#act(action, arm.name, engine) });
      const name = el("th", { scope: "row" }, el("strong", { text: arm.name }), changes ? el("div", {}, el("code", { text: changes })) : null);
      const state = el("td", {}, stateWords(arm.state), arm.reason ? el("div", { class: "bad", text: arm.reason }) : null);
      return el("tr", { "data-arm": arm.name }, name, state, el("td", { class: "number", text: percent(arm.share) }), el("td", {}, el("span", { class: "bar" }, button("promote"), button("stop"))));
    });
    const head = ["arm", "state", "share", ""].map((key) => (key ? el("th", { scope: "col", class: key === "share" && "number", t: key }) : el("td")));
    return el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows));
  }

  async #act(action, arm, engine) {
    if (!confirm(t(`confirm_${action}`, { name: arm }))) return;
    try {
      const { model } = queryOf(engine, this.app.store);
      this.app.store.arms = await askJson("admin/ab", { method: "POST", body: { action, arm }, query: { model } });
      notice("");
    } catch (error) {
      notice(error.message);
    }
    this.app.refresh();
  }
}

/** A row a metric, as `GET /admin/ab` has them: both arms' figures, the change with its interval, the verdict. */
function verdicts(rows, base, other) {
  const named = (text) => el("th", { scope: "col", class: "number", text });
  const told = (key) => el("th", { scope: "col", class: key === "change" && "number", t: key });
  const head = [told("metric"), named(base), named(other), told("change"), told("verdict")];
  const lines = rows.map((row) => {
    const figure = (value) => (value ? `${count(value)} ${row.unit}` : "–"); // 0: nothing was measured yet
    const cells = [row.metric, figure(row.base), figure(row.other), change(row), verdictWords(row.verdict ?? "")];
    return el("tr", {}, cells.map((text, at) => el("td", { text, class: at > 0 && at < 4 && "number" })));
  });
  return el("table", { class: "verdicts" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, lines));
}

function change({ change: middle, low, high }) {
  const share = (value) => `${value > 0 ? "+" : ""}${percent(value)}`;
  if (!Number.isFinite(middle)) return "–";
  return Number.isFinite(low) ? `${share(middle)} (${share(low)} … ${share(high)})` : share(middle);
}
