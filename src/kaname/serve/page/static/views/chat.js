// Chat: the story without numbers. A conversation is a run with those that it went on from; to edit a question is to fork.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { post, runPath } from "../server.js";
import { agents, go, link, loadRuns, may, runs, titleOf, use } from "../shared.js";
import { Button, Chip, Loading, Pre, Quiet, Trouble, useKeys } from "../parts.js";
import { Markdown } from "../markdown.js";
import { called, lasted, money, plain, short, when } from "../told.js";
import { notice, t } from "../words.js";
import { fold } from "../fold.js";
import { useRun } from "./following.js";
import { Call, Live, Text, Thinking } from "./story.js";
import { Answered, Question, useChosen } from "./question.js";
import { statusOf } from "./run.js";

const UNDER_WAY = new Set(["running", "interrupted", "waiting"]);
const MOST = 300; // things said that are shown at once

const fresh = () =>
  `chat-${Array.from(crypto.getRandomValues(new Uint8Array(6)), one => one.toString(16).padStart(2, "0")).join("")}`;

function Calls({ calls, asking, over }) {
  const waits = calls.some(call => asking.has(call.id));
  const open = calls.some(call => call.ended === undefined);
  const failed = calls.filter(call => call.error != null).length;
  const told = short(calls.map(call => called(call.name, call.args, 60)).join(" · "), 110);
  return html`<details class="tools">
    <summary><span class="call">${waits ? "◆" : open ? "◐" : failed ? "✕" : "✓"} ${told}</span></summary>
    ${calls.map(call => html`<${Call} key=${call.id} call=${call} parallel=${calls.length > 1} over=${over} now=${Date.now() / 1000} />`)}
  </details>`;
}

// Enter sends, unless it begins a line, or ends the choice of a word in Japanese.
const sends = event => event.key === "Enter" && !event.shiftKey && !event.isComposing;

function Mine({ item, edit }) {
  const [text, set] = useState(null);
  const field = useRef();
  useEffect(() => field.current?.focus(), [text === null]);
  const ask = () => text.trim() && edit(item, text.trim());
  if (text !== null)
    return html`<form class="mine editing" onSubmit=${event => (event.preventDefault(), ask())} onKeyDown=${event => event.key === "Escape" && set(null)}>
      <textarea ref=${field} rows="3" value=${text} aria-label=${t("Your question")} onInput=${event => set(event.target.value)} onKeyDown=${event => sends(event) && (event.preventDefault(), ask())}></textarea>
      <div class="row"><button class="main">${t("Ask again")}</button><${Button} onClick=${() => set(null)}>${t("Cancel")}</${Button}><span class="note">${t("The conversation goes on from here in a new run; this one is kept.")}</span></div></form>`;
  return html`<div class="mine">
    <${Text} text=${item.text} />${item.media?.map(name => html` <span class="note">▧ ${name}</span>`)}
    ${edit ? html`<button type="button" class="plain edit" onClick=${() => set(item.text)} aria-label=${t("Edit and ask again")}>${t("edit")}</button>` : null}
  </div>`;
}

function Said({ item, given }) {
  switch (item.kind) {
    case "asked_for":
      return html`<${Mine} item=${item} edit=${given.edit} />`;
    case "reply":
      return html`<div class="theirs">
        <${Thinking}
          text=${item.thinking}
        />${item.text && !item.plan ? html`<${Markdown} text=${item.text} />` : null}${item.calls.length ? html`<${Calls} calls=${item.calls} asking=${given.waiting} over=${given.over} />` : null}
      </div>`;
    case "said":
      return html`<div class="theirs"><${Markdown} text=${item.text} /></div>`;
    case "call":
      return html`<div class="theirs"><${Calls} calls=${item.calls} asking=${given.waiting} over=${given.over} /></div>`;
    case "question":
      return item.question.answer === undefined && given.asking.has(item.question.key)
        ? html`<${Question}
            question=${item.question}
            run=${given.run}
            active=${given.first === item.question.key}
            choose=${() => given.choose(item.question.key)}
          />`
        : html`<${Answered} question=${item.question} />`;
    case "handed":
      return html`<p class="note">→ ${t("handed to")} <b>${item.text}</b></p>`;
    case "stopped":
      return item.good && item.output === null
        ? null
        : html`<div class=${item.good ? "theirs" : "stopped"}>
            ${item.good ? null : html`<${Chip} status=${item.stop.kind} /> <span class="text">${notice(item.stop.detail_notice, item.stop.detail || "")}</span>`}
            ${item.output === null ? null : typeof item.output === "string" ? html`<${Markdown} text=${item.output} />` : html`<${Pre} text=${plain(item.output)} />`}
          </div>`;
    case "warning":
      return html`<p class="note warn">⚠ ${notice(item.notice, item.text)}</p>`;
    default:
      return null;
  }
}

