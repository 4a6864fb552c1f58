// The tabs: one panel is in front, and only that one is drawn.
import { el } from "../lib/dom.js";
import { notice } from "./notice.js";

export class Tabs {
  constructor(panels, app) {
    this.shown = new Map();
    const list = document.getElementById("tabs");
    for (const [key, panel] of Object.entries(panels)) {
      const tab = el("button", { role: "tab", id: `tab-${key}`, "aria-controls": `panel-${key}`, t: key, type: "button" });
      const section = el("section", { role: "tabpanel", id: `panel-${key}`, "aria-labelledby": `tab-${key}`, hidden: true });
      tab.addEventListener("click", () => this.select(key));
      list.append(tab);
      document.getElementById("panels").append(section);
      this.shown.set(key, { tab, section, panel: panel.mount(section, app) });
    }
    list.addEventListener("keydown", (event) => this.#move(event));
    addEventListener("hashchange", () => this.#follow());
    addEventListener("keydown", (event) => this.#jump(event));
    this.app = app;
    this.#follow();
  }

  /** Whether the panel in front moves without news. */
  get moves() {
    return this.shown.get(this.front).panel.moves?.() ?? false;
  }

  draw() {
    this.shown.get(this.front).panel.draw();
  }

  select(key) {
    if (key !== this.front) notice("");
    this.front = key;
    for (const [name, { tab, section }] of this.shown) {
      tab.setAttribute("aria-selected", String(name === key));
      tab.tabIndex = name === key ? 0 : -1;
      section.hidden = name !== key;
    }
    if (location.hash.slice(1) !== key) history.replaceState(null, "", `#${key}`);
    this.shown.get(key).panel.opened?.();
    this.app.refresh();
  }

  #follow() {
    const wanted = location.hash.slice(1);
    this.select(this.shown.has(wanted) ? wanted : this.shown.keys().next().value);
  }

  #move(event) {
    const keys = [...this.shown.keys()];
    const at = keys.indexOf(this.front);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: keys.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.select(keys[(to + keys.length) % keys.length]);
    this.shown.get(this.front).tab.focus();
  }

  /** Digits choose a panel, except where text is typed. */
  #jump(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    const key = [...this.shown.keys()][Number(event.key) - 1];
    if (key) this.select(key);
  }
}
