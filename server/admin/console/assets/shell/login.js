// Asks for the admin key when the server wants one; it is kept in this tab's session alone.
import { keepKey, keyOf } from "../lib/api.js";
import { el } from "../lib/dom.js";

export function watchForKey(feed) {
  const key = el("input", { type: "password", id: "admin-key", autocomplete: "current-password", required: true });
  const wrong = el("p", { class: "bad", role: "alert" });
  const form = el(
    "form",
    {},
    el("h2", { t: "key_title" }),
    el("p", { class: "dim", t: "key_why" }),
    el("label", { for: "admin-key", class: "visually-hidden", t: "key_title" }),
    key,
    wrong,
    el("button", { class: "main", t: "key_enter" }),
  );
  const dialog = el("dialog", { tLabel: "key_title" }, form);
  document.body.append(dialog);
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    keepKey("admin", key.value.trim());
    feed.retry();
  });
  feed.addEventListener("change", () => react(feed, dialog, key, wrong));
}

function react(feed, dialog, key, wrong) {
  if (feed.state === "key") {
    const refused = keyOf("admin") !== "";
    wrong.replaceChildren(refused ? el("span", { t: "key_wrong" }) : "");
    keepKey("admin", "");
    if (!dialog.open) dialog.showModal();
    key.select();
  } else if (feed.state === "live" && dialog.open) {
    dialog.close();
    key.value = "";
  }
}
