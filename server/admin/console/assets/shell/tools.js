// Language, theme, recordings, and forgetting the key: the corner at the top.
import { forgetKeys } from "../lib/api.js";
import { forgetColours, repaintSwatches } from "../lib/canvas.js";
import { el } from "../lib/dom.js";
import { languageNow, setLanguage } from "../lib/i18n.js";
import { connectionNotice } from "./notice.js";

const KEPT_THEME = "turnout.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

export function buildTools(app) {
  const language = el(
    "select",
    { id: "language", tLabel: "language", onchange: () => setLanguage(language.value) },
    el("option", { value: "en", text: "English" }),
    el("option", { value: "zh", text: "中文" }),
  );
  language.value = languageNow();
  document.getElementById("tools").append(fileButton(app), language, themeChoice(app), forgetButton(app));
  feedNotices(app);
}

function themeChoice(app) {
  const options = ["auto", "light", "dark"].map((name) => el("option", { value: name, t: `theme_${name}` }));
  const choice = el("select", { id: "theme", tLabel: "theme" }, options);
  choice.value = localStorage.getItem(KEPT_THEME) ?? "auto";
  const apply = () => {
    const wanted = choice.value === "auto" ? (dark.matches ? "dark" : "light") : choice.value;
    document.documentElement.dataset.theme = wanted;
    forgetColours();
    repaintSwatches();
    app.refresh();
  };
  choice.addEventListener("change", () => {
    localStorage.setItem(KEPT_THEME, choice.value);
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
  return choice;
}

function fileButton(app) {
  const input = el("input", { type: "file", accept: ".json,application/json", class: "visually-hidden", tabindex: "-1", tLabel: "open_file" });
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (file) app.openText(await file.text());
    input.value = "";
  });
  return el("span", {}, input, el("button", { type: "button", t: "open_file", onclick: () => input.click() }));
}

function forgetButton(app) {
  const forget = () => {
    forgetKeys();
    app.feed.retry();
  };
  return el("button", { type: "button", t: "forget_key", onclick: forget });
}

function feedNotices({ feed }) {
  feed.addEventListener("change", () => {
    if (feed.state === "refused") connectionNotice(feed.reason);
    else if (feed.state === "lost") connectionNotice(feed.reason || "lost", { key: !feed.reason });
    else connectionNotice("");
  });
}
