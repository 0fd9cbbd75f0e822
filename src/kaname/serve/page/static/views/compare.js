// Two runs side by side: equal lines in grey, the first difference marked, and a summary in one sentence.

import { html, useEffect } from "../vendor/preact.js";
import { get } from "../server.js";
import { link, loadRuns, runs, titleOf, use } from "../shared.js";
import { Chip, Loading, LongList, ErrorBox, useLoaded } from "../parts.js";
import { UNDER_WAY } from "../fold.js";
import { count, durationText, money, shorten, state } from "../format.js";
import { japanese, notice, t } from "../words.js";

const Side = ({ run }) =>
  html`<div>
    <p>
      <a href=${link(["runs", run.run_id])}><b>${titleOf(run)}</b></a> <${Chip} status=${run.status} />
    </p>
    <p class="meta">
      ${[run.agent, run.model || "–", durationText(run.updated - run.created), `${count(run.usage.input_tokens + run.usage.output_tokens)} ${t("tokens")}`, money(run.usage.cost)].join(" · ")}
    </p>
  </div>`;

const lineText = ({ kind, sign, text, whose, notice: said }) =>
  `${sign} ${[kind === "stopped" ? state(whose).word : whose, notice(said, text)].filter(Boolean).join(": ")}`.trim();

const quoteLine = line =>
  line ? `${japanese() ? "「" : "“"}${shorten(lineText(line).replace(/\s+/g, " "), 70)}${japanese() ? "」" : "”"}` : t("nothing");

function sentence({ runs: [one, other], rows, first }) {
  const ends = [one, other].map(run => state(run.status).word);
  const costs = t("Cost: {one} left, {other} right", { one: money(one.usage.cost), other: money(other.usage.cost) });
  const ended =
    ends[0] === ends[1]
      ? t("both: {state}", { state: ends[0] })
      : t("left: {one}, right: {other}", { one: ends[0], other: ends[1] });
  const [left, right] = rows[first] || [];
  const seq = [...new Set([left, right].filter(Boolean).map(line => line.seq))].join(" / ");
  const found = { seq, one: quoteLine(left), other: quoteLine(right) };
  const told =
    first < 0 ? t("The two runs do not differ.") : t("First difference at fact {seq}: left {one}, right {other}.", found);
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
  if (problem) return html`<${ErrorBox} problem=${problem} again=${again} />`;
  if (!value) return html`<${Loading} />`;
  const { rows, first } = value;
  const cell = (line, side, kind) =>
    html`<div class=${`${kind} ${side}`}>
      ${line ? html`<a class="seq" href=${link(["runs", line.run], { at: line.seq })} aria-label=${t("fact {seq}", { seq: line.seq })}>${line.seq}</a><span>${shorten(lineText(line), 500)}</span>` : html`<span class="note">—</span>`}
    </div>`;
  const items = rows.map(([left, right, same], place) => ({
    left,
    right,
    kind: same ? "same" : place === first ? "first" : "other",
  }));
  return html`<header class="top"><h1>${t("Comparison")}</h1></header>
    <div class="sheet sides">${value.runs.map(run => html`<${Side} run=${run} />`)}</div>
    <p class="verdict" role="status">${sentence(value)}</p>
    <div class="sheet flush diff">
      <${LongList}
        items=${items}
        estimate=${40}
        block=${40}
        stamp=${first}
        row=${({ left, right, kind }, at) => html`<div class="pair" key=${at}>${cell(left, "left", kind)}${cell(right, "right", kind)}</div>`}
      />
    </div>`;
}
