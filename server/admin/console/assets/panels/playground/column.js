// One column of the playground: a model, its parameters, and the conversation with it.
import { ask, events } from "../../lib/api.js";
import { el, offer } from "../../lib/dom.js";
import { count, duration } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { Answer } from "./answer.js";
import { wordsOf } from "./refusal.js";

const NUMBERS = { temperature: ["0.7", "0.1"], top_p: ["1", "0.05"], max_tokens: ["128", "1"], seed: ["", "1"] };

export class Column {
  #attempt = null;

  constructor(name) {
    this.name = name;
    this.chat = true;
    this.answers = [];
    this.model = el("select", { tLabel: "model" });
    this.arm = el("select", { tLabel: "arm" });
    this.armLabel = el("label", { hidden: true }, el("span", { t: "arm" }), this.arm);
    this.fields = {};
    for (const [field, [value, step]] of Object.entries(NUMBERS)) this.fields[field] = el("input", { type: "number", min: "0", step, value, class: "narrow" });
    this.logprobs = el("input", { type: "checkbox" });
    this.session = el("input", { tPlaceholder: "session_hint", autocomplete: "off" });
    this.system = el("textarea", { rows: "2", dir: "auto" });
    this.tools = el("textarea", { rows: "2", tPlaceholder: "tools_hint", spellcheck: "false", class: "mono" });
    this.log = el("div", { class: "log", tabindex: "0", role: "log", tLabel: "message" });
    this.figures = el("p", { class: "dim told", role: "status" });
    this.node = el("div", { class: "card column" }, this.#parameters(), this.log, this.figures);
  }

  #parameters() {
    const labelled = (name, key, node) => el("label", {}, key ? el("span", { t: key }) : name, node);
    const numbers = Object.entries(this.fields).map(([field, node]) => labelled("", field, node));
    const bar = el("div", { class: "bar" }, labelled("", "model", this.model), this.armLabel, numbers, labelled("", "logprobs", this.logprobs));
    const more = el("details", {}, el("summary", { t: "options" }), labelled("", "session", this.session), labelled("", "system", this.system), labelled("", "tools", this.tools));
    return el("div", {}, bar, more);
  }

  offer(models) {
    offer(this.model, models.map((name) => [name, name]));
  }

  /** Offers the arms of an A/B test, each by a session that belongs to it. */
  offerArms(arms) {
    const known = arms.filter((arm) => arm.state === "serving" && arm.session).map((arm) => [arm.session, arm.name]);
    this.armLabel.hidden = known.length < 2;
    offer(this.arm, [["", t("any")], ...known]);
  }

  setChat(chat) {
    this.chat = chat;
    this.clear();
  }

  clear() {
    this.stop();
    this.answers = [];
    this.log.replaceChildren();
    this.figures.textContent = "";
  }

  stop() {
    this.#attempt?.abort();
  }

  /** Whether the fields can be sent: the tools must be a list. */
  get ready() {
    return !this.chat || this.#tools() !== null;
  }

  /** Sends a message. An answer that still streams is stopped; the part that came stays before the new question. */
  async send(text) {
    this.stop();
    this.figures.textContent = "";
    const attempt = (this.#attempt = new AbortController());
    const body = this.#body(text);
    const answer = new Answer(this.log, { chat: this.chat, prompt: text });
    this.answers.push(answer);
    try {
      await this.#read(body, answer, attempt.signal);
    } catch (error) {
      if (attempt.signal.aborted) answer.note(t("stopped"));
      else answer.fail(wordsOf(error));
    }
  }

  #body(text) {
    const body = { model: this.model.value, stream: true, stream_options: { include_usage: true } };
    for (const [field, node] of Object.entries(this.fields)) if (node.value !== "") body[field] = Number(node.value);
    if (!this.chat) return { ...body, prompt: text, ...(this.logprobs.checked ? { logprobs: 5 } : {}) };
    const system = this.system.value.trim() ? [{ role: "system", content: this.system.value }] : [];
    const before = this.answers.filter((answer) => !answer.failed).flatMap((answer) => answer.turns);
    Object.assign(body, { messages: [...system, ...before, { role: "user", content: text }] });
    if (this.logprobs.checked) Object.assign(body, { logprobs: true, top_logprobs: 5 });
    const tools = this.#tools();
    return tools?.length ? { ...body, tools } : body;
  }

  /** The tools of a request; null where the field holds no list. */
  #tools() {
    if (!this.tools.value.trim()) return [];
    try {
      const tools = JSON.parse(this.tools.value);
      return Array.isArray(tools) ? tools : null;
    } catch {
      return null;
    }
  }

  async #read(body, answer, signal) {
    const began = performance.now();
    const path = this.chat ? "v1/chat/completions" : "v1/completions";
    const session = this.session.value.trim() || (this.armLabel.hidden ? "" : this.arm.value);
    const headers = session ? { "X-Session-Id": session } : {};
    const response = await ask(path, { kind: "api", method: "POST", body, signal, headers });
    const arm = response.headers.get("X-Turnout-Arm");
    let first = null;
    let usage = null;
    for await (const { data } of events(response)) {
      signal.throwIfAborted(); // an event that was read before the stop may come after it
      if (data === "[DONE]") break;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      usage = event.usage ?? usage;
      if (answer.take(event.choices?.[0])) first ??= performance.now();
      this.#tell({ began, first, usage, arm, answer });
    }
  }

  #tell({ began, first, usage, arm, answer }) {
    const now = performance.now();
    const tokens = usage?.completion_tokens ?? answer.pieces;
    const parts = [];
    if (first !== null) parts.push(`${t("ttft")} ${duration((first - began) / 1000)}`);
    if (tokens > 1 && now > first) parts.push(`${count((tokens - 1) / ((now - first) / 1000))} ${t("tokens_per_s")}`);
    parts.push(`${count(tokens)} ${t("tokens")}`);
    if (arm) parts.push(`${t("answered_by")} ${decodeURIComponent(arm)}`);
    this.figures.textContent = parts.join(" · ");
  }
}
