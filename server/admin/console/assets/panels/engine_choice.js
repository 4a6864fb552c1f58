// A choice of one engine, or of all, where there are several.
import { el, offer } from "../lib/dom.js";
import { t } from "../lib/i18n.js";
import { engineName } from "../data/store.js";

export class EngineChoice {
  /** `all`: whether all engines together are a choice too. */
  constructor({ store, refresh }, { all = false } = {}) {
    [this.store, this.refresh, this.all] = [store, refresh, all];
    this.select = el("select", { tLabel: "engine", onchange: refresh });
    this.node = el("label", { hidden: true }, el("span", { t: "engine" }), this.select);
  }

  choose(key) {
    this.select.value = key;
    this.refresh();
  }

  /** The engine that is chosen; null for all, or without any. */
  now() {
    const { engines } = this.store;
    const options = [...engines.values()].map((engine) => [engine.key, engineName(engine, engines)]);
    offer(this.select, this.all ? [["", t("every")], ...options] : options);
    this.node.hidden = engines.size < 2;
    return engines.get(this.select.value) ?? (this.all ? null : (engines.values().next().value ?? null));
  }
}
