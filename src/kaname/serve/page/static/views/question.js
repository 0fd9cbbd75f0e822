// A question of a run: the call with its arguments, and the possible answers.

import { html, useContext, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { post, runPath } from "../server.js";
import { inbox, loadQuestions, may, use } from "../shared.js";
import { Button, Announce, ErrorBox, useKeys } from "../parts.js";
import { by, callText, parseLoosely, money, asText, visible, visibleLine, when } from "../format.js";
import { notice, problemText, t } from "../words.js";
import { kindOf, Medium } from "./media.js";

const EFFECTS = {
  pure: "It changes nothing.",
  idempotent: "It can be repeated without harm.",
  compensable: "It can be undone.",
  irreversible: "It cannot be undone.",
};
const ANSWERS = { yes: "yes", no: "no", retry: "Run it again", skip: "Skip it" };
const isOutbox = question => /(^|:)outbox:/.test(question.key);
export const isApproval = question => /^approve:|:approve:/.test(question.key) && question.call;

// A picture in an argument: base64, or a data URL.
function Picture({ name, data }) {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const bytes = Uint8Array.from(atob(data.slice(data.indexOf(",") + 1)), char => char.charCodeAt(0));
    const made = URL.createObjectURL(new Blob([bytes]));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [data]);
  return url ? html`<img src=${url} alt=${visibleLine(name)} />` : null;
}

// `attached`: files of the conversation that arguments name, by argument. `run`: the run that has them.
export function Values({ args, shown, files, attached, run }) {
  if (typeof args !== "object" || args === null) return html`<pre>${visible(asText(args))}</pre>`;
  const names = Object.keys(args);
  if (!names.length) return html`<p class="note">${t("without arguments")}</p>`;
  return html`<dl class="values">
    ${names.map(
      name =>
        html`<dt>${visibleLine(name)}</dt>
          <dd>
            <pre>${shown?.[name] ?? visible(asText(args[name]))}</pre>
            ${kindOf(files?.[name] || "") === "image" ? html`<${Picture} name=${name} data=${args[name]} />` : null}
            ${(attached?.[name] || []).map(one => html`<${Medium} key=${one.hash} one=${{ ...one, run }} />`)}
          </dd>`,
    )}
  </dl>`;
}

// The possible answers: each has a key, a word, and either an answer or a form to fill in.
function answerWays(question, answer, fill) {
  if (isApproval(question) && question.call.hidden)
    return [
      { key: "y", word: t("Approve"), act: () => answer("yes"), kind: "main yes" },
      { key: "n", word: t("Refuse"), act: () => fill("refuse") },
    ];
  if (isApproval(question))
    return [
      { key: "y", word: t("Approve"), act: () => answer("yes"), kind: "main yes" },
      { key: "a", word: t("Always …"), act: () => fill("always") },
      { key: "e", word: t("Edit"), act: () => fill("edit") },
      { key: "n", word: t("Refuse"), act: () => fill("refuse") },
    ];
  if (isOutbox(question))
    return [
      { key: "y", word: t(question.options.length > 2 ? "Allow all" : "Approve"), act: () => answer("yes"), kind: "main yes" },
      ...(question.options.length > 2 ? [{ key: "e", word: t("Allow some"), act: () => fill("some") }] : []),
      { key: "n", word: t("Refuse"), act: () => fill("refuse") },
    ];
  const options = question.options.map((one, place) => ({ key: `${place + 1}`, word: ANSWERS[one] ? t(ANSWERS[one]) : one, act: () => answer(one) }));
  if (question.in_doubt) return [...options, { key: "e", word: t("Enter the result"), act: () => fill("result") }];
  if (options.length) return options;
  return [
    { key: "e", word: t("Answer"), act: () => fill("text"), kind: "main" },
    { key: "n", word: t("Refuse"), act: () => fill("refuse") },
  ];
}

