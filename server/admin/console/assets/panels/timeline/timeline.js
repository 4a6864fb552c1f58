// The timeline: a bar for each request, from its arrival through waiting, prefill, decode and preemption to its end.
import { el, facts, offer, tip, toggle } from "../../lib/dom.js";
import { PHASES, swatch } from "../../lib/canvas.js";
import { t } from "../../lib/i18n.js";
import { gathered } from "../../data/series.js";
import { EngineChoice } from "../engine_choice.js";
import { requestFacts } from "../request_facts.js";
import { AXIS, drawBars, drawStrip, LEAST_NAMED, scale } from "./draw.js";
import { placed, rowHeight, shownRequests } from "./rows.js";
import { fillTable } from "./table.js";
import { View } from "./view.js";

const WINDOWS = [5, 15, 30, 60, 300, 900, 3600];
const STATES = ["waiting", "prefill", "decode", "preempted", "swapped", "resumed", "moved", "ended"];

export const mount = (section, app) => new Timeline(section, app);

class Timeline {
  constructor(section, app) {
    this.app = app;
    this.view = new View(app.store);
    this.top = 0;
    this.packed = false;
    this.tabular = false;
    this.chosen = null;
    this.engine = new EngineChoice(app, { all: true });
    this.client = el("select", { id: "client", onchange: app.refresh });
    this.state = el("select", { id: "state", onchange: app.refresh });
    this.window = el("select", { id: "window", onchange: () => this.#setWindow() });
    this.follow = toggle("follow", true, (on) => this.#setFollow(on));
    this.bars = el("canvas", { class: "bars", tabindex: "0", role: "img", tLabel: "timeline_label" });
    this.strip = el("canvas", { class: "strip", role: "img", tLabel: "kv_share" });
    this.table = el("div", { class: "scroll", hidden: true });
    this.empty = el("p", { class: "empty", t: "no_requests" });
    this.told = el("p", { class: "dim told", role: "status" });
    this.details = el("div", { class: "card details", "aria-live": "polite" });
    section.append(this.#controls(), legend(), this.empty, this.bars, this.strip, this.table, this.told, this.details);
    this.#listen();
  }

  #controls() {
    const packed = toggle("packed", false, (on) => this.#set("packed", on));
    const tabular = toggle("as_table", false, (on) => this.#set("tabular", on));
    const labelled = (key, node) => el("label", {}, el("span", { t: key }), node);
    const grow = el("span", { class: "grow" });
    const filters = [this.engine.node, labelled("client", this.client), labelled("state", this.state), labelled("window", this.window)];
    return el("div", { class: "bar" }, filters, grow, tabular, packed, this.follow);
  }

  moves() {
    return this.view.follow && !this.app.store.recorded && !this.tabular && this.app.store.requests.size > 0;
  }

  draw() {
    const { store } = this.app;
    const { recording } = this.app;
    if (recording && this.wholeOf !== recording) {
      this.wholeOf = recording;
      this.view.whole(recording.range);
    }
    this.#offer();
    const scene = this.#scene();
    const any = store.requests.size > 0;
    this.empty.hidden = any;
    this.bars.hidden = this.strip.hidden = !any || this.tabular;
    this.table.hidden = !any || !this.tabular;
    this.details.hidden = this.told.hidden = !any;
    this.follow.setAttribute("aria-pressed", String(this.view.follow));
    if (!any) return;
    this.told.textContent = t("requests_shown", { shown: scene.requests.length, live: scene.requests.filter((one) => one.ended === null).length });
    if (this.tabular) fillTable(this.table, scene, store.now);
    else this.#drawCanvases(scene);
    this.#tell();
  }

  #scene() {
    const { store } = this.app;
    const [from, to] = this.view.range;
    const filters = { from, to, client: this.client.value, state: this.state.value, engine: this.engine.now() };
    const requests = shownRequests(store, filters);
    const [rows, number] = placed(requests, this.packed);
    const room = this.bars.clientHeight - AXIS - 6;
    this.height = rowHeight(number, room, this.height);
    this.most = Math.max(0, number * this.height - room);
    if (this.view.follow && this.most > 0 && this.stick !== false) this.top = this.most;
    this.top = Math.min(this.top, this.most);
    const { height, top, chosen } = this;
    const gutter = !this.packed && height >= LEAST_NAMED && this.bars.clientWidth > 500;
    return { requests, rows, height, top, from, to, now: store.now, chosen, gutter, follow: this.view.follow };
  }

  #drawCanvases(scene) {
    this.shown = scene;
    drawBars(this.bars, scene);
    const engine = this.engine.now();
    const series = (engine ? [engine] : [...this.app.store.engines.values()]).map((one) => one.series);
    const stretch = Math.max(1, Math.ceil((scene.to - scene.from) / 400));
    const words = [[t("kv_used"), "shared"], [t("running"), "decode"], [t("waiting"), "waiting"]];
    drawStrip(this.strip, scene, gathered(series, scene.from - 1, scene.to, stretch), words);
  }

  #offer() {
    const clients = new Set();
    for (const request of this.app.store.requests.values()) if (request.client) clients.add(request.client);
    const all = ["", t("every")];
    offer(this.client, [all, ...[...clients].sort().slice(0, 500).map((name) => [name, name])]);
    offer(this.state, [all, ...STATES.map((state) => [state, t(state)])]);
    const { seconds } = this.view;
    const offered = WINDOWS.map((one) => [String(one), windowWords(one)]);
    offer(this.window, WINDOWS.includes(seconds) ? offered : [...offered, [String(seconds), t("seconds", { number: seconds.toPrecision(2) })]]);
    this.window.value = String(seconds);
  }

  #tell() {
    const request = this.app.store.requests.get(this.chosen);
    const told = request ? JSON.stringify(requestFacts(request, this.app.store.now)) : "";
    if (told === this.last && this.details.childElementCount) return;
    this.last = told;
    const nothing = el("span", { class: "dim", t: "nothing_chosen" });
    this.details.replaceChildren(request ? facts(requestFacts(request, this.app.store.now), { class: "facts wide" }) : nothing);
  }

  #set(name, value) {
    this[name] = value;
    this.app.refresh();
  }

