// A question that a run asks: what would happen, with which values, and the answers that there are.

import { html, useContext, useEffect, useRef, useState } from "../vendor/preact.js";
import { post, runPath } from "../server.js";
import { loadQuestions, may } from "../shared.js";
import { Button, Saying, Trouble, useKeys } from "../parts.js";
import { called, money, plain } from "../told.js";
import { notice, t } from "../words.js";

const isApproval = question => /^approve:|:approve:/.test(question.key) && question.call;

export function Values({ args }) {
  if (typeof args !== "object" || args === null) return html`<pre>${plain(args)}</pre>`;
  const names = Object.keys(args);
  if (!names.length) return html`<p class="note">${t("without arguments")}</p>`;
  return html`<dl class="values">
    ${names.map(
      name =>
        html`<dt>${name}</dt>
          <dd><pre>${plain(args[name])}</pre></dd>`,
    )}
  </dl>`;
}

// `run`: the run that asks. `active`: whether y, e and n are meant for it. `done`: called with the answer that was taken.
export function Question({ question, run, active, done, spent }) {
  const [mode, setMode] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const say = useContext(Saying);
  const field = useRef();
  const approval = isApproval(question);
  const allowed = may("approve");
  const answer = async value => {
    setBusy(true);
    setProblem(null);
    try {
      await post(runPath(run, "/answers"), { answers: { [question.key]: value }, mode: "detach" });
      say(t("Answered"));
      done?.(value);
      loadQuestions();
    } catch (failed) {
      setProblem(failed);
    }
    setBusy(false);
  };
  useEffect(() => field.current?.focus(), [mode]);
  const edited = () => {
    try {
      answer({ args: JSON.parse(field.current.value) });
    } catch (failed) {
      setProblem({ detail: `${t("This is not JSON")}: ${failed.message}` });
    }
  };
  const keys =
    active && allowed && !mode && !busy
      ? approval
        ? { y: () => answer("yes"), n: () => setMode("refuse"), e: () => setMode("edit") }
        : !question.options.length
          ? { e: () => setMode("text") }
          : Object.fromEntries(question.options.slice(0, 9).map((one, place) => [`${place + 1}`, () => answer(one)]))
      : {};
  useKeys(keys);
  const leave = event => event.key === "Escape" && (setMode(""), setProblem(null));
  const form = (
    label,
    confirm,
    act,
    rows,
    value = "",
  ) => html`<form class="answer" onSubmit=${event => (event.preventDefault(), act())} onKeyDown=${leave}>
    <label>${label}<textarea ref=${field} rows=${rows} defaultValue=${value} spellcheck=${false} onKeyDown=${event => event.key === "Enter" && (event.ctrlKey || event.metaKey) && act()}></textarea></label>
    <div class="row"><button class="main" disabled=${busy}>${confirm}<kbd aria-hidden="true">Ctrl Enter</kbd></button>
      <${Button} onClick=${() => (setMode(""), setProblem(null))}>${t("Back")}<kbd aria-hidden="true">Esc</kbd></${Button}></div></form>`;
  return html`<div class=${`question ${question.in_doubt ? "doubt" : ""}`}>
    <p>
      ${approval ? html`<b>${question.call.name}</b> ${t("asks before it is run. May it?")}` : html`<span aria-hidden="true">? </span>${notice(question.notice, question.prompt)}`}
    </p>
    ${question.call && (approval || question.in_doubt) ? html`<${Values} args=${question.call.arguments} />` : null}
    ${question.in_doubt ? html`<p class="note">${t("It was begun before a crash, and nobody knows whether it took effect. Look before you decide.")}</p>` : null}
    ${spent == null ? null : html`<p class="note">${t("Spent so far: {cost}.", { cost: money(spent) })}</p>`}
    ${
      !allowed
        ? html`<p class="note">${t("You may see this, but not answer it.")}</p>`
        : mode === "edit"
          ? form(t("Arguments, as JSON"), t("Run it with these"), edited, 6, JSON.stringify(question.call.arguments, null, 2))
          : mode === "refuse"
            ? form(
                t("Why not? The agent reads it. It may stay empty."),
                t("Refuse"),
                () => answer(field.current.value.trim() || "no"),
                2,
              )
            : mode === "text"
              ? form(t("Answer"), t("Answer"), () => field.current.value.trim() && answer(field.current.value.trim()), 3)
              : html`<div class="row">
                  ${
                    approval
                      ? html`<${Button} kind="main" hint="y" disabled=${busy} onClick=${() => answer("yes")}>${t("Approve")}</${Button}>
          <${Button} hint="e" disabled=${busy} onClick=${() => setMode("edit")}>${t("Edit")}</${Button}>
          <${Button} hint="n" disabled=${busy} onClick=${() => setMode("refuse")}>${t("Refuse")}</${Button}>`
                      : question.options.length
                        ? question.options.map(
                            (one, place) =>
                              html`<${Button} hint=${place < 9 ? `${place + 1}` : ""} disabled=${busy} onClick=${() => answer(one)}>${one}</${Button}>`,
                          )
                        : html`<${Button} kind="main" hint="e" disabled=${busy} onClick=${() => setMode("text")}>${t("Answer")}</${Button}>`
                  }
                </div>`
    }
    <${Trouble} problem=${problem} />
  </div>`;
}

// How it was answered.
export function Answered({ question }) {
  const said =
    typeof question.answer === "object"
      ? called(question.call?.name || "", question.answer?.args ?? question.answer)
      : `${question.answer}`;
  return html`<div class="question answered">
    <p>
      ${isApproval(question) ? called(question.call.name, question.call.arguments) : notice(question.notice, question.prompt)}
    </p>
    <p><b>! ${said}</b> ${question.by ? html`<span class="note">${question.by}</span>` : null}</p>
  </div>`;
}
