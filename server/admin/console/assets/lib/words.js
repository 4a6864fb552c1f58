// The page's words, by key and language.
import { en } from "./words/en.js";
import { zh } from "./words/zh.js";

export const WORDS = { en, zh };
