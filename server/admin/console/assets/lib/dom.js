// Elements made of data. Text is only ever put in as text: nothing here, or elsewhere in the page, parses markup.
import { show } from "./i18n.js";

/** An element. `on*`: a listener; `t`, `tLabel`, `tTitle`, `tPlaceholder`: keys of words, which follow the language. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setOne(node, name, value);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const KEYS = { t: "t", tLabel: "tLabel", tTitle: "tTitle", tPlaceholder: "tPlaceholder" };

function setOne(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name in KEYS) {
    node.dataset[KEYS[name]] = value;
    show(node);
  } else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (name === "text") node.textContent = value;
  else if (name === "value") node.value = value;
  else node.setAttribute(name, value === true ? "" : value);
}

/** A list of facts: [[word's key, text], …]. */
export function facts(pairs, attributes = { class: "facts" }) {
  const list = el("dl", attributes);
  for (const [key, text] of pairs) list.append(el("dt", { t: key }), el("dd", { dir: "auto", text: String(text) }));
  return list;
}

/** A button that says by aria-pressed whether it is on. */
export function toggle(key, pressed, change) {
  const button = el("button", { type: "button", t: key, "aria-pressed": String(pressed) });
  button.addEventListener("click", () => {
    const now = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(now));
    change(now);
  });
  return button;
}

/** Makes a <select> offer `options` ([[value, text], …]) and keeps its choice, without touching it if nothing changed. */
export function offer(select, options) {
  const known = [...select.options].map((option) => `${option.value}\n${option.textContent}`).join("\0");
  if (known === options.map(([value, text]) => `${value}\n${text}`).join("\0")) return;
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value, text })));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

const tooltip = document.getElementById("tooltip");

/** Shows facts beside the pointer; none hide it. */
export function tip(pairs, event) {
  if (!pairs) {
    tooltip.hidden = true;
    return;
  }
  tooltip.replaceChildren(facts(pairs, {}));
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const right = event.clientX + 14 + width > innerWidth ? event.clientX - width - 10 : event.clientX + 14;
  tooltip.style.left = `${Math.max(4, right)}px`;
  tooltip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 8))}px`;
}
