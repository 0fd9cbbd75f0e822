// Format times, durations, money, numbers and states.

import { may, me } from "./shared.js";
import { japanese, t } from "./words.js";

const locale = () => (japanese() ? "ja-JP" : "en-GB");
const pad = value => `${value}`.padStart(2, "0");

export function clock(stamp) {
  const at = new Date(stamp * 1000);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

export function day(stamp) {
  const at = new Date(stamp * 1000);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
}

// The time; with the date if it is not today.
export function when(stamp) {
  const at = new Date(stamp * 1000);
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}`;
  if (at.toDateString() === new Date().toDateString()) return time;
  const year = at.getFullYear() === new Date().getFullYear() ? "" : `${at.getFullYear()}-`;
  return `${year}${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${time}`;
}

export function durationText(seconds) {
  if (seconds == null) return "–";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 99.95) return `${seconds.toFixed(1)} s`;
  const minutes = Math.round(seconds / 60);
  const [min, hour, days] = japanese() ? [" 分", " 時間", " 日"] : [" min", " h", " d"];
  if (minutes < 100) return `${minutes}${min}`;
  return minutes < 60 * 48
    ? `${Math.floor(minutes / 60)}${hour} ${minutes % 60}${min}`
    : `${Math.round(minutes / 1440)}${days}`;
}

// An unknown cost is shown as unknown, not as zero.
export function money(cost) {
  if (cost == null) return t("price unknown");
  if (cost === 0) return "$0";
  return cost < 0.001 ? `$${cost.toPrecision(2)}` : cost < 1 ? `$${cost.toFixed(4)}` : `$${cost.toFixed(2)}`;
}

export const count = value => new Intl.NumberFormat(locale()).format(value);

// Every state has a sign, a word and a colour: the colour alone is not enough.
const STATES = {
  running: ["◐", "running", "work"],
  waiting: ["◆", "waiting for an answer", "wait"],
  interrupted: ["◌", "interrupted", "wait"],
  completed: ["●", "completed", "good"],
  degraded: ["◍", "completed in part", "good"],
  failed: ["✕", "failed", "bad"],
  cancelled: ["■", "cancelled", "soft"],
  blocked: ["⊘", "blocked", "bad"],
  max_steps: ["▣", "step limit", "bad"],
  duplicate: ["▣", "repeat limit", "bad"],
  tool_limit: ["▣", "tool limit", "bad"],
  deadline: ["▣", "time limit", "bad"],
  budget: ["▣", "budget", "bad"],
  undecodable: ["✕", "answer not readable", "bad"],
  incomplete: ["◑", "answer incomplete", "bad"],
};
export const STATUSES = Object.keys(STATES);
export function state(status) {
  const [sign, word, tone] = STATES[status] || ["·", status, "soft"];
  return { sign, word: t(status === "waiting" && may("approve") ? "waiting for you" : word), tone };
}

// The author of a message: "you" only for the reader's own; empty where no user is recorded.
export const other = user => (user === me.get()?.name ? "" : user || "");
export const by = user => (user === me.get()?.name ? t("you") : other(user));

export const shorten = (text, most = 120) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// Escape characters that hide or reorder others, as core/people/visible.py does.
const HIDING = /[\p{C}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0]/gu;
const LOOSE = /(?<=^|\s|[\ufe00-\ufe0f\u{e0100}-\u{e01ef}])[\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;
const escapeUnits = char =>
  char
    .split("")
    .map(unit => `\\u${unit.charCodeAt().toString(16).padStart(4, "0")}`)
    .join("");
export const visible = text =>
  text.replace(LOOSE, escapeUnits).replace(HIDING, char => (/[\n\t]/.test(char) ? char : escapeUnits(char)));

// The same in one line, for names and keys.
export const visibleLine = text => visible(text).replace(/[\n\t]/g, escapeUnits);

// A value as in a call: texts in quotes, the rest as JSON.
export function value(given, most = Infinity) {
  const text = typeof given === "string" ? JSON.stringify(given) : (JSON.stringify(given) ?? "");
  return shorten(visible(text), most);
}
export function callText(name, args, most = 160) {
  const told =
    typeof args === "string"
      ? args
      : Object.entries(args || {})
          .map(([key, one]) => `${/^[\p{L}\p{N}_.-]+$/u.test(key) ? key : JSON.stringify(key)}=${value(one, 60)}`)
          .join(", ");
  return shorten(visibleLine(`${name}(${told})`), most);
}
export const asText = given => (typeof given === "string" ? given : given == null ? "" : JSON.stringify(given, null, 1));

// Parse the text if it is JSON, otherwise return it.
export const parseLoosely = text => {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};
