// The cells of a KV pool, from one look at it to the next: whose each is, since when, and who computed what is cached there.

/** [{state, run, id, pin, users, since, sure, had}, …] of a pool at a time. `before`: the cells of the look before, if any.
 *
 * `id`: the request that holds it; `pin`: the pinned prefix that it is of; `since`: when it was first seen like this, `sure`
 * whether it was another before; `had`: the last request seen to hold what is cached. */
export function cellsOf(kv, at, before = []) {
  const cells = pooled(kv);
  const known = before.length === cells.length;
  cells.forEach((cell, place) => follow(cell, known ? before[place] : null, at));
  return cells;
}

function pooled({ runs, owners = [], holders = [], pins = [] }) {
  const cells = [];
  for (const run of runs) for (let left = run[1]; left > 0; left -= 1) cells.push({ state: run[0], run, id: null, pin: null, users: 0 });
  let place = 0;
  for (const [owner, users, many] of owners) {
    for (const cell of owner ? cells.slice(place, place + many) : []) {
      cell.users = users;
      if (owner > 0) cell.id = holders[owner - 1];
      else cell.pin = pins[-owner - 1];
      if (cell.pin !== null && cell.state === "cached") cell.state = "pinned";
    }
    place += many;
  }
  return cells;
}

function follow(cell, before, at) {
  const keeps = cell.state === "cached" || cell.state === "pinned";
  const same = before !== null && before.state === cell.state && before.id === cell.id;
  cell.since = same ? before.since : at;
  cell.sure = same ? before.sure : before !== null;
  cell.had = keeps && before ? (before.id ?? before.had) : null;
}
