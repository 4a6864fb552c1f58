// An answer as it is streamed: text, reasoning, tool calls, and tokens whose probability shows on hover.
import { el, tip } from "../../lib/dom.js";
import { percent } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";

export class Answer {
  constructor(log, { chat, prompt }) {
    this.prompt = prompt;
    this.text = "";
    /** Whether the request failed before any text came. */
    this.failed = false;
    this.pieces = 0;
    this.log = log;
    this.body = el("div", { class: "said", dir: "auto" });
    this.reasoning = el("div", { class: "said dim", dir: "auto" });
    this.calls = new Map();
    if (chat) {
      log.append(el("div", { class: "turn user" }, el("h2", { t: "you" }), el("div", { class: "said asked", dir: "auto", text: prompt })));
      log.append(el("div", { class: "turn" }, el("h2", { t: "assistant" }), this.reasoning, this.body));
    } else log.append(el("div", { class: "turn" }, el("div", { class: "said dim asked", dir: "auto", text: prompt }), this.body));
    this.#end();
  }

  /** The question and the answer as the API takes them. */
  get turns() {
    return [
      { role: "user", content: this.prompt },
      { role: "assistant", content: this.text },
    ];
  }

  /** Takes a choice of an event; says whether it brought any text. */
  take(choice) {
    if (!choice) return false;
    const { delta = {} } = choice;
    const text = choice.text ?? delta.content ?? "";
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
    const tokens = logprobsOf(choice.logprobs);
    if (text && tokens.map(({ token }) => token).join("") === text) this.body.append(...tokens.map((token) => this.#token(token)));
    else if (text) this.body.append(text); // tokens may be markers, parts of characters, or of other text
    if (reasoning) this.reasoning.append(reasoning);
    for (const call of delta.tool_calls ?? []) this.#call(call);
    this.text += text;
    const brought = Boolean(text || reasoning || delta.tool_calls?.length);
    if (brought) this.pieces += Math.max(1, tokens.length);
    this.#end();
    return brought;
  }

  /** Says why the request failed. */
  fail(text) {
    this.failed = !this.text;
    this.note(text);
  }

  /** Says why the answer ended early. */
  note(text) {
    this.body.append(el("p", { class: "bad", role: "alert", text }));
    this.#end();
  }

  #token({ token, logprob, others }) {
    const node = el("span", { class: "token", text: token });
    node.style.setProperty("--doubt", String(Math.min(1, -logprob / 4)));
    const pairs = () => [["probability", percent(Math.exp(logprob))], ...others.map(([text, each]) => ["others", `${JSON.stringify(text)} ${percent(Math.exp(each))}`])];
    node.addEventListener("pointermove", (event) => tip(pairs(), event));
    node.addEventListener("pointerleave", () => tip(null));
    return node;
  }

  #call({ index = 0, function: called = {} }) {
    if (!this.calls.has(index)) {
      const shown = { name: el("p", { class: "dim" }), args: el("code") };
      this.body.append(shown.name, shown.args);
      this.calls.set(index, shown);
    }
    const { name, args } = this.calls.get(index);
    if (called.name) name.textContent = t("tool_call", { name: called.name });
    if (called.arguments) args.append(called.arguments);
  }

  #end() {
    this.log.scrollTop = this.log.scrollHeight;
  }
}

/** Both APIs' forms as [{token, logprob, others: [[text, logprob], …]}]. */
function logprobsOf(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) {
    return logprobs.content.map(({ token, logprob, top_logprobs: top = [] }) => ({ token, logprob, others: top.map((one) => [one.token, one.logprob]) }));
  }
  const { tokens = [], token_logprobs: chosen = [], top_logprobs: top = [] } = logprobs;
  return tokens.map((token, at) => ({ token, logprob: chosen[at] ?? 0, others: Object.entries(top?.[at] ?? {}) }));
}
