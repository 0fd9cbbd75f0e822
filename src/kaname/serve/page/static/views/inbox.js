// Inbox: the open questions, the oldest first.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { inbox, link, loadQuestions, loadRuns, may, runs, titleOf, use } from "../shared.js";
import { get, send } from "../server.js";
import { Button, Loading, EmptyState, ErrorBox, useKeys } from "../parts.js";
import { count, visible, when } from "../format.js";
import { t } from "../words.js";
import { Question } from "./question.js";

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

export default function Inbox() {
  const { questions, problem } = use(inbox);
  const [chosen, choose] = useState("");
  useEffect(() => void (loadQuestions(), runs.get().list || loadRuns()), []);
  const id = one => `${one.run.run_id} ${one.key}`;
  // No question is selected automatically: the user must see it before pressing y. When the selected one is gone, j selects the next.
  const place = (questions || []).findIndex(one => id(one) === chosen);
  const last = useRef(-1);
  if (place >= 0) last.current = place;
  // If it was answered elsewhere, the user may be typing on: letters select nothing until an arrow key or a click does.
  const [lost, lose] = useState(false);
  const mine = useRef("");
  useEffect(() => void (chosen && chosen !== mine.current && questions && place < 0 && lose(true)), [place < 0]);
  const move = step => {
    lose(false);
    const from = place >= 0 ? place + step : chosen ? last.current : 0;
    const next = questions?.[Math.max(0, Math.min(questions.length - 1, from))];
    if (!next) return;
    choose(id(next));
    document.getElementById(id(next))?.scrollIntoView({ block: "nearest" });
  };
  useKeys({ j: () => lost || move(1), k: () => lost || move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1) });
  return html`<header class="top">
      <h1>${t("Inbox")}</h1>
      <span class="meta">${questions ? t("{count} waiting", { count: count(questions.length) }) : null}</span>
      ${questions?.length && may("approve") ? html`<span class="note">${lost ? t("Answered elsewhere. Press ↓ for the next question") : t("Press j for the next question, then y, e or n")}</span>` : null}
    </header>
    <${ErrorBox} problem=${problem} again=${loadQuestions} />
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
                    <p class="meta">
                      ${one.shown ? html`<b>${one.run.title || one.run.agent}</b>` : html`<a href=${link(["runs", one.run.run_id])}><b>${titleOf(one.run)}</b></a>`}
                      ${["", one.run.agent, when(one.run.updated), one.run.user_id].filter((said, at) => !at || said).join(" · ")}
                    </p>
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
