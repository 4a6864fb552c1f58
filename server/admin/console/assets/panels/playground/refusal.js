// What the playground says of a failed request: a refused key is one of the page's own field.
import { keyOf, Refusal } from "../../lib/api.js";
import { t } from "../../lib/i18n.js";

/** The key of words for an error; null where the server's own words are better. */
export function keyOfWords(error) {
  if (!(error instanceof Refusal) || error.status !== 401) return null;
  return keyOf("api") ? "api_key_refused" : "api_key_wanted";
}

export const wordsOf = (error) => (keyOfWords(error) ? t(keyOfWords(error)) : error.message);
