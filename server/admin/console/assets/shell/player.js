// Below the tabs while a recording is open: where in the run one is, and playing it at its own pace.
import { el } from "../lib/dom.js";
import { clock } from "../lib/format.js";

export class Player {
  constructor(app) {
    this.app = app;
    this.slider = el("input", { type: "range", min: "1", tLabel: "moment", oninput: () => this.#go(Number(this.slider.value)) });
    this.button = el("button", { type: "button", t: "play", "aria-pressed": "false", onclick: () => this.#play() });
    this.at = el("span", { class: "mono" });
    this.node = el("div", { class: "bar player", hidden: true }, this.button, this.slider, this.at);
    document.getElementById("notice").before(this.node);
  }

  open(recording) {
    this.recording = recording;
    this.node.hidden = false;
    this.slider.max = recording.events.length;
    this.#go(recording.events.length);
  }

  #go(number) {
    this.recording.seek(number);
    this.slider.value = number;
    this.at.textContent = clock(this.app.store.at);
    this.slider.setAttribute("aria-valuetext", this.at.textContent);
    this.app.refresh();
  }

  #play() {
    const playing = this.button.getAttribute("aria-pressed") !== "true";
    this.button.setAttribute("aria-pressed", String(playing));
    if (!playing) return;
    if (this.recording.next >= this.recording.events.length) this.#go(1);
    const began = { wall: performance.now(), at: this.app.store.at };
    const tick = () => {
      if (this.button.getAttribute("aria-pressed") !== "true") return;
      const at = began.at + (performance.now() - began.wall) / 1000;
      const { events, next } = this.recording;
      let to = next;
      while (to < events.length && events[to].at <= at) to += 1;
      if (to > next) this.#go(to);
      if (to < events.length) requestAnimationFrame(tick);
      else this.button.setAttribute("aria-pressed", "false");
    };
    tick();
  }
}
