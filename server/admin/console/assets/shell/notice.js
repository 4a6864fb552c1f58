// The line below the tabs that says what went wrong, to screen readers too.
import { t } from "../lib/i18n.js";

const line = document.getElementById("notice");

/** Says something; nothing takes the line away. `key`: the text is a key of words. */
export function notice(text, { key = false, values = {} } = {}) {
  line.textContent = key ? t(text, values) : text;
}
