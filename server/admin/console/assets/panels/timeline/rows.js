// Which requests the timeline shows, and in which row each stands.
const HEIGHTS = [18, 14, 11, 8, 6, 5, 4, 3];

/** Requests with something in [from, to] that pass the filters, in order of arrival. */
export function shownRequests(store, { from, to, client, state, engine }) {
  const found = [];
  for (const request of store.requests.values()) {
    if (request.arrival > to || (request.ended ?? Infinity) < from) continue;
    if (client && request.client !== client) continue;
    if (state && !isIn(request, state)) continue;
    if (engine && request.engine !== engine && !request.spans.some((span) => span.engine === engine)) continue;
    found.push(request);
  }
  return found.sort((a, b) => a.arrival - b.arrival || (a.id < b.id ? -1 : 1));
}

/** Besides the present state: whether it was ever preempted, resumed or moved. */
function isIn(request, state) {
  if (state === "preempted") return request.state === state || request.preemptions > 0;
  if (state === "resumed") return Boolean(request.resumed);
  if (state === "moved") return Boolean(request.moved_from) || request.marks.some((mark) => mark.kind === "moved");
  return request.state === state;
}

/** [row of each request, number of rows]. Packed, a row holds several that do not overlap; it stays while one lives. */
export function placed(requests, packed) {
  if (!packed) return [new Map(requests.map((request, row) => [request, row])), requests.length];
  const rows = new Map();
  const free = [];
  for (const request of requests) {
    let row = request.row;
    if (row === undefined || (free[row] ?? -Infinity) > request.arrival) row = free.findIndex((at) => at <= request.arrival);
    if (row < 0) row = free.length;
    request.row = row;
    while (free.length < row) free.push(-Infinity);
    free[row] = request.ended ?? Infinity;
    rows.set(request, row);
  }
  return [rows, free.length];
}

/** The largest height at which all rows fit; it grows back only when there is room to spare, so that rows don't jump. */
export function rowHeight(rows, height, before) {
  const fits = HEIGHTS.find((size) => rows * size <= height) ?? HEIGHTS.at(-1);
  return before !== undefined && fits > before && rows * fits > height * 0.85 ? before : fits;
}
