// English and Japanese. The page's own words are looked up by their English; what the server says, by its code.

import { cell } from "./shared.js";
import { get } from "./server.js";

const KEY = "kaname.language";
const chosen = () => localStorage.getItem(KEY) || (navigator.language.toLowerCase().startsWith("ja") ? "ja" : "en");

export const language = cell(chosen());
const notices = cell({});
let ja = {};

export function speak(which) {
  localStorage.setItem(KEY, which);
  prepare(which).then(() => language.set(which));
}

export async function prepare(which = language.get()) {
  document.documentElement.lang = which;
  if (which !== "ja" || Object.keys(ja).length) return;
  const [own, others] = await Promise.all([import("./ja.js"), get("page/notices.json").catch(() => ({}))]);
  ja = own.ja;
  notices.set(others);
}

export const japanese = () => language.get() === "ja";

const filled = (template, values) =>
  template.replace(/\{\{|\}\}|\{(\w+)(![rs])?(?::[^}]*)?\}/g, (whole, name, quoted) => {
    if (!name) return whole[0]; // a brace that is meant
    if (!values || !(name in values)) return whole;
    const value = values[name];
    return quoted === "!r" && typeof value === "string" ? `'${value}'` : typeof value === "object" ? notice(value) : `${value}`;
  });

// The page's own words.
export function t(english, values) {
  return filled((japanese() && ja[english]) || english, values);
}

// What the server says: {text, code, values}. A text that was put together has no code, but parts.
export function notice(said, fallback = "") {
  if (!said || typeof said !== "object") return said == null ? fallback : `${said}`;
  if (Array.isArray(said)) return said.map(one => notice(one)).join(", ");
  const parts = said.values?.parts;
  if (!said.code && Array.isArray(parts)) return parts.map(one => notice(one)).join(notice(said.values.between) || "");
  const known = japanese() && notices.get()[said.code];
  return known ? filled(known, said.values) : (said.text ?? fallback);
}

// A problem, in the reader's words.
export const problemText = problem => notice(problem?.notice, "") || t(problem?.detail || `${problem}`);
