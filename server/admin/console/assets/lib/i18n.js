// The page's language: the browser's at first, then what its reader chose.
import { WORDS } from "./words.js";

const KEPT = "turnout.language";
const listeners = new Set();

function preferred() {
  const kept = localStorage.getItem(KEPT);
  if (kept in WORDS) return kept;
  const wanted = (navigator.languages ?? [navigator.language]).find((tag) => /^(en|zh)\b/i.test(tag));
  return wanted?.toLowerCase().startsWith("zh") ? "zh" : "en";
}

let language = preferred();

export const languageNow = () => language;

/** The words of a key, with `{name}` replaced by values. */
export function t(key, values = {}) {
  const words = WORDS[language][key] ?? WORDS.en[key];
  if (words === undefined) throw new Error(`no words for ${key}`);
  return words.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}

/** Writes an element's words in the present language. */
export function show(node) {
  const { t: text, tLabel, tTitle, tPlaceholder } = node.dataset;
  if (text) node.textContent = t(text);
  if (tLabel) node.setAttribute("aria-label", t(tLabel));
  if (tTitle) node.title = t(tTitle);
  if (tPlaceholder) node.placeholder = t(tPlaceholder);
}

export function setLanguage(chosen) {
  language = chosen;
  localStorage.setItem(KEPT, chosen);
  showAll();
  for (const listener of listeners) listener();
}

export function showAll() {
  document.documentElement.lang = language === "zh" ? "zh-Hans" : "en";
  for (const node of document.querySelectorAll("[data-t], [data-t-label], [data-t-title], [data-t-placeholder]")) show(node);
}

export const onLanguage = (listener) => listeners.add(listener);