// What an approval says in addition to the call: what the tool does, and why it is asked.
function reasonsOf(question) {
  const told = question.notice;
  if (!told) return question.prompt ? [visible(question.prompt)] : [];
  return (told.values?.parts || [told])
    .map(one => (one?.code === "approve.run" ? "" : visible(one?.values?.does ?? notice(one))))
    .filter(Boolean);
}

const json = text => {
  try {
    return JSON.parse(text);
  } catch (failed) {
    throw { detail: `${t("This is not JSON")}: ${failed.message}` };
  }
};

// The forms: label, word on the button, and how text becomes an answer.
const FORMS = {
  edit: () => ({
    label: t("Arguments, as JSON"),
    word: t("Run with these arguments"),
    rows: 6,
    read: text => (json(text), { args_text: text }),
  }),
  always: () => ({
    label: t("Allow this and later calls where (JSON; remove an argument to allow any value of it)"),
    word: t("Always allow"),
    rows: 6,
    read: (text, unchanged) => ({ approved: true, for: "always", ...(unchanged ? {} : { where: json(text) }) }), // unchanged: equal calls
  }),
  refuse: () => ({
    label: t("Reason (optional). The agent can read it."),
    word: t("Refuse"),
    rows: 2,
    read: text => ({ approved: false, reason: text }), // also if the text is "yes"
  }),
  some: () => ({
    label: t('Numbers of the calls that you allow, such as "1, 3"'),
    word: t("Allow these"),
    rows: 1,
    read: text => {
      if (/^[\d\s,、]+$/.test(text.normalize("NFKC"))) return text;
      throw { detail: t("Enter numbers only.") };
    },
  }),
  result: () => ({
    label: t("The result, as text or JSON"),
    word: t("Continue with this result"),
    rows: 3,
    read: text => ({ result: parseLoosely(text) }),
  }),
  text: () => ({ label: t("Answer"), word: t("Answer"), rows: 3, read: text => text || undefined }),
};
// The question that shortcuts answer: only one that appeared alone, so that a key never answers the wrong one.
export function useChosen(open) {
  const [chosen, choose] = useState("");
  const seen = useRef(new Set());
  useEffect(() => {
    const fresh = open.filter(key => !seen.current.has(key));
    for (const key of open) seen.current.add(key);
    if (fresh.length === 1 && open.length === 1) choose(fresh[0]);
  }, [open.join("\n")]);
  return [open.includes(chosen) ? chosen : "", choose];
}

export const sendAnswer = (run, question, value) => post(runPath(run, "/answers"), { answers: { [question.key]: value }, mode: "detach" });

