// Which stretch of time the timeline shows, and how it moves.
const [LEAST, MOST] = [0.2, 6 * 3600];

export class View {
  constructor(store) {
    this.store = store;
    this.seconds = 30;
    this.end = 0;
    this.follow = true;
  }

  /** [from, to]; the present stands a little before the right edge. */
  get range() {
    const to = this.follow ? this.store.now + this.seconds * 0.02 : this.end;
    return [to - this.seconds, to];
  }

  /** Moves by a share of the window. */
  pan(share) {
    this.end = this.range[1] + share * this.seconds;
    this.follow = !this.store.recorded && this.end >= this.store.now && share > 0;
  }

  /** Zooms by a factor, so that the time at `share` of the window stays in its place. */
  zoom(factor, share = 1) {
    const [from, to] = this.range;
    const fixed = from + share * (to - from);
    this.seconds = Math.min(MOST, Math.max(LEAST, this.seconds * factor));
    this.end = fixed + (1 - share) * this.seconds;
  }

  /** Shows all of a recording. */
  whole([from, to]) {
    this.follow = false;
    const length = Math.max(LEAST, to - from);
    this.seconds = Math.min(MOST, length * 1.04);
    this.end = to + length * 0.02;
  }
}
