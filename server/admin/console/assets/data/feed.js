// The live feed: reads /admin/live into the store, and comes back when the server does.
import { ask, askJson, events, Refusal } from "../lib/api.js";

const SILENCE_MS = 20_000;
const [FIRST_WAIT_MS, LAST_WAIT_MS] = [400, 5000];

export class Feed extends EventTarget {
  #attempt = null;
  #wake = () => {};

  constructor(store) {
    super();
    this.store = store;
    /** connecting, live, lost (with `reason`), key (a key is wanted; `reason` if one was refused), refused. */
    this.state = "connecting";
    this.reason = "";
  }

  /** Watches for as long as the page is open. */
  async run() {
    let wait = FIRST_WAIT_MS;
    while (!this.stopped) {
      try {
        await this.#watch(() => (wait = FIRST_WAIT_MS));
        this.#become("lost", "");
      } catch (error) {
        if (!this.stopped) this.#fail(error);
      }
      if (this.stopped) return;
      if (this.state === "lost") {
        await Promise.race([pause(wait), new Promise((done) => (this.#wake = done))]);
        wait = Math.min(LAST_WAIT_MS, wait * 1.6);
      } else await new Promise((done) => (this.#wake = done));
    }
  }

  /** Tries again now, after a key was given. */
  retry() {
    this.#become("connecting", "");
    this.#attempt?.abort();
    this.#wake();
  }

  /** Watches no longer: a recording is shown. */
  stop() {
    this.stopped = true;
    this.#attempt?.abort();
  }

  async #watch(connected) {
    const attempt = (this.#attempt = new AbortController());
    this.remembered = false;
    let timer = 0;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => attempt.abort(new TypeError("silence")), SILENCE_MS);
    };
    try {
      alive();
      const response = await ask("admin/live", { signal: attempt.signal });
      for await (const { event, data } of events(response, { alive })) {
        if (event !== "live") continue;
        if (this.stopped) return;
        this.store.apply(JSON.parse(data));
        connected();
        this.#become("live", "");
        this.#remember();
      }
    } finally {
      clearTimeout(timer);
      attempt.abort();
    }
  }

  /** Asks once what the server kept of the last hour. */
  async #remember() {
    if (this.remembered) return;
    this.remembered = true;
    try {
      this.store.remember(await askJson("admin/history"));
    } catch {
      // The connection was lost, as the feed says too: it is asked again with the next one.
    }
  }

  #fail(error) {
    if (!(error instanceof Refusal)) this.#become("lost", "");
    else if (error.status === 401) this.#become("key", error.message);
    else if (error.status === 503) this.#become("lost", error.message);
    else this.#become("refused", error.message);
  }

  #become(state, reason) {
    if (state === this.state && reason === this.reason) return;
    [this.state, this.reason] = [state, reason];
    this.dispatchEvent(new Event("change"));
  }
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