  #setFollow(on) {
    if (!on) this.view.end = this.view.range[1];
    this.view.follow = on && !this.app.store.recorded;
    this.stick = true;
    this.app.refresh();
  }

  #setWindow() {
    this.view.zoom(Number(this.window.value) / this.view.seconds);
    this.app.refresh();
  }

  #listen() {
    const { bars } = this;
    bars.addEventListener("keydown", (event) => this.#key(event));
    bars.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    bars.addEventListener("pointermove", (event) => this.#point(event));
    bars.addEventListener("pointerleave", () => tip(null));
    bars.addEventListener("pointerdown", (event) => (this.drag = { x: event.clientX, y: event.clientY, moved: false }));
    bars.addEventListener("pointerup", (event) => this.#release(event));
  }

  #release(event) {
    if (!this.drag?.moved) this.#choose(this.#under(event)?.id ?? null);
    this.drag = null;
  }

  #choose(id) {
    this.chosen = id;
    this.app.refresh();
  }

  #under(event) {
    if (!this.shown) return null;
    const box = this.bars.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - AXIS - 2 + this.top) / this.height);
    const x = scale(this.shown, this.bars.clientWidth);
    const at = x.time(event.clientX - box.left);
    const here = this.shown.requests.filter((request) => this.shown.rows.get(request) === row);
    return here.find((request) => request.arrival <= at && (request.ended ?? Infinity) >= at) ?? (this.packed ? null : (here[0] ?? null));
  }

  #point(event) {
    if (this.drag && event.buttons) {
      const [across, down] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
      if (!this.drag.moved && Math.hypot(across, down) < 4) return;
      this.drag = { x: event.clientX, y: event.clientY, moved: true };
      this.view.pan(-across / this.bars.clientWidth);
      this.#scroll(-down);
      tip(null);
      return;
    }
    const request = this.#under(event);
    tip(request && requestFacts(request, this.app.store.now), event);
  }

  #scroll(pixels) {
    this.top = Math.max(0, Math.min(this.most, this.top + pixels));
    this.stick = this.top >= this.most;
    this.app.refresh();
  }

  /** Sideways pans, with Ctrl (or a pinch) it zooms at the pointer, else it scrolls the rows. */
  #wheel(event) {
    event.preventDefault();
    const x = scale(this.shown, this.bars.clientWidth);
    const share = (event.clientX - this.bars.getBoundingClientRect().left - x.left) / (this.bars.clientWidth - x.left);
    if (event.ctrlKey || event.metaKey) this.view.zoom(Math.exp(event.deltaY * 0.004), this.view.follow ? 1 : share);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.view.pan((event.deltaX || event.deltaY) / 800);
    else this.#scroll(event.deltaY);
    this.app.refresh();
  }

  #key(event) {
    const keys = {
      ArrowLeft: () => this.view.pan(-0.1),
      ArrowRight: () => this.view.pan(0.1),
      "+": () => this.view.zoom(1 / 1.4),
      "=": () => this.view.zoom(1 / 1.4),
      "-": () => this.view.zoom(1.4),
      ArrowDown: () => this.#step(1),
      ArrowUp: () => this.#step(-1),
      End: () => this.#setFollow(true),
      Escape: () => this.#choose(null),
    };
    if (!(event.key in keys) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
    this.app.refresh();
  }

  /** Chooses the next request, or the one before, and scrolls it into view. */
  #step(by) {
    const { requests, rows } = this.#scene();
    if (!requests.length) return;
    const at = requests.findIndex((request) => request.id === this.chosen);
    const next = requests[at < 0 ? (by > 0 ? 0 : requests.length - 1) : Math.max(0, Math.min(requests.length - 1, at + by))];
    this.chosen = next.id;
    const [y, room] = [rows.get(next) * this.height, this.bars.clientHeight - AXIS - 6];
    if (y < this.top || y + this.height > this.top + room) this.#scroll(y - this.top - room / 2);
  }
}

function legend() {
  const entries = Object.entries(PHASES).map(([phase, kind]) => el("span", { class: "entry" }, swatch(phase, kind), el("span", { t: phase })));
  const marks = [["▸", "resumed"], ["◆", "moved"], ["|", "ended"]].map(([mark, key]) => el("span", { class: "entry" }, mark, " ", el("span", { t: key })));
  return el("div", { class: "bar legend", "aria-hidden": "true" }, entries, marks);
}

function windowWords(seconds) {
  if (seconds < 60) return t("seconds", { number: seconds });
  return seconds < 3600 ? t("minutes", { number: seconds / 60 }) : t("hours", { number: seconds / 3600 });
}
