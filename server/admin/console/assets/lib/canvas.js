// Canvases that are sharp on every screen, the theme's colours for them, and the patterns that tell states apart without colour.
const style = getComputedStyle(document.documentElement);
let colours = new Map();
let patterns = new Map();

export function colour(name) {
  if (!colours.has(name)) colours.set(name, style.getPropertyValue(`--${name}`).trim());
  return colours.get(name);
}

/** To be called when the theme changed. */
export function forgetColours() {
  colours = new Map();
  patterns = new Map();
}

/** The 2D context of a canvas whose pixels are the screen's; width and height are in CSS pixels. */
export function context(canvas) {
  const scale = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  const ctx = canvas.getContext("2d");
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  return { ctx, width, height };
}

const DRAWN = {
  dots: (ctx) => [[2, 2], [6, 6]].forEach(([x, y]) => ctx.fillRect(x - 0.5, y - 0.5, 1.6, 1.6)),
  hatch: (ctx) => lines(ctx, [[-2, 2, 2, -2], [0, 8, 8, 0], [6, 10, 10, 6]]),
  grid: (ctx) => lines(ctx, [[0, 4, 8, 4], [4, 0, 4, 8]]),
  cross: (ctx) => lines(ctx, [[0, 8, 8, 0], [0, 0, 8, 8]]),
  pale: () => {},
};

function lines(ctx, all) {
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  for (const [x, y, toX, toY] of all) {
    ctx.moveTo(x, y);
    ctx.lineTo(toX, toY);
  }
  ctx.stroke();
}

/** A fill: the colour itself (`solid`), or a pattern of it on a thin ground of it. */
export function fill(ctx, name, kind) {
  if (kind === "solid") return colour(name);
  const key = `${name}/${kind}`;
  if (!patterns.has(key)) patterns.set(key, drawnPattern(ctx, colour(name), kind));
  return patterns.get(key);
}

function drawnPattern(ctx, paint, kind) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const on = tile.getContext("2d");
  on.fillStyle = on.strokeStyle = paint;
  on.globalAlpha = kind === "pale" ? 0.4 : 0.22;
  on.fillRect(0, 0, 8, 8);
  on.globalAlpha = 1;
  DRAWN[kind](on);
  return ctx.createPattern(tile, "repeat");
}

/** Colour and pattern of a request's phases and of the KV pool's blocks. */
export const PHASES = { waiting: "dots", prefill: "solid", decode: "solid", preempted: "hatch", swapped: "cross" };
export const BLOCKS = { held: "solid", shared: "hatch", pinned: "grid", cached: "dots", swapped: "cross", free: "solid" };

/** A small picture of a state, for legends: by canvas, since the page's CSP allows no inline images. */
export function swatch(name, kind) {
  const canvas = document.createElement("canvas");
  canvas.className = "swatch";
  canvas.width = 18;
  canvas.height = 12;
  canvas.setAttribute("aria-hidden", "true");
  paintSwatch(canvas, name, kind);
  canvas.dataset.swatch = `${name} ${kind}`;
  return canvas;
}

function paintSwatch(canvas, name, kind) {
  const ctx = canvas.getContext("2d");
  ctx.clearRect(0, 0, 18, 12);
  ctx.fillStyle = fill(ctx, name, kind);
  ctx.fillRect(0, 0, 18, 12);
  ctx.strokeStyle = colour(name);
  ctx.strokeRect(0.5, 0.5, 17, 11);
}

export function repaintSwatches() {
  for (const canvas of document.querySelectorAll("[data-swatch]")) paintSwatch(canvas, ...canvas.dataset.swatch.split(" "));
}
