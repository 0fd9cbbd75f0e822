// Fork: go on from a fact in a new run, with another prompt, model, instruction or tool result. The old run stays as it is.

import { html, useState } from "../vendor/preact.js";
import { get, post, runPath } from "../server.js";
import { agents, go, may } from "../shared.js";
import { Button, Dialog, Trouble, useLoaded } from "../parts.js";
import { called, plain, value } from "../told.js";
import { t } from "../words.js";

// A text that is JSON is meant as JSON.
function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// `call`: one whose result is to be another; then it is forked right before that result.
export function Fork({ run, at, call, story, close }) {
  const from = call ? call.endedSeq - 1 : at;
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const { value: state } = useLoaded(signal => get(runPath(run.run_id, `/state?at=${from}`), signal), [from]);
  const pending = state?.pending || [];
  const fork = async event => {
    event.preventDefault();
    const form = new FormData(event.target);
    const results = Object.fromEntries(
      pending
        .map(one => [one.id, form.get(`result ${one.id}`)])
        .filter(([, text]) => text)
        .map(([id, text]) => [id, read(text)]),
    );
    const body = { at: from, mode: "detach", results };
    for (const name of ["input", "model", "instructions"]) if (form.get(name)?.trim()) body[name] = form.get(name).trim();
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
  const models = [...new Set([story.recipe.model, ...(agents.get() || []).map(agent => agent.model)].filter(Boolean))];
  return html`<${Dialog} title=${t("Fork from fact {seq}", { seq: from })} close=${close}><form class="form" onSubmit=${fork}>
    <p class="note">${t("A new run goes on from there. The old one stays as it is. What you leave empty stays the same.")}</p>
    ${
      pending.length
        ? pending.map(
            one =>
              html`<label
                >${t("Result of {call}, instead of running it", { call: called(one.name, one.arguments, 90) })}
                <textarea
                  name=${`result ${one.id}`}
                  rows="3"
                  autofocus=${one.id === call?.id}
                  placeholder=${one.id === call?.id ? plain(call.error ?? call.output).slice(0, 200) : ""}
                ></textarea>
              </label>`,
          )
        : null
    }
    ${call ? null : html`<label>${t("Say something else")}<textarea name="input" rows="3" autofocus></textarea></label>`}
    ${
      may("admin")
        ? html`<label
              >${t("Another model")}<input
                name="model"
                list="models"
                placeholder=${story.recipe.model || ""}
                autocomplete="off" /></label
            ><datalist id="models">${models.map(name => html`<option value=${name} />`)}</datalist>
            <label
              >${t("Other instructions")}<textarea
                name="instructions"
                rows="2"
                placeholder=${(story.recipe.instructions || "").slice(0, 200)}
              ></textarea>
            </label>`
        : null
    }
    <${Trouble} problem=${problem} />
    <div class="row"><button class="main" disabled=${busy || !state}>${t("Fork")}</button><${Button} onClick=${close}>${t("Cancel")}</${Button}></div></form></${Dialog}>`;
}
