// Two runs side by side: what is equal in grey, the first difference marked, and in one sentence what it came to.

import { html, useEffect, useMemo } from "../vendor/preact.js";
import { link, loadRuns, runs, titleOf } from "../shared.js";
import { Chip, Loading, Long, Trouble } from "../parts.js";
import { compare, fold } from "../fold.js";
import { count, lasted, money, short, state } from "../told.js";
import { japanese, t } from "../words.js";
import { useRun } from "./following.js";

function Side({ story, run }) {
  const tokens = `${count(story.state.input + story.state.output)} ${t("tokens")}`;
  return html`<div>
    <p>
      <a href=${link(["runs", run.run_id])}><b>${titleOf(run)}</b></a> <${Chip} status=${story.state.status} />
    </p>
    <p class="meta">
      ${[run.agent, story.recipe.model || "–", lasted(run.updated - run.created), tokens, money(story.state.cost)].join(" · ")}
    </p>
  </div>`;
}

const brief = line =>
  line ? `${japanese() ? "「" : "“"}${short(line.text.replace(/\s+/g, " "), 70)}${japanese() ? "」" : "”"}` : t("nothing");

function sentence(first, rows, one, other) {
  const ends = [one, other].map(story => state(story.state.status).word);
  const costs = t("It cost {one} against {other}", { one: money(one.state.cost), other: money(other.state.cost) });
  const ended =
    ends[0] === ends[1]
      ? t("both: {state}", { state: ends[0] })
      : t("left: {one}, right: {other}", { one: ends[0], other: ends[1] });
  if (first < 0)
    return `${t("They tell the same story.")} ${costs}${japanese() ? "、" : "; "}${ended}${japanese() ? "。" : "."}`;
  const row = rows[first];
  const place =
    row.left && row.right && row.left.seq !== row.right.seq
      ? `${row.left.seq} / ${row.right.seq}`
      : `${(row.left || row.right).seq}`;
  return `${t("First difference at fact {seq}: left {one}, right {other}.", { seq: place, one: brief(row.left), other: brief(row.right) })} ${costs}${japanese() ? "、" : "; "}${ended}${japanese() ? "。" : "."}`;
}

export default function Compare({ path }) {
  const ids = [path[1] || "", path[2] || ""];
  const [left, right] = [useRun(ids[0]), useRun(ids[1])];
  const one = useMemo(() => fold(left.facts, ids[0]), [left.facts]);
  const other = useMemo(() => fold(right.facts, ids[1]), [right.facts]);
  const { rows, first } = useMemo(() => compare(one, other), [one, other]);
  useEffect(
    () => document.querySelector(".diff .first")?.scrollIntoView({ block: "center" }),
    [first, Boolean(left.run && right.run)],
  );
  useEffect(() => void (runs.get().list || loadRuns()), []);
  const problem = left.problem || right.problem;
  if (problem) return html`<${Trouble} problem=${problem} again=${() => (left.again(), right.again())} />`;
  if (!left.run || !right.run) return html`<${Loading} />`;
  const cell = (line, side, kind) =>
    html`<div class=${`${kind} ${side}`}>
      ${line ? html`<a class="seq" href=${link(["runs", line.run], { at: line.seq })} aria-label=${t("fact {seq}", { seq: line.seq })}>${line.seq}</a><span>${short(line.text, 500)}</span>` : html`<span class="note">—</span>`}
    </div>`;
  const items = rows.map((row, place) => ({
    row,
    kind: row.left?.text === row.right?.text ? "same" : place === first ? "first" : "other",
  }));
  return html`<header class="top"><h1>${t("Compared")}</h1></header>
    <div class="sheet sides"><${Side} story=${one} run=${left.run} /><${Side} story=${other} run=${right.run} /></div>
    <p class="verdict" role="status">${sentence(first, rows, one, other)}</p>
    <div class="sheet flush diff">
      <${Long}
        items=${items}
        estimate=${40}
        block=${40}
        stamp=${first}
        row=${({ row, kind }, at) => html`<div class="pair" key=${at}>${cell(row.left, "left", kind)}${cell(row.right, "right", kind)}</div>`}
      />
    </div>`;
}
