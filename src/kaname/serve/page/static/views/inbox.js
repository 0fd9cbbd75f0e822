// Inbox: the open questions, the oldest first.

import { html, useContext, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { inbox, link, loadQuestions, loadRuns, may, runs, titleOf, use } from "../shared.js";
import { get, send } from "../server.js";
import { Announce, Button, Loading, EmptyState, ErrorBox, useKeys } from "../parts.js";
import { count, visible, visibleLine, when } from "../format.js";
import { t } from "../words.js";
import { isApproval, Question, sendAnswer } from "./question.js";

const id = one => `${one.run.run_id} ${one.key}`;

// One answer for all selected questions, sent to each. Those that fail stay selected.
function Selected({ list, keep, answering }) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const say = useContext(Announce);
  const reason = useRef();
  const answer = async value => {
    setBusy(true);
    const failed = [];
    let why = null;
    for (const one of list) {
      answering(one);
      await sendAnswer(one.run.run_id, one, value).catch(trouble => (failed.push(id(one)), (why ??= trouble)));
    }
    keep(failed);
    setProblem(why);
    say(t("{count} answers sent", { count: list.length - failed.length }));
    loadQuestions();
    setBusy(false);
  };
  if (!list.length) return html`<${ErrorBox} problem=${problem} />`;
  return html`<div class="sheet selected">
    <div class="row">
      <b>${t("{count} selected", { count: list.length })}</b>
      <${Button} kind="main yes" disabled=${busy} onClick=${() => answer("yes")}>${t("Approve all")}</${Button}>
      <${Button} disabled=${busy} onClick=${() => answer({ approved: false, reason: reason.current.value.trim() })}>${t("Refuse all")}</${Button}>
      <input ref=${reason} aria-label=${t("Reason (optional). The agent can read it.")} placeholder=${t("Reason (optional). The agent can read it.")} />
      <${Button} kind="plain" disabled=${busy} onClick=${() => keep([])}>${t("Cancel")}</${Button}>
    </div>
    <${ErrorBox} problem=${problem} />
  </div>`;
}

// The approvals that hold for later calls.
function Approvals({ answered }) {
  const [list, set] = useState([]);
  const [problem, setProblem] = useState(null);
  const load = () => get("api/approvals").then(said => set(said.approvals), setProblem);
  useEffect(() => void load(), [answered]);
  const revoke = id => send("DELETE", `api/approvals/${encodeURIComponent(id)}`).then(load, setProblem);
  if (!list.length) return html`<${ErrorBox} problem=${problem} />`;
  return html`<section class="sheet approvals">
    <h2>${t("Always allowed")}</h2>
    <${ErrorBox} problem=${problem} />
    <ul>
      ${list.map(
        one =>
          html`<li key=${one.id} class="row">
            <code>${visible(one.tool)} ${one.shown}</code>
            <span class="note">${[one.agent, one.user, one.by && t("approved by {by}", one), one.until && t("until {time}", { time: when(one.until) })].filter(Boolean).join(" · ")}</span>
            <${Button} onClick=${() => revoke(one.id)}>${t("Revoke")}</${Button}>
          </li>`,
      )}
    </ul>
  </section>`;
}

// `run`: only its questions; `otherwise` if it has none, and the reader has not answered one.
export default function Inbox({ run, otherwise }) {
  const { questions: all, problem } = use(inbox);
  const questions = otherwise ? all?.filter(one => one.run.run_id === run) : all;
  const [chosen, choose] = useState("");
  useEffect(() => void (loadQuestions(), runs.get().list || loadRuns()), []);
  // No question is selected automatically: the user must see it before pressing y. When the selected one is gone, j selects the next.
  const place = (questions || []).findIndex(one => id(one) === chosen);
  const last = useRef(-1);
  if (place >= 0) last.current = place;
  // If it was answered elsewhere, the user may be typing on: letters select nothing until an arrow key or a click does.
  const [lost, lose] = useState(false);
  const mine = useRef("");
  useLayoutEffect(() => void (chosen && chosen !== mine.current && questions && place < 0 && lose(true)), [place < 0]);
  const move = step => {
    lose(false);
    const from = place >= 0 ? place + step : chosen ? last.current : 0;
    const next = questions?.[Math.max(0, Math.min(questions.length - 1, from))];
    if (!next) return;
    choose(id(next));
    document.getElementById(id(next))?.scrollIntoView({ block: "nearest" });
  };
  // A question that comes later is not selected.
  const [picked, pick] = useState([]);
  const open = may("approve") ? (questions || []).filter(isApproval) : [];
  const selected = open.filter(one => picked.includes(id(one)));
  const toggle = one => pick(picked.includes(id(one)) ? picked.filter(other => other !== id(one)) : [...picked, id(one)]);
  const alike = one => {
    const same = open.filter(other => one.same && other.same === one.same);
    const tool = open.filter(other => other.run.agent === one.run.agent && other.call.name === one.call.name);
    return Object.entries({ "Select {count} equal questions": same, "Select {count} questions about {name}": tool.length > same.length ? tool : [] });
  };
  useKeys({ j: () => lost || move(1), k: () => lost || move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1) });
  if (otherwise && questions && !questions.length && !mine.current) return otherwise;
  return html`<header class="top">
      <h1>${t("Inbox")}</h1>
      <span class="meta">${questions ? t("{count} waiting", { count: count(questions.length) }) : null}</span>
      ${questions?.length && may("approve") ? html`<span class="note">${lost ? t("Answered elsewhere. Press ↓ for the next question") : t("Press j for the next question, then y, e or n")}</span>` : null}
    </header>
    <${ErrorBox} problem=${problem} again=${loadQuestions} />
    <${Selected} list=${selected} keep=${pick} answering=${one => id(one) === chosen && (mine.current = chosen)} />
    ${
      !questions
        ? problem
          ? null
          : html`<${Loading} />`
        : !questions.length
          ? html`<${EmptyState} title=${t("No open questions")}><p>${t("Questions that agents ask before they act appear here.")}</p></${EmptyState}>`
          : html`<ol class="inbox">
              ${questions.map(
                (one, at) =>
                  html`<li
                    key=${id(one)}
                    id=${id(one)}
                    class=${`sheet ${at === place ? "chosen" : ""}`}
                    aria-current=${at === place ? "true" : null}
                    onClick=${() => (lose(false), choose(id(one)))}
                  >
                    <div class="meta row">
                      ${open.length > 1 && open.includes(one) ? html`<label class="check"><input type="checkbox" checked=${picked.includes(id(one))} onChange=${() => toggle(one)} aria-label=${t("Select")} /></label>` : null}
                      <p>
                        ${one.shown ? html`<b>${one.run.title || one.run.agent}</b>` : html`<a href=${link(["runs", one.run.run_id])}><b>${titleOf(one.run)}</b></a>`}
                        ${["", one.shown && !one.run.title ? "" : one.run.agent, when(one.run.updated), one.run.user_id].filter((said, at) => !at || said).join(" · ")}
                      </p>
                      ${open.includes(one) ? alike(one).map(([words, list]) => (list.length > 1 ? html`<${Button} kind="plain" onClick=${() => pick(list.map(id))}>${t(words, { count: list.length, name: visibleLine(one.call.name) })}</${Button}>` : null)) : null}
                    </div>
                    <${Question}
                      answering=${() => (mine.current = id(one))}
                      question=${one}
                      run=${one.run.run_id}
                      active=${at === place}
                      spent=${one.run.usage.cost}
                    />
                  </li>`,
              )}
            </ol>`
    }
    <${Approvals} answered=${questions?.length} />`;
}
