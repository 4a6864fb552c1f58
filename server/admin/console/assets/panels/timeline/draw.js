// Draws the timeline: axis, bars and marks, and the strip of memory and queue below, on the same axis.
import { colour, context, fill, PHASES } from "../../lib/canvas.js";
import { clock, duration, short } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";

export const AXIS = 22;
export const GUTTER = 128;
/** The least height of a row that has room for a name. */
export const LEAST_NAMED = 11;
const STEPS = [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];

/** `scene`: {requests, rows, height (of a row), top (scrolled), from, to, now, chosen, gutter} */
export function drawBars(canvas, scene) {
  const { ctx, width, height } = context(canvas);
  const x = scale(scene, width);
  ctx.fillStyle = colour("panel");
  ctx.fillRect(0, 0, width, height);
  drawAxis(ctx, scene, x, width, height);
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, width, height - AXIS);
  ctx.clip();
  const seen = scene.requests.map((request) => ({ request, y: top(scene, request) })).filter(({ y }) => y > -scene.height && y < height);
  drawPhases(ctx, scene, x, seen, width);
  drawMarks(ctx, scene, x, seen);
  if (scene.gutter) drawNames(ctx, scene, seen, height);
  drawChosen(ctx, scene, seen, width);
  ctx.restore();
  drawNow(ctx, scene, x, height);
}

const top = (scene, request) => AXIS + 2 + scene.rows.get(request) * scene.height - scene.top;

export function scale({ from, to, gutter }, width) {
  const left = gutter ? GUTTER : 0;
  const factor = (width - left) / (to - from);
  const x = (at) => left + (at - from) * factor;
  x.left = left;
  x.time = (at) => from + (at - left) / factor;
  return x;
}

function drawAxis(ctx, { from, to, now, follow }, x, width, height) {
  const step = STEPS.find((one) => (one * (width - x.left)) / (to - from) >= 90) ?? STEPS.at(-1);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  const origin = follow ? now : 0; // times are told from now, or from the day's (or the run's) beginning
  const first = origin + Math.ceil((from - origin) / step) * step;
  const marks = Math.min(Math.floor((to - first) / step), width);
  for (let mark = 0; mark <= marks; mark += 1) {
    const at = first + mark * step;
    ctx.fillStyle = colour("soft");
    ctx.fillRect(Math.round(x(at)), AXIS - 4, 1, height);
    ctx.fillStyle = colour("dim");
    const label = follow ? ago(now - at) : clockAt(at, step);
    const over = x(at) + 6 + ctx.measureText(label).width > width;
    if (x(at) >= x.left) ctx.fillText(label, over ? x(at) - 4 - ctx.measureText(label).width : x(at) + 4, AXIS / 2);
  }
}

const clockAt = (at, step) => (step >= 1 || at < 1e8 ? clock(at) : `${clock(at)}.${String(Math.round((at % 1) * 1000)).padStart(3, "0")}`);

function ago(seconds) {
  if (Math.abs(seconds) < 1e-6) return t("now");
  return `−${seconds < 1 ? duration(seconds) : seconds < 120 ? `${Number(seconds.toFixed(2))} s` : `${Number((seconds / 60).toFixed(2))} min`}`;
}

/** Phase by phase, since a change of the fill costs more than a bar. */
function drawPhases(ctx, scene, x, seen, width) {
  const gap = scene.height > 6 ? 2 : 1;
  const tall = scene.height - gap;
  for (const [phase, kind] of Object.entries(PHASES)) {
    ctx.fillStyle = fill(ctx, phase, tall < 5 && kind === "dots" ? "pale" : kind);
    for (const { request, y } of seen) {
      for (const span of request.spans) {
        if (span.phase !== phase) continue;
        const [left, right] = edges(span, scene, x, width);
        if (right <= left) continue;
        const quiet = phase === "waiting" && tall > 6;
        if (phase === "decode" && request.breadths.length) drawSequences(ctx, request, { left, right, y, tall }, x);
        else ctx.fillRect(left, quiet ? y + tall * 0.22 : y, right - left, quiet ? tall * 0.56 : tall);
        if (phase === "prefill" && span.end === null) drawProgress(ctx, request, left, right, y, tall);
      }
    }
  }
}

/** A bar of several sequences: a stripe for each, as long as it runs. The one that ends first is at the bottom. */
function drawSequences(ctx, { breadths }, { left, right, y, tall }, x) {
  const most = Math.max(...breadths.map((one) => one.number));
  const each = tall / most;
  const gap = each >= 3 ? 1 : 0;
  const edge = (at) => Math.min(right, Math.max(left, at === undefined ? right : x(at)));
  breadths.forEach(({ at, number }, place) => {
    const [from, to] = [edge(at), edge(breadths[place + 1]?.at)];
    for (let stripe = 0; stripe < number; stripe += 1) ctx.fillRect(from, y + stripe * each, to - from, each - gap);
  });
  if (edge(breadths[0].at) > left) ctx.fillRect(left, y, edge(breadths[0].at) - left, tall);
}

function edges(span, { now, from, to }, x, width) {
  const end = span.end ?? Math.max(now, span.start);
  if (end < from || span.start > to) return [0, 0];
  const left = Math.max(x.left, x(span.start));
  return [left, Math.min(width, Math.max(x(end), x(span.start) + 1))];
}