// The conversations: the newest run of each, forks among them.
function Before({ current }) {
  const { list } = use(runs);
  useEffect(() => void loadRuns(), []);
  const heads = useMemo(() => {
    const { byId } = runs.get();
    const flows = new Set((agents.get() || []).filter(one => one.graph).map(one => one.name));
    const newest = new Map(); // of each conversation, by its first run
    for (const run of list || []) {
      let first = run;
      for (let step = 0; step < 200 && byId.get(first.base); step++) first = byId.get(first.base);
      if (!run.parent && !flows.has(run.agent) && !newest.has(first.run_id))
        newest.set(first.run_id, { run, title: titleOf(first) });
    }
    return [...newest.values()].slice(0, 40);
  }, [list]);
  return html`<aside class="before" aria-label=${t("Conversations")}>
    <a class="button" href=${link(["chat"])}>${t("New conversation")}</a>
    <ul>
      ${heads.map(
        ({ run, title }) =>
          html`<li key=${run.run_id}>
            <a href=${link(["chat", run.run_id])} aria-current=${run.run_id === current ? "true" : null}
              ><span class="title">${title}</span
              ><span class="note"
                >${run.agent} · ${when(run.updated)}${run.base && !run.session_id ? ` · ${t("fork")}` : ""}</span
              ></a
            >
          </li>`,
      )}
    </ul>
  </aside>`;
}

