// Fork: continue a run from a fact in a new run, with another message, model, instruction or result. The old run does not change.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, post, runPath } from "../server.js";
import { agents, go, may } from "../shared.js";
import { Button, Dialog, ErrorBox, useLoaded } from "../parts.js";
import { callText, parseLoosely, shorten } from "../format.js";
import { t } from "../words.js";

// Return the text that `parseLoosely` reads as this value.
const asFieldText = value => (typeof value === "string" && parseLoosely(value) === value ? value : JSON.stringify(value ?? null));

// Return the fact to continue after: the one before the result that is replaced, or the cursor. At the end of an ended run, return
// its last message, because nothing follows the end.
export function forkPoint(story, at, call) {
  if (call) return call.endedSeq - 1;
  const asked = story.items.findLast(item => item.kind === "asked_for" && !item.earlier);
  return story.state.stop && at >= story.state.seq ? (asked?.seq ?? 1) : at;
}

// A call that is open at that fact: keep its recorded result, supply another, or run it.
function Pending({ one, known, first }) {
  const kept = known?.ended !== undefined;
  const [how, choose] = useState(first ? "other" : kept ? "keep" : "run");
  const field = useRef();
  useEffect(() => void (how === "other" && (field.current.focus(), field.current.select())), [how]);
  const start = kept ? asFieldText(known.error ?? known.output) : "";
  const ways = {
    ...(kept ? { keep: t("recorded result: {result}", { result: shorten(start, 50) }) } : {}),
    other: t("another result"),
    run: t("run the call"),
  };
  const name = callText(one.name, one.arguments, 90);
  return html`<fieldset>
    <label
      >${name}<select name=${`how ${one.id}`} value=${how} onChange=${event => choose(event.target.value)}>
        ${Object.entries(ways).map(([way, word]) => html`<option value=${way} selected=${way === how}>${word}</option>`)}
      </select></label
    >
    ${how === "other" ? html`<textarea ref=${field} name=${`result ${one.id}`} rows="3" aria-label=${t("Result of {call}", { call: name })} defaultValue=${start}></textarea>` : null}
  </fieldset>`;
}

export function Fork({ run, at, call, story, close }) {
  const [from, setFrom] = useState(() => forkPoint(story, at, call));
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const { value: state } = useLoaded(signal => get(runPath(run.run_id, `/state?at=${from}`), signal), [from]);
  const pending = state?.facts === from ? state.pending : [];
  const fork = async event => {
    event.preventDefault();
    const form = new FormData(event.target);
    const chosen = way => pending.filter(one => form.get(`how ${one.id}`) === way).map(one => one.id);
    const results = Object.fromEntries(chosen("other").map(call => [call, parseLoosely(form.get(`result ${call}`))]));
    const body = { at: from, mode: "detach", results, keep: chosen("keep") };
    for (const name of ["input", "model", "instructions"]) if (form.get(name)?.trim()) body[name] = form.get(name).trim();
    if (story.state.stop && from >= story.state.seq && !body.input)
      return setProblem({ detail: t("The run has ended at this fact. Choose an earlier fact, or write a message.") });
    setBusy(true);
    try {
      const made = await post(runPath(run.run_id, "/fork"), body);
      close();
      go(["runs", made.run_id]);
    } catch (failed) {
      setProblem(failed);
    }
    setBusy(false);
  };
  const models = [...new Set(["local", ...(agents.get() || []).map(agent => agent.model)])].filter(
    name => name === "local" || name.includes("/"),
  );
  const fact = html`<label
    >${t("Continue after fact")}<input
      type="number"
      min="1"
      max=${story.state.seq}
      value=${from}
      onChange=${event => setFrom(Number(event.target.value) || from)}
  /></label>`;
  return html`<${Dialog} title=${t("Fork")} close=${close}><form class="form" onSubmit=${fork}>
    <p class="note">${t("A new run continues after this fact. The old run does not change. Later steps are repeated, so their calls are made again.")}</p>
    ${call ? null : fact}
    ${pending.map(one => html`<${Pending} key=${`${from} ${one.id}`} one=${one} known=${story.calls.get(one.id)} first=${one.id === call?.id} />`)}
    ${call ? null : html`<label>${t("Send another message")}<textarea name="input" rows="3" autofocus></textarea></label>`}
    ${
      may("admin")
        ? html`<label
              >${t("Another model")}<input
                name="model"
                list="models"
                placeholder=${t("PROVIDER/MODEL, for example openai/gpt-5.4-mini, or local")}
                autocomplete="off"
            /></label>
            <datalist id="models">${models.map(name => html`<option value=${name} />`)}</datalist>
            <label
              >${t("Other instructions")}<textarea
                name="instructions"
                rows="2"
                placeholder=${(story.recipe.instructions || "").slice(0, 200)}
              ></textarea>
            </label>`
        : null
    }
    <${ErrorBox} problem=${problem} />
    <div class="row"><button class="main" disabled=${busy || !state}>${state ? t("Fork") : t("Loading …")}</button><${Button} onClick=${close}>${t("Cancel")}</${Button}></div></form></${Dialog}>`;
}
