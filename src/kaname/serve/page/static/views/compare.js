// Two runs side by side: what is equal in grey, the first difference marked, and in one sentence what it came to.

import { html, useEffect } from "../vendor/preact.js";
import { get } from "../server.js";
import { link, loadRuns, runs, titleOf, use } from "../shared.js";
import { Chip, Loading, Long, Trouble, useLoaded } from "../parts.js";
import { UNDER_WAY } from "../fold.js";
import { count, lasted, money, short, state } from "../told.js";
import { japanese, notice, t } from "../words.js";

const Side = ({ run }) =>
  html`<div>
    <p>
      <a href=${link(["runs", run.run_id])}><b>${titleOf(run)}</b></a> <${Chip} status=${run.status} />
    </p>
    <p class="meta">
      ${[run.agent, run.model || "–", lasted(run.updated - run.created), `${count(run.usage.input_tokens + run.usage.output_tokens)} ${t("tokens")}`, money(run.usage.cost)].join(" · ")}
    </p>
  </div>`;

const written = ({ kind, sign, text, whose, notice: said }) =>
  `${sign} ${[kind === "stopped" ? state(whose).word : whose, notice(said, text)].filter(Boolean).join(": ")}`.trim();

const brief = line =>
  line ? `${japanese() ? "「" : "“"}${short(written(line).replace(/\s+/g, " "), 70)}${japanese() ? "」" : "”"}` : t("nothing");

function sentence({ runs: [one, other], rows, first }) {
  const ends = [one, other].map(run => state(run.status).word);
  const costs = t("It cost {one} against {other}", { one: money(one.usage.cost), other: money(other.usage.cost) });
  const ended =
    ends[0] === ends[1]
      ? t("both: {state}", { state: ends[0] })
      : t("left: {one}, right: {other}", { one: ends[0], other: ends[1] });
  const [left, right] = rows[first] || [];
  const seq = [...new Set([left, right].filter(Boolean).map(line => line.seq))].join(" / ");
  const found = { seq, one: brief(left), other: brief(right) };
  const told =
    first < 0 ? t("They tell the same story.") : t("First difference at fact {seq}: left {one}, right {other}.", found);
  return `${told} ${costs}${japanese() ? "、" : "; "}${ended}${japanese() ? "。" : "."}`;
}

export default function Compare({ path }) {
  const [, one = "", other = ""] = path;
  use(runs); // for the titles
  const { value, problem, again } = useLoaded(
    signal => get(`api/compare?${new URLSearchParams({ one, other })}`, signal),
    [one, other],
  );
  const going = value?.runs.some(run => UNDER_WAY.has(run.status));
  useEffect(() => {
    const often = going && setInterval(() => document.visibilityState === "visible" && again(), 4000);
    return () => clearInterval(often);
  }, [value]);
  useEffect(() => document.querySelector(".diff .first")?.scrollIntoView({ block: "center" }), [value?.first]);
  useEffect(() => void (runs.get().list || loadRuns()), []);
  if (problem) return html`<${Trouble} problem=${problem} again=${again} />`;
  if (!value) return html`<${Loading} />`;
  const { rows, first } = value;
  const cell = (line, side, kind) =>
    html`<div class=${`${kind} ${side}`}>
      ${line ? html`<a class="seq" href=${link(["runs", line.run], { at: line.seq })} aria-label=${t("fact {seq}", { seq: line.seq })}>${line.seq}</a><span>${short(written(line), 500)}</span>` : html`<span class="note">—</span>`}
    </div>`;
  const items = rows.map(([left, right, same], place) => ({
    left,
    right,
    kind: same ? "same" : place === first ? "first" : "other",
  }));
  return html`<header class="top"><h1>${t("Compared")}</h1></header>
    <div class="sheet sides">${value.runs.map(run => html`<${Side} run=${run} />`)}</div>
    <p class="verdict" role="status">${sentence(value)}</p>
    <div class="sheet flush diff">
      <${Long}
        items=${items}
        estimate=${40}
        block=${40}
        stamp=${first}
        row=${({ left, right, kind }, at) => html`<div class="pair" key=${at}>${cell(left, "left", kind)}${cell(right, "right", kind)}</div>`}
      />
    </div>`;
}