// `run`: the run that asks. `active`: the shortcuts answer this question, and are shown.
export function Question({ question, run, active, spent, choose, answering }) {
  const [mode, setMode] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const say = useContext(Announce);
  const field = useRef();
  const working = useRef(false);
  const known = use(inbox).questions?.find(one => one.run.run_id === run && one.key === question.key);
  const call = known?.call || question.call;
  const approval = isApproval(question);
  const parts = approval ? reasonsOf(known || question) : [];
  const allowed = may("approve");
  const answer = async value => {
    if (working.current) return;
    working.current = true;
    answering?.();
    setBusy(true);
    setProblem(null);
    try {
      await sendAnswer(run, question, value);
      say(t("Answer sent"));
    } catch (failed) {
      setProblem(failed);
      say(problemText(failed)); // it may have been answered elsewhere and disappear
    }
    loadQuestions();
    working.current = false;
    setBusy(false);
  };
  useLayoutEffect(() => field.current?.focus(), [mode]);
  const form = FORMS[mode]?.();
  const back = () => (setMode(""), setProblem(null));
  const submit = () => {
    try {
      const value = form.read(field.current.value.trim(), start && field.current.value === start);
      if (value !== undefined) answer(value);
    } catch (wrong) {
      setProblem(wrong);
    }
  };
  const given = answerWays(question, answer, setMode);
  useKeys(active && allowed && !mode && !busy ? Object.fromEntries(given.map(({ key, act }) => [key, act])) : {});
  const onKey = event => {
    if (event.key === "Escape") back();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
  };
  const start = mode === "always" ? (call.equal ?? "") : mode === "edit" ? (call.text ?? visible(JSON.stringify(call.arguments, null, 2))) : "";
  return html`<div class=${`question ${question.in_doubt ? "doubt" : ""} ${active ? "active" : ""}`} onClick=${choose}>
    <p dir="auto" class="prompt">
      ${approval ? html`<b>${t("Allow {name}?", { name: visibleLine(call.name) })}</b>` : html`<span aria-hidden="true">? </span>${notice(question.notice, question.prompt)}`}
    </p>
    ${parts.map(one => html`<p dir="auto" class="why">${one}</p>`)}
    ${call?.description && approval ? html`<p class="note">${call.description}</p>` : null}
    ${call?.hidden ? html`<p class="note">${t("This agent does not show you the arguments of the call.")}</p>` : null}
    ${question.conversation?.length ? html`<details><summary>${t("What was said and done")}</summary><pre dir="auto">${question.conversation.join("\n")}</pre></details>` : null}
    ${call && !call.hidden && (approval || question.in_doubt) ? html`<${Values} args=${call.arguments} shown=${call.shown} files=${call.files} attached=${call.attached} run=${run} />` : null}
    ${call?.effect && approval ? html`<p class="note">${t(EFFECTS[call.effect] || call.effect)}</p>` : null}
    ${question.in_doubt ? html`<p class="note">${t("The call was started before a crash. It is unknown whether it took effect. Check before you decide.")}</p>` : null}
    ${known?.by === "other" ? html`<p class="note">${t("Another person than the user must answer.")}</p>` : null}
    ${known?.until ? html`<p class="note">${t("Expires: {time}", { time: when(known.until) })}</p>` : null}
    ${spent == null ? null : html`<p class="note">${t("Spent so far: {cost}.", { cost: money(spent) })}</p>`}
    ${!allowed ? html`<p class="note">${t("You can see this question, but you are not allowed to answer it.")}</p>` : null}
    ${
      allowed && form
        ? html`<form class="answer" onSubmit=${event => (event.preventDefault(), submit())} onKeyDown=${onKey}>
          <label>${form.label}<textarea ref=${field} rows=${form.rows} defaultValue=${start} spellcheck=${false}></textarea></label>
          <div class="row">
            <button class=${`main ${mode === "edit" || mode === "always" ? "yes" : ""}`} disabled=${busy}>${form.word}<kbd aria-hidden="true">Ctrl Enter</kbd></button>
            <${Button} onClick=${back}>${t("Back")}<kbd aria-hidden="true">Esc</kbd></${Button}>
          </div>
        </form>`
        : null
    }
    ${allowed && !form ? html`<div class="row">${given.map(({ key, word, act, kind }) => html`<${Button} kind=${kind} hint=${active ? key : ""} disabled=${busy} onClick=${act}>${word}</${Button}>`)}</div>` : null}
    <${ErrorBox} problem=${problem} />
  </div>`;
}

// The answer to a question.
export function Answer({ question }) {
  const { answer } = question;
  const decided =
    answer?.approved === false
      ? `${t("Refused")}${answer.reason ? `: ${answer.reason}` : ""}`
      : answer?.approved === true && t(answer.for === "always" ? "Approved, also later calls" : "Approved");
  const said =
    decided ||
    (typeof answer === "object"
      ? callText(question.call?.name || "", answer?.args ?? answer)
      : question.options?.includes(answer) && ANSWERS[answer]
        ? t(ANSWERS[answer])
        : `${answer}`);
  return html`<p><b>! ${said}</b> ${question.by ? html`<span class="note">${by(question.by)}</span>` : null}</p>`;
}

// A question that is not open. `answer`: show its answer.
export function Answered({ question, answer }) {
  return html`<div class="question answered">
    <p class="prompt">
      ${isApproval(question) ? callText(question.call.name, question.call.arguments) : notice(question.notice, question.prompt)}
    </p>
    ${answer && question.answer !== undefined ? html`<${Answer} question=${question} />` : null}
  </div>`;
}
