// What there is to say of a request: for tooltips, details and tables.
import { t } from "../lib/i18n.js";
import { clock, count, duration } from "../lib/format.js";
import { timings } from "../data/store.js";

/** [[word's key, text], …] */
export function requestFacts(request, now) {
  const { ttft, tpot, whole } = timings(request);
  const found = [
    ["request", request.id],
    ["client", request.client || "–"],
    ["state", stateName(request)],
    ["arrived", clock(request.arrival)],
    ["prompt", `${count(request.prompt_tokens)} (${t("cached")} ${count(request.cached_tokens ?? 0)})`],
    ["output", t("of_at_most", { now: count(request.output_tokens ?? 0), most: count(request.max_tokens) })],
    ["ttft", duration(ttft)],
    ["whole", duration(whole ?? now - request.arrival)],
  ];
  if (request.n > 1) found.push(["sequences", t("of_all", { now: running(request), all: request.n })]);
  if (tpot !== null) found.push(["tpot", duration(tpot)]);
  if (request.priority) found.push(["priority", request.priority]);
  if (request.preemptions) found.push(["times_preempted", request.preemptions]);
  if (request.moved_from) found.push(["moved", request.moved_from]);
  if (request.resumed) found.push(["resumed", "✓"]);
  return found;
}

/** How many of its sequences run. */
const running = ({ ended, breadths, state }) => (ended !== null ? 0 : (breadths.at(-1)?.number ?? (state === "decode" ? 1 : 0)));

/** The state in words, with why it ended. */
export function stateName(request) {
  if (request.state !== "ended") return t(request.state);
  return request.finish_reason ? `${t("ended")}: ${request.finish_reason}` : t("ended");
}
