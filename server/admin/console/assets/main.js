// Starts the console: the feed or a recording fills the store, and the panel in front draws it.
import { ask } from "./lib/api.js";
import { onLanguage, showAll } from "./lib/i18n.js";
import { Store } from "./data/store.js";
import { Feed } from "./data/feed.js";
import { Recording } from "./data/recording.js";
import { Tabs } from "./shell/tabs.js";
import { Player } from "./shell/player.js";
import { Summary } from "./shell/summary.js";
import { watchForKey } from "./shell/login.js";
import { buildTools } from "./shell/tools.js";
import { connectionNotice, notice } from "./shell/notice.js";
import * as timeline from "./panels/timeline/timeline.js";
import * as memory from "./panels/memory/memory.js";
import * as decisions from "./panels/decisions.js";
import * as policies from "./panels/policies/policies.js";
import * as playground from "./panels/playground/playground.js";
import * as figures from "./panels/figures.js";

let changed = true;
let drawn = 0;
const store = new Store();
const feed = new Feed(store);
const app = { store, feed, refresh: () => (changed = true), openText };
const FRAME_MS = matchMedia("(prefers-reduced-motion: reduce)").matches ? 500 : 32;

showAll();
const summary = new Summary(app);
const player = new Player(app);
const tabs = new Tabs({ timeline, memory, decisions, policies, playground, figures }, app);
buildTools(app);

store.addEventListener("change", app.refresh);
feed.addEventListener("change", app.refresh);
addEventListener("resize", app.refresh);
onLanguage(app.refresh);
requestAnimationFrame(frame);
start();

/** Draws at most 30 times a second, and only what changed or moves. */
function frame(now) {
  if (now - drawn >= FRAME_MS && (changed || tabs.moves)) {
    drawn = now;
    if (changed) summary.draw();
    changed = false;
    tabs.draw();
  }
  requestAnimationFrame(frame);
}

/** Watches the server; with `?trace=FILE`, which `turnout view` adds, it shows that file instead. */
async function start() {
  const file = new URLSearchParams(location.search).get("trace");
  if (file === null) {
    watchForKey(feed);
    feed.run();
    return;
  }
  try {
    openText(await (await ask(`console/${file}`)).text());
  } catch (error) {
    notice(error.message);
  }
}

/** Shows a recording in place of what is live, until the page is loaded again. */
function openText(text) {
  try {
    app.recording = new Recording(store, text);
    feed.stop();
    player.open(app.recording);
    connectionNotice("");
    notice("");
  } catch (error) {
    notice(error.message, { key: error.message.startsWith("file_") });
  }
}
