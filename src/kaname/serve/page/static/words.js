// English and Japanese. Texts of the page are looked up by their English, messages of the server by their code.

import { cell } from "./shared.js";
import { get } from "./server.js";

const KEY = "kaname.language";
const preferredLanguage = () => localStorage.getItem(KEY) || (navigator.language.toLowerCase().startsWith("ja") ? "ja" : "en");

export const language = cell(preferredLanguage());
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

const fill = (template, values) =>
  template.replace(/\{\{|\}\}|\{(\w+)(![rs])?(?::[^}]*)?\}/g, (whole, name, quoted) => {
    if (!name) return whole[0]; // an escaped brace
    if (!values || !(name in values)) return whole;
    const value = values[name];
    return quoted === "!r" && typeof value === "string" ? `'${value}'` : typeof value === "object" ? notice(value) : `${value}`;
  });

// Return a text of the page in the reader's language.
export function t(english, values) {
  return fill((japanese() && ja[english]) || english, values);
}

// Return a message of the server, {text, code, values}. A joined text has parts instead of a code.
export function notice(said, fallback = "") {
  if (!said || typeof said !== "object") return said == null ? fallback : `${said}`;
  if (Array.isArray(said)) return said.map(one => notice(one)).join(", ");
  const parts = said.values?.parts;
  if (!said.code && Array.isArray(parts)) return parts.map(one => notice(one)).join(notice(said.values.between) || "");
  const known = japanese() && notices.get()[said.code];
  return known ? fill(known, said.values) : (said.text ?? fallback);
}

// Return the message of an error in the reader's language.
export const problemText = problem => notice(problem?.notice, "") || t(problem?.detail || `${problem}`);
