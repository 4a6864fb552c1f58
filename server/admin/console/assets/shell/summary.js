// The figures that stand above every panel.
import { el } from "../lib/dom.js";
import { languageNow, t } from "../lib/i18n.js";
import { count, duration, percent } from "../lib/format.js";
import { gathered } from "../data/series.js";

const OVER_SECONDS = 10;

export class Summary {
  constructor(app) {
    this.app = app;
    this.cells = new Map();
    const list = document.getElementById("summary");
    for (const key of ["state", "scheduler", "output_rate", "running", "waiting", "kv_used", "ttft_p50", "tpot_p50", "preemptions"]) {
      const value = el("dd", { text: "–" });
      list.append(el("div", {}, el("dt", { t: key }), value));
      this.cells.set(key, value);
    }
  }

  draw() {
    const { store, feed } = this.app;
    const engines = [...store.engines.values()];
    const sum = (name) => engines.reduce((all, engine) => all + (engine.stats?.[name] ?? 0), 0);
    const latest = gathered(engines.map((engine) => engine.series), store.at - OVER_SECONDS, store.at, OVER_SECONDS).at(-1);
    const full = sum("kv_capacity");
    this.#state(store.recorded ? "recording" : feed.state);
    this.#put("scheduler", [...new Set(engines.map((engine) => engine.scheduler).filter(Boolean))].join(", ") || "–");
    this.#put("output_rate", count(rate(engines, store.at)), t("tokens_per_s"));
    this.#put("running", count(sum("running")));
    this.#put("waiting", count(sum("waiting")));
    this.#put("kv_used", full ? percent(1 - sum("kv_free") / full) : "–");
    this.#put("ttft_p50", duration(latest?.ttft));
    this.#put("tpot_p50", duration(latest?.tpot));
    this.#put("preemptions", count(sum("preemptions")));
  }

  #state(state) {
    const shown = state === "key" ? "connecting" : state;
    const signature = `${shown}/${languageNow()}`;
    if (this.shownState === signature) return;
    this.shownState = signature;
    const kind = { live: "dot live", recording: "dot live", lost: "dot lost", refused: "dot lost" }[shown] ?? "dot";
    this.cells.get("state").replaceChildren(el("span", { class: kind }), t(shown));
  }

  #put(key, text, unit = "") {
    const cell = this.cells.get(key);
    const wanted = unit ? `${text} ${unit}` : text;
    if (cell.textContent === wanted) return;
    cell.replaceChildren(text, ...(unit ? [" ", el("small", { text: unit })] : []));
  }
}

/** Output tokens a second over the last whole seconds. */
function rate(engines, now) {
  const to = Math.floor(now);
  return engines.reduce((sum, { series }) => sum + series.sum("output_tokens", to - 5, to - 1), 0) / 5;
}
