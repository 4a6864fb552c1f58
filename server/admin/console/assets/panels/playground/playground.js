// A place to try the server: chat and completion, one column or two side by side, each with its model and parameters.
import { askJson, keepKey, keyOf } from "../../lib/api.js";
import { el, toggle } from "../../lib/dom.js";
import { notice } from "../../shell/notice.js";
import { Column } from "./column.js";
import { keyOfWords } from "./refusal.js";

export const mount = (section, app) => new Playground(section, app);

class Playground {
  constructor(section, { store }) {
    this.section = section;
    this.store = store;
    this.chat = true;
    this.columns = [new Column("1"), new Column("2")];
    this.columns[1].node.hidden = true;
    const both = toggle("side_by_side", false, (on) => (this.columns[1].node.hidden = !on));
    this.modes = ["chat", "completion"].map((mode) => el("button", { type: "button", t: mode, "aria-pressed": String(mode === "chat"), onclick: () => this.#mode(mode) }));
    const key = el("input", { id: "api-key", type: "password", autocomplete: "off", tPlaceholder: "api_key_hint", value: keyOf("api") });
    key.addEventListener("change", () => {
      keepKey("api", key.value.trim());
      this.opened();
    });
    this.text = el("textarea", { id: "prompt", rows: "3", dir: "auto", tLabel: "message", tPlaceholder: "your_prompt" });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#send();
    });
    const send = el("button", { class: "main", type: "button", t: "send", title: "Ctrl+Enter", onclick: () => this.#send() });
    const stop = el("button", { type: "button", t: "cancel", onclick: () => this.columns.forEach((column) => column.stop()) });
    const clear = el("button", { type: "button", t: "clear", onclick: () => this.columns.forEach((column) => column.clear()) });
    const top = el("div", { class: "bar" }, this.modes, both, el("span", { class: "grow" }), el("form", { onsubmit: (event) => event.preventDefault() }, el("label", {}, el("span", { t: "api_key" }), key)));
    section.append(top, el("div", { class: "side" }, this.columns.map((column) => column.node)));
    section.append(el("div", { class: "compose" }, this.text, el("div", { class: "bar" }, send, stop, clear)));
  }

  async opened() {
    if (this.store.recorded) {
      notice("recorded_only", { key: true });
      return;
    }
    try {
      const { data } = await askJson("v1/models", { kind: "api" });
      for (const column of this.columns) column.offer(data.map((model) => model.id));
      this.#say("");
    } catch (error) {
      const key = keyOfWords(error);
      this.#say(key ?? error.message, { key: key !== null });
    }
  }

  /** Says something if the panel is still in front. */
  #say(text, how) {
    if (!this.section.hidden) notice(text, how);
  }

  draw() {
    for (const column of this.columns) column.offerArms(this.store.arms?.arms ?? []);
  }

  #mode(mode) {
    this.chat = mode === "chat";
    this.modes.forEach((button, at) => button.setAttribute("aria-pressed", String((at === 0) === this.chat)));
    for (const column of this.columns) column.setChat(this.chat);
  }

  #send() {
    const text = this.text.value;
    if (!text.trim()) return;
    const columns = this.columns.filter((column) => !column.node.hidden);
    if (!columns.every((column) => column.ready)) {
      notice("tools_wrong", { key: true });
      return;
    }
    notice("");
    if (this.chat) this.text.value = "";
    for (const column of columns) column.send(text);
  }
}
