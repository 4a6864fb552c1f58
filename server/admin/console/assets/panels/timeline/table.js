// The timeline's requests as a table: for screen readers, and for exact figures.
import { el } from "../../lib/dom.js";
import { clock, count, duration } from "../../lib/format.js";
import { t } from "../../lib/i18n.js";
import { timings } from "../../data/store.js";
import { stateName } from "../request_facts.js";

const MOST = 200;
const COLUMNS = ["request", "client", "state", "arrived", "prompt", "cached", "output", "times_preempted", "ttft", "whole"];
const NUMBERS = new Set(["prompt", "cached", "output", "times_preempted", "ttft", "whole"]);

/** Fills a box with the latest requests, live ones first. */
export function fillTable(box, { requests }, now) {
  const order = [...requests].sort((a, b) => (a.ended === null ? 0 : 1) - (b.ended === null ? 0 : 1) || b.arrival - a.arrival);
  const rows = order.slice(0, MOST).map((request) => cells(request, now));
  const shown = JSON.stringify(rows) + t("request");
  if (box.shown === shown) return;
  box.shown = shown;
  const line = (row) => el("tr", {}, row.map((text, at) => el("td", { class: NUMBERS.has(COLUMNS[at]) && "number", dir: "auto", text })));
  const head = COLUMNS.map((key) => el("th", { scope: "col", class: NUMBERS.has(key) && "number", t: key }));
  const more = order.length > MOST ? el("p", { class: "dim", text: t("only_first", { number: MOST }) }) : null;
  box.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows.map(line))), ...(more ? [more] : []));
}

function cells(request, now) {
  const { ttft, whole } = timings(request);
  const marks = [request.resumed && t("resumed"), request.moved_from && t("moved")].filter(Boolean);
  return [
    request.id,
    request.client ?? "",
    [stateName(request), ...marks].join(", "),
    clock(request.arrival),
    count(request.prompt_tokens),
    count(request.cached_tokens ?? 0),
    count(request.output_tokens ?? 0),
    count(request.preemptions ?? 0),
    duration(ttft),
    duration(whole ?? now - request.arrival),
  ];
}
