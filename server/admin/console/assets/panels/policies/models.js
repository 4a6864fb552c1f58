// The models behind the port: which are loaded, and loading, unloading and pinning them.
import { askJson } from "../../lib/api.js";
import { el } from "../../lib/dom.js";
import { count, duration, percent } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { stateWords } from "../../lib/server_words.js";
import { notice } from "../../shell/notice.js";

const EVERY_MS = 2000;
const BUSY_MS = 500;

export class Models {
  constructor(app) {
    this.app = app;
    this.body = el("div");
    this.node = el("div", { class: "card", hidden: true }, el("h2", { t: "models" }), this.body);
  }

  draw() {
    if (this.app.store.recorded || this.app.feed.state !== "live") return;
    if (performance.now() - (this.asked ?? -Infinity) > (this.busy ? BUSY_MS : EVERY_MS)) this.#ask();
  }

  async #ask() {
    this.asked = performance.now();
    try {
      this.#show(await askJson("admin/models"));
    } catch (error) {
      this.node.hidden = false;
      this.body.replaceChildren(el("p", { class: "bad", text: error.message }));
    }
    setTimeout(this.app.refresh, this.busy ? BUSY_MS : EVERY_MS); // an engine that is not loaded sends no news
  }

  #show({ models }) {
    this.node.hidden = models.length < 2 && !models.some(comesAndGoes);
    this.busy = models.some(({ state }) => state === "loading" || state === "unloading");
    const shown = JSON.stringify([models, t("models")]);
    if (shown === this.shown) return;
    this.shown = shown;
    const head = ["model", "state", "waiting", "loads", ""].map((key, at) => (key ? el("th", { scope: "col", class: at > 1 && "number", t: key }) : el("td")));
    const rows = models.map((model) => this.#row(model));
    const focused = document.activeElement?.dataset.does;
    this.body.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)));
    if (focused) [...this.body.querySelectorAll("button")].find((button) => button.dataset.does === focused)?.focus();
  }

  #row(model) {
    const { name, state, pinned, waiting, loads } = model;
    const button = (action, able = true) => el("button", { type: "button", t: action, "data-does": `${action} ${name}`, disabled: !able, onclick: () => this.#act(action, name) });
    const buttons = [
      state === "loaded" || state === "unloading" ? button("unload", state === "loaded" && !pinned) : button("load", state !== "loading"),
      button(pinned ? "unpin" : "pin"),
    ];
    return el(
      "tr",
      { "data-model": name },
      el("th", { scope: "row", text: name }),
      el("td", {}, stateWords(state), facts(model)),
      [waiting, loads].map((number) => el("td", { class: "number", text: count(number) })),
      el("td", {}, el("span", { class: "bar" }, buttons)),
    );
  }

  async #act(action, model) {
    if (action === "unload" && !confirm(t("confirm_unload", { name: model }))) return;
    try {
      this.#show(await askJson("admin/models", { method: "POST", body: { action, model } }));
      this.asked = performance.now() - EVERY_MS + BUSY_MS; // what comes of it is seen soon
      setTimeout(this.app.refresh, 2 * BUSY_MS);
      notice("");
    } catch (error) {
      notice(error.message);
    }
  }
}

/** Whether there is more to tell of a server's only model than that it is there. */
const comesAndGoes = ({ state, loads, unloads_in: left }) => state !== "loaded" || loads > 0 || left !== null;

function facts({ pinned, progress, reason, retry_in: retry, load_seconds: took, unloads_in: left }) {
  const told = [
    pinned && t("pinned"),
    progress !== null && percent(progress),
    took > 0 && t("load_took", { time: duration(took) }),
    left !== null && t("unloads_in", { time: duration(left) }),
    retry > 0 && t("retry_in", { time: duration(retry) }),
  ];
  const dim = told.filter(Boolean).map((text) => el("div", { class: "dim", text }));
  return reason ? [el("div", { class: "bad", text: reason }), ...dim] : dim;
}
