// Requests to the server that this page came from. Keys are kept for this tab alone.
const ROOT = new URL(location.pathname.replace(/console\/?$/, ""), location.origin);
const KEPT = { admin: "turnout.admin_key", api: "turnout.api_key" };

/** What the server refused, with its status and its own words. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const keyOf = (kind) => sessionStorage.getItem(KEPT[kind]) ?? "";

export function keepKey(kind, key) {
  if (key) sessionStorage.setItem(KEPT[kind], key);
  else sessionStorage.removeItem(KEPT[kind]);
}

/** Forgets all keys, those in the fields of the page too. */
export function forgetKeys() {
  for (const kind of Object.keys(KEPT)) keepKey(kind, "");
  for (const field of document.querySelectorAll("input[type=password]")) field.value = "";
}

/** The response to a request, as it starts. Raises Refusal, or TypeError where there is no server. */
export async function ask(path, { kind = "admin", method = "GET", body, signal, query = {}, headers: more = {} } = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  const headers = { ...more };
  if (keyOf(kind)) headers.Authorization = `Bearer ${keyOf(kind)}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(url, { method, headers, body: sent, signal, cache: "no-store", credentials: "omit" });
  if (!response.ok) throw new Refusal(response.status, await reason(response));
  return response;
}

export const askJson = async (path, options) => (await ask(path, options)).json();

async function reason(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return error?.message ?? error ?? text;
  } catch {
    return text.slice(0, 300) || `HTTP ${response.status}`;
  }
}

/** The server-sent events of a response: [{event, data}], as they come; "" for a comment, which only tells of life. */
export async function* events(response, { alive = () => {} } = {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const parts = (rest + value.replaceAll("\r\n", "\n")).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const found = parsed(part);
      if (found.data) yield found;
    }
  }
}

function parsed(text) {
  const found = { event: "message", data: "" };
  for (const line of text.split("\n")) {
    if (line.startsWith("data:")) found.data += line.slice(5).trimStart();
    else if (line.startsWith("event:")) found.event = line.slice(6).trim();
  }
  return found;
}
