// Recorded and simulated runs: files of the feed's events, which can be shown as of any moment.
const FORMAT = 1;
const MAX_STEPS = 50_000;

export class Recording {
  /** Raises an Error with the key of words that say what is wrong. */
  constructor(store, text) {
    let file;
    try {
      file = JSON.parse(text);
    } catch {
      throw new Error("file_not_json");
    }
    if (file?.turnout_trace !== FORMAT || !Array.isArray(file.events) || !file.events.length) throw new Error("file_not_trace");
    [this.store, this.events, this.next] = [store, file.events, 0];
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
