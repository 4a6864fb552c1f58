// Recorded and simulated runs: files of the feed's events, which can be shown as of any moment.
const FORMAT = 1;
const MAX_STEPS = 50_000;
/** The last moment that can be shown, in seconds: beyond it, parts of a second have no numbers. */
const LATEST = 1e11;
const MOST_CELLS = 2 ** 20;

export class Recording {
  /** Raises an Error with the key of words that say what is wrong. */
  constructor(store, text) {
    [this.store, this.events, this.next] = [store, checkedEvents(text), 0];
    store.recorded = true;
    store.maxSteps = MAX_STEPS;
    store.forget();
    this.seek(this.events.length);
    const arrivals = [...store.requests.values()].map((request) => request.arrival);
    this.range = [arrivals.reduce((a, b) => Math.min(a, b), this.events[0].at), this.events.at(-1).at];
  }

  /** Shows the run after its first `number` events. */
  seek(number) {
    if (number < this.next) {
      this.store.forget();
      this.next = 0;
    }
    while (this.next < number) {
      this.store.apply(this.events[this.next]);
      this.next += 1;
    }
  }
}

function checkedEvents(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("file_not_json");
  }
  if (file?.turnout_trace !== FORMAT || !Array.isArray(file.events)) throw new Error("file_not_trace");
  if (!file.events.length) throw new Error("file_empty");
  if (!file.events.every(canBeShown)) throw new Error("file_beyond");
  return file.events;
}

function canBeShown(event) {
  if (!(Math.abs(event?.at) <= LATEST)) return false;
  return (event.engines ?? []).every((engine) => (engine.kv?.runs ?? []).reduce((cells, run) => cells + run[1], 0) <= MOST_CELLS);
}
