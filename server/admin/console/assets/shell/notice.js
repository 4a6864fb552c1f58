// The line below the tabs that says what went wrong, to screen readers too.
import { show } from "../lib/i18n.js";

const line = document.getElementById("notice");
const said = { panel: null, connection: null };

/** Says something of the panel in front, until another is opened; nothing takes it away. `key`: the text is a key of words. */
export function notice(text, { key = false } = {}) {
  say("panel", text, key);
}

/** Says something of the connection, whichever panel is in front. */
export function connectionNotice(text, { key = false } = {}) {
  if (!text && said.connection) said.panel = null; // what failed while the server was away
  say("connection", text, key);
}

function say(of, text, key) {
  said[of] = text ? { text, key } : null;
  const shown = said.panel ?? said.connection;
  delete line.dataset.t;
  line.textContent = shown?.text ?? "";
  if (!shown?.key) return;
  line.dataset.t = shown.text;
  show(line);
}
