// What the server says in English, in the page's language; words that are not known stay as they are.
import { languageNow } from "./i18n.js";
import { PARTS, STATES, VERDICTS } from "./words/server_zh.js";

export const stateWords = (state) => (languageNow() === "zh" && Object.hasOwn(STATES, state) ? STATES[state] : state);

export function verdictWords(verdict) {
  const known = languageNow() === "zh" && VERDICTS.find(([form]) => form.test(verdict));
  if (!known) return verdict;
  return PARTS.reduce((text, [form, words]) => text.replace(form, words), verdict.replace(...known));
}