function Conversation({ id, following, edit, end, setProblem }) {
  const { facts, run, problem, connection, live } = following;
  const story = useMemo(() => fold(facts, id), [facts]);
  const status = run ? statusOf(story, run) : "running";
  const near = useRef(true);
  const [most, show] = useState(MOST);
  const [chosen, choose] = useChosen([...story.questions.keys()]);
  useEffect(() => {
    const look = () => (near.current = innerHeight + scrollY > document.documentElement.scrollHeight - 160);
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  const down = () => near.current && end.current?.scrollIntoView({ block: "end" });
  useEffect(down, [facts, Boolean(run)]);
  useEffect(() => live.listen(() => requestAnimationFrame(down)), [live]);
  if (problem && !run) return html`<${Trouble} problem=${problem} again=${following.again} />`;
  if (!run) return html`<${Loading} />`;
  const resume = () => post(runPath(id, "/resume"), { mode: "detach" }).then(following.again, setProblem);
  const asking = new Set(story.questions.keys());
  const given = { edit: may("talk") && !UNDER_WAY.has(status) ? edit : null, run: id, asking, first: chosen, choose };
  given.over = Boolean(story.state.stop) || status === "interrupted";
  given.waiting = new Set([...story.questions.values()].map(question => question.call_id));
  return html`<div class="talk">
      ${story.items.length > most ? html`<${Button} onClick=${() => show(most + MOST)}>${t("what was said before")}</${Button}>` : null}
      ${story.items.slice(-most).map(item => html`<${Said} key=${item.key} item=${item} given=${given} />`)}
      <${Live} live=${live} agent=${story.state.agent} over=${!UNDER_WAY.has(status)} />
      ${status === "interrupted" ? html`<p class="row"><span class="note">${t("It was interrupted; the server that serves it takes it up again.")}</span><${Button} onClick=${resume}>${t("Go on")}</${Button}></p>` : null}
    </div>
    ${connection === "lost" ? html`<p class="offline" role="status">${t("The server is not reached. What you see is from before; it goes on by itself.")}</p>` : null}
    <p class="note">
      <${Chip} status=${status} /> ${money(story.state.cost)} · <a href=${link(["runs", id])}>${t("see what happened")}</a>
    </p>`;
}

export default function Chat({ path, query }) {
  const id = path.slice(1).join("/");
  const known = (use(agents) || []).filter(one => !one.graph); // a workflow is not talked with
  const following = useRun(id);
  const end = useRef();
  const field = useRef();
  const [agent, setAgent] = useState(known.find(one => one.name === query.agent)?.name || known[0]?.name || "");
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const run = following?.run;
  const story = useMemo(() => (following ? fold(following.facts, id) : null), [following?.facts]);
  const going = run && UNDER_WAY.has(statusOf(story, run));
  const waits = Boolean(story?.questions.size);
  const closed = going || Boolean(id && !run) || Boolean(run && !known.some(one => one.name === run.agent)); // it is at work, waits, or is not there yet
  useEffect(() => (waits ? field.current?.blur() : field.current?.focus()), [id, waits]);

  const attempt = async work => {
    setBusy(true);
    setProblem(null);
    try {
      const made = await work();
      go(["chat", made.run_id]);
      return true;
    } catch (failed) {
      setProblem(failed);
      return false;
    } finally {
      setBusy(false);
    }
  };
  // In a session its next run; else a run that goes on from this one.
  const ask = input =>
    attempt(() => {
      if (!run) return post("api/runs", { input, agent, session_id: fresh(), mode: "detach" });
      const followed = (runs.get().list || []).some(one => one.base === run.run_id && one.session_id);
      if (run.session_id && !followed)
        return post("api/runs", { input, agent: run.agent, session_id: run.session_id, user_id: run.user_id, mode: "detach" });
      return post(runPath(id, "/fork"), { input, mode: "detach" });
    });
  const edit = (item, input) =>
    attempt(() => post(runPath(item.run, "/fork"), { at: Math.max(1, item.seq - 1), input, mode: "detach" }));
  const stop = () => post(runPath(id, "/stop"), {}).catch(setProblem);
  const submit = async event => {
    event?.preventDefault();
    const text = field.current.value.trim();
    if (!text || busy || closed) return;
    if (await ask(text)) field.current && (field.current.value = "");
  };
  useKeys({ "/": () => field.current.focus(), ".": () => going && (!waits || confirm(t("Stop this run?"))) && stop() });
  return html`<h1 class="unseen">${t("Chat")}</h1>
    <div class="chat">
      <${Before} current=${id} />
      <section aria-label=${t("Conversation")}>
        ${id ? html`<${Conversation} key=${id} id=${id} following=${following} edit=${edit} end=${end} setProblem=${setProblem} />` : html`<${Quiet} title=${t("What shall be done?")}><p>${known.length ? t("Choose an agent, and ask.") : t("No agents are served.")}</p></${Quiet}>`}
        <${Trouble} problem=${problem} />
        ${
          may("talk")
            ? html`<form class="ask" onSubmit=${submit}>
                <textarea
                  ref=${field}
                  rows="2"
                  aria-label=${t("Your question")}
                  placeholder=${waits ? t("It waits for your answer above.") : going ? t("It is at work …") : t("Ask …")}
                  onKeyDown=${event => sends(event) && submit(event)}
                ></textarea>
                <div class="row">
                  ${
                    id
                      ? html`<span class="note">${run?.agent || ""}</span>`
                      : html`<label class="note"
                          >${t("agent")}
                          <select value=${agent} onChange=${event => setAgent(event.target.value)}>
                            ${known.map(one => html`<option value=${one.name} selected=${one.name === agent}>${one.name}</option>`)}
                          </select></label
                        >`
                  }
                  <span class="note hint">${t("Enter sends, Shift Enter begins a new line")}</span>
                  ${going ? html`<${Button} hint="." onClick=${stop}>${t("Stop")}</${Button}>` : null}
                  <button class="main" disabled=${busy || closed}>${t("Send")}</button>
                </div>
              </form>`
            : null
        }
        <div ref=${end}></div>
      </section>
    </div>`;
}
