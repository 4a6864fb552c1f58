// What the server says in English, in the page's language; words that are not known stay as they are.
import { languageNow } from "./i18n.js";
import { FINDINGS, PARTS, STATES, VERDICTS } from "./words/server_zh.js";

export const stateWords = (state) => (languageNow() === "zh" && Object.hasOwn(STATES, state) ? STATES[state] : state);

export const findingWords = (finding) => inChinese(finding, FINDINGS);
export const verdictWords = (verdict) => inChinese(verdict, VERDICTS, PARTS);

function inChinese(said, forms, parts = []) {
  const known = languageNow() === "zh" && forms.find(([form]) => form.test(said));
  if (!known) return said;
  return parts.reduce((text, [form, words]) => text.replace(form, words), said.replace(...known));
}
