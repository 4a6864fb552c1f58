// Where the cells of a pool lie on a canvas: as large as they all fit, several blocks a cell where there are too many.
import { BLOCKS, colour, context, fill } from "../../lib/canvas.js";

const [LEAST, MOST] = [5, 44];
/** Of the blocks in one cell, the first of these is shown. */
const TELLING = ["pinned", "shared", "held", "swapped", "cached", "free"];

/** {cells, each (blocks that one stands for), size, across, width, height}; `blocks`: that a cell of the feed stands for. */
export function gridOf(cells, blocks, width, height) {
  const fits = (size) => Math.floor(width / size) * Math.floor(height / size);
  const merged = Math.max(1, Math.ceil(cells.length / Math.max(1, fits(LEAST))));
  const shown = merged === 1 ? cells : mergedCells(cells, merged);
  let size = LEAST;
  while (size < MOST && fits(size + 1) >= shown.length) size += 1;
  return { cells: shown, each: blocks * merged, size, across: Math.max(1, Math.floor(width / size)), width, height };
}

function mergedCells(cells, merged) {
  const found = [];
  for (let place = 0; place < cells.length; place += merged) {
    const telling = cells.slice(place, place + merged).sort((a, b) => TELLING.indexOf(a.state) - TELLING.indexOf(b.state));
    found.push(telling[0]);
  }
  return found;
}

/** The cell at a point of the canvas. */
export function cellAt({ cells, size, across }, x, y) {
  const column = Math.floor(x / size);
  return column < across ? cells[Math.floor(y / size) * across + column] : undefined;
}

/** Draws a grid; the cells of the request `lit` are framed. */
export function drawGrid(canvas, { cells, size, across }, lit) {
  const { ctx, width, height } = context(canvas);
  const gap = size > 8 ? 2 : 1;
  const place = (at) => [(at % across) * size, Math.floor(at / across) * size];
  ctx.fillStyle = colour("back");
  ctx.fillRect(0, 0, width, height);
  for (const [state, kind] of Object.entries(BLOCKS)) {
    ctx.fillStyle = fill(ctx, state, kind);
    cells.forEach((cell, at) => {
      if (cell.state === state) ctx.fillRect(...place(at), size - gap, size - gap);
    });
  }
  if (!lit) return;
  ctx.strokeStyle = colour("text");
  ctx.lineWidth = gap;
  cells.forEach((cell, at) => {
    const [x, y] = place(at);
    if (cell.id === lit) ctx.strokeRect(x + gap / 2, y + gap / 2, size - 2 * gap, size - 2 * gap);
  });
}
