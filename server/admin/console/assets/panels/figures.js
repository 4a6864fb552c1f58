// Figures over the last hour, as far as this page was open: no Prometheus needed.
import { el } from "../lib/dom.js";
import { colour, context } from "../lib/canvas.js";
import { clock, count, duration, percent } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { gathered } from "../data/series.js";
import { EngineChoice } from "./engine_choice.js";

const CHARTS = [
  { key: "throughput", unit: "per_second", format: count, lines: [["output", "decode", "output"], ["prefill", "prefill", "prefill"]] },
  { key: "queue", format: count, lines: [["running", "decode", "running"], ["waiting", "waiting", "waiting"]] },
  { key: "kv_share", format: percent, most: 1, lines: [["kv", "shared", "kv_used"]] },
  { key: "ttft", format: duration, lines: [["ttft", "decode", "p50"], ["ttft95", "prefill", "p95"]] },
  { key: "tpot", format: duration, lines: [["tpot", "decode", "p50"], ["tpot95", "prefill", "p95"]] },
  { key: "preemptions", unit: "per_minute", format: count, lines: [["preemptions", "preempted", "preemptions"]] },
];
const WINDOWS = [1, 5, 15, 60];
const LEFT = 52;

export const mount = (section, app) => new Figures(section, app);

class Figures {
  constructor(section, app) {
    this.app = app;
    this.engine = new EngineChoice(app, { all: true });
    this.window = el("select", { tLabel: "window", onchange: app.refresh });
    this.charts = CHARTS.map((chart) => ({ ...chart, canvas: el("canvas", { class: "chart", role: "img" }), now: el("span", { class: "now" }) }));
    const cards = this.charts.map(({ key, unit, canvas, now, lines }) =>
      el("div", { class: "card" }, el("h2", {}, el("span", { t: key }), unit ? [" · ", el("span", { t: unit })] : [], now), canvas, keys(lines)),
    );
    section.append(el("div", { class: "bar" }, this.engine.node, el("label", {}, el("span", { t: "window" }), this.window), el("span", { class: "dim", t: "page_gathers" })));
    section.append(el("div", { class: "cards charts" }, cards));
  }

  draw() {
    const { store } = this.app;
    if (!this.window.options.length || this.language !== t("figures")) this.#offer();
    const engine = this.engine.now();
    const series = (engine ? [engine] : [...store.engines.values()]).map((one) => one.series);
    const to = store.at;
    const from = this.app.recording ? this.app.recording.range[0] : Math.max(to - Number(this.window.value) * 60, began(series, to));
    const seconds = Math.max(1, Math.ceil((to - from) / 240));
    const points = gathered(series, from, to, seconds);
    for (const chart of this.charts) drawChart(chart, points, from, to);
  }

  #offer() {
    this.language = t("figures");
    const chosen = this.window.value || "5";
    this.window.replaceChildren(...WINDOWS.map((number) => el("option", { value: number, text: t("minutes", { number }) })));
    this.window.value = chosen;
  }
}

/** When the figures begin, and a minute ago at the latest. */
const began = (series, to) => Math.min(to - 60, ...series.map((one) => one.first ?? to));

function keys(lines) {
  if (lines.length < 2) return null;
  return el("div", { class: "keys dim", "aria-hidden": "true" }, lines.map(([, name, key], at) =>
    el("span", { class: `key ${name} ${at ? "dashed" : ""}` }, key.startsWith("p") && /\d/.test(key) ? key : el("span", { t: key })),
  ));
}

function drawChart(chart, points, from, to) {
  const { ctx, width, height } = context(chart.canvas);
  const values = chart.lines.flatMap(([field]) => points.map((point) => point[field])).filter(Number.isFinite);
  const most = chart.most ?? niceMost(Math.max(0, ...values));
  const x = (at) => LEFT + ((at - from) / (to - from || 1)) * (width - LEFT - 4);
  const y = (value) => height - 20 - (value / most) * (height - 30);
  ctx.clearRect(0, 0, width, height);
  drawGrid(ctx, { width, height, most, from, to, x, y, format: chart.format });
  chart.lines.forEach(([field, name], at) => drawLine(ctx, points, field, name, at, x, y));
  const last = points.findLast((point) => Number.isFinite(point[chart.lines[0][0]]))?.[chart.lines[0][0]];
  chart.now.textContent = last === undefined ? "–" : chart.format(last);
  const label = t("figures_label", { name: t(chart.key), last: chart.now.textContent, most: values.length ? chart.format(Math.max(...values)) : "–" });
  chart.canvas.setAttribute("aria-label", label);
}

function drawGrid(ctx, { width, height, most, from, to, x, y, format }) {
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) {
    ctx.fillStyle = colour("soft");
    ctx.fillRect(LEFT, Math.round(y(share * most)), width - LEFT, 1);
    ctx.fillStyle = colour("dim");
    ctx.textAlign = "right";
    ctx.fillText(plain(format(share * most)), LEFT - 6, y(share * most));
  }
  ctx.textAlign = "left";
  ctx.fillText(clock(from), LEFT, height - 7);
  ctx.textAlign = "right";
  ctx.fillText(clock(to), x(to), height - 7);
  ctx.textAlign = "left";
}

/** Without zeros that say nothing: 2.50 as 2.5, 20.0 s as 20 s. */
const plain = (text) => text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");

/** Gaps stay gaps: where nothing ended, there is no latency. */
function drawLine(ctx, points, field, name, number, x, y) {
  ctx.beginPath();
  let drawing = false;
  let before = null;
  for (const point of points) {
    const known = Number.isFinite(point[field]);
    if (known && drawing && point.at - before < 60) ctx.lineTo(x(point.at), y(point[field]));
    else if (known) {
      ctx.moveTo(x(point.at), y(point[field]));
      ctx.lineTo(x(point.at) + 1.5, y(point[field]));
    }
    if (known) [drawing, before] = [true, point.at];
  }
  ctx.strokeStyle = colour(name);
  ctx.lineWidth = 1.75;
  ctx.setLineDash(number ? [5, 3] : []);
  ctx.stroke();
  ctx.setLineDash([]);
}

function niceMost(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= value);
}