/** What is still to be computed of a prompt stays pale. */
function drawProgress(ctx, request, left, right, y, tall) {
  const done = Math.min(1, (request.computed ?? 0) / Math.max(1, request.prompt_tokens));
  const edge = left + (right - left) * done;
  ctx.save();
  ctx.globalAlpha = 0.65;
  ctx.fillStyle = colour("panel");
  ctx.fillRect(edge, y + 1, Math.max(0, right - edge - 1), Math.max(1, tall - 2));
  ctx.restore();
}

function drawMarks(ctx, scene, x, seen) {
  const tall = Math.max(3, scene.height - 2);
  for (const { request, y } of seen) {
    if (request.ended !== null) drawEnd(ctx, request, x(request.ended), y, tall, x.left);
    for (const { kind, at } of request.marks) {
      if (x(at) > x.left) drawMark(ctx, kind, x(at), y, tall);
    }
  }
}

function drawEnd(ctx, request, at, y, tall, left) {
  if (at < left) return;
  const failed = request.finish_reason === "error" || request.finish_reason === "abort";
  ctx.fillStyle = colour(failed ? "bad" : "text");
  ctx.fillRect(at, y, failed ? 3 : 1.5, tall);
}

/** ▸ where an engine took a request up again after a crash, ◆ where another engine did. */
function drawMark(ctx, kind, at, y, tall) {
  const middle = y + tall / 2;
  const size = Math.min(7, tall / 2 + 1);
  ctx.beginPath();
  ctx.moveTo(at + size, middle);
  ctx.lineTo(at, middle - size);
  if (kind === "moved") ctx.lineTo(at - size, middle);
  ctx.lineTo(at, middle + size);
  ctx.closePath();
  ctx.fillStyle = colour("text");
  ctx.strokeStyle = colour("panel");
  ctx.lineWidth = 1.5;
  ctx.stroke();
  ctx.fill();
}

function drawNames(ctx, scene, seen, height) {
  ctx.fillStyle = colour("panel");
  ctx.fillRect(0, AXIS, GUTTER - 4, height);
  ctx.font = "11px ui-monospace, Menlo, Consolas, monospace";
  ctx.textBaseline = "middle";
  for (const { request, y } of seen) {
    ctx.fillStyle = colour(request.ended === null ? "text" : "dim");
    ctx.fillText(fitting(request), 4, y + scene.height / 2 - 1);
  }
}

/** Written as text on the canvas, whatever is in it; control characters would only be boxes. */
const fitting = (request) => {
  const name = request.client || short(request.id);
  return name.length > 17 ? `${name.slice(0, 16)}…` : name;
};

function drawChosen(ctx, scene, seen, width) {
  const found = seen.find(({ request }) => request.id === scene.chosen);
  if (!found) return;
  ctx.strokeStyle = colour("accent");
  ctx.lineWidth = 1.5;
  ctx.strokeRect(0.75, found.y - 1.5, width - 1.5, scene.height + 1);
}

function drawNow(ctx, { now }, x, height) {
  ctx.fillStyle = colour("accent");
  ctx.globalAlpha = 0.6;
  if (x(now) > x.left) ctx.fillRect(x(now), AXIS - 4, 1, height);
  ctx.globalAlpha = 1;
}

/** The share of KV memory in use as an area, and running and waiting requests as lines. */
export function drawStrip(canvas, scene, points, words) {
  const { ctx, width, height } = context(canvas);
  const x = scale(scene, width);
  ctx.fillStyle = colour("panel");
  ctx.fillRect(0, 0, width, height);
  if (points.length) {
    const most = Math.max(1, ...points.map((point) => Math.max(point.running, point.waiting)));
    const y = (share) => height - 3 - share * (height - 8);
    area(ctx, points.map((point) => [x(point.at), y(point.kv)]), height, "shared", x.left);
    line(ctx, points.map((point) => [x(point.at), y(point.running / most)]), "decode", [], x.left);
    line(ctx, points.map((point) => [x(point.at), y(point.waiting / most)]), "waiting", [4, 3], x.left);
  }
  drawKey(ctx, words);
}

function drawKey(ctx, words) {
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  ctx.globalAlpha = 0.8;
  ctx.fillStyle = colour("panel");
  ctx.fillRect(2, 4, 24 + Math.max(...words.map(([text]) => ctx.measureText(text).width)), 52);
  ctx.globalAlpha = 1;
  words.forEach(([text, name], row) => {
    ctx.fillStyle = colour(name);
    ctx.fillRect(6, 12 + row * 16, 10, 3);
    ctx.fillStyle = colour("text");
    ctx.fillText(text, 22, 14 + row * 16);
  });
}

function area(ctx, points, bottom, name, left) {
  ctx.save();
  clipRight(ctx, left);
  ctx.beginPath();
  ctx.moveTo(points[0][0], bottom);
  for (const [x, y] of points) ctx.lineTo(x, y);
  ctx.lineTo(points.at(-1)[0], bottom);
  ctx.fillStyle = colour(name);
  ctx.globalAlpha = 0.25;
  ctx.fill();
  ctx.restore();
  line(ctx, points, name, [], left);
}

function line(ctx, points, name, dash, left) {
  ctx.save();
  clipRight(ctx, left);
  ctx.beginPath();
  points.forEach(([x, y], at) => (at ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.strokeStyle = colour(name);
  ctx.lineWidth = 1.5;
  ctx.setLineDash(dash);
  ctx.stroke();
  ctx.restore();
}

function clipRight(ctx, left) {
  ctx.beginPath();
  ctx.rect(left, 0, 1e5, 1e5);
  ctx.clip();
}
