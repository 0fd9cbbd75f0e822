// Chat: the story without numbers. A conversation is a run and those that it continues. Editing a message forks the run.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { post, runPath } from "../server.js";
import { agents, go, link, loadRuns, may, runs, titleOf, use } from "../shared.js";
import { Button, Chip, Loading, Offline, Pre, EmptyState, ErrorBox, useKeys } from "../parts.js";
import { Markdown } from "../markdown.js";
import { callText, money, other, asText, shorten, when } from "../format.js";
import { notice, t } from "../words.js";
import { fold, UNDER_WAY } from "../fold.js";
import { useRun } from "./following.js";
import { body, Call, Live, Text, Thinking } from "./story.js";
import { Answered, useChosen } from "./question.js";
import Inbox from "./inbox.js";
import { statusOf } from "./run.js";
import { Attached, filesOf, Medium, withFiles } from "./media.js";

const MOST = 300; // items that are shown at once

const newSessionId = () =>
  `chat-${Array.from(crypto.getRandomValues(new Uint8Array(6)), one => one.toString(16).padStart(2, "0")).join("")}`;

function Calls({ calls, over }) {
  const open = calls.some(call => call.ended === undefined);
  const sign = calls.some(call => call.question?.open) ? "◆" : open ? "◐" : signOf(calls.filter(call => !call.apart));
  const told = shorten(calls.map(call => callText(call.name, call.args, 60)).join(" · "), 110);
  return html`<details class="tools">
      <summary><span class="call">${sign} ${told}</span></summary>
    ${calls.map(call => html`<${Call} key=${call.id} call=${{ ...call, media: [] }} parallel=${calls.length > 1} given=${{ over, now: Date.now() / 1000 }} />`)}
    </details>
    ${calls.flatMap(call => call.media || []).map(one => html`<${Medium} one=${one} />`)}`;
}
const signOf = calls => (calls.length ? (calls.some(call => call.error != null) ? "✕" : calls.some(call => call.waiting) ? "◆" : "✓") : "→");

// Enter sends, except with Shift or while a Japanese word is being converted.
const isSendKey = event => event.key === "Enter" && !event.shiftKey && !event.isComposing;

function UserMessage({ item, edit }) {
  const [text, set] = useState(null);
  const field = useRef();
  useEffect(() => field.current?.focus(), [text === null]);
  const ask = () => text.trim() && edit(item, text.trim());
  if (text !== null)
    return html`<form class="mine editing" onSubmit=${event => (event.preventDefault(), ask())} onKeyDown=${event => event.key === "Escape" && set(null)}>
      <textarea ref=${field} rows="3" value=${text} aria-label=${t("Your message")} onInput=${event => set(event.target.value)} onKeyDown=${event => isSendKey(event) && (event.preventDefault(), ask())}></textarea>
      <div class="row"><button class="main">${t("Resend")}</button><${Button} onClick=${() => set(null)}>${t("Cancel")}</${Button}><span class="note">${t("The conversation continues from here in a new run. The old run is kept.")}</span></div></form>`;
  return html`<div class="mine">
    ${other(item.user) ? html`<p class="note">${item.user}</p>` : null}<${Text}
      text=${item.text}
    />${item.media?.map(one => html`<${Medium} one=${one} />`)}
    ${edit ? html`<button type="button" class="plain edit" onClick=${() => set(item.text)} aria-label=${t("Edit and resend")}>${t("edit")}</button>` : null}
  </div>`;
}

function ChatItem({ item, given }) {
  switch (item.kind) {
    case "asked_for":
      return html`<${UserMessage} item=${item} edit=${given.edit} />`;
    case "reply":
      return html`<div class="theirs">
        <${Thinking}
          text=${item.thinking}
        />${item.plan ? body({ kind: "todo", title: "Plan", items: item.steps() }, given) : item.text ? html`<${Markdown} text=${item.text} />` : null}${item.media.map(one => html`<${Medium} one=${one} />`)}${item.calls.length ? html`<${Calls} calls=${item.calls} over=${given.over} />` : null}
      </div>`;
    case "said":
      return html`<div class="theirs"><${Markdown} text=${item.text} /></div>`;
    case "call":
      return html`<div class="theirs"><${Calls} calls=${item.calls} over=${given.over} /></div>`;
    case "result":
      return html`<details class="tools">
        <summary><span class="call">${signOf([item.call])} ${item.call.name}</span></summary>
        ${body(item, {})}
      </details>`;
    case "question":
      return given.open.has(item.question.key) ? body(item, given) : html`<${Answered} question=${item.question} answer />`;
    case "todo":
    case "handed":
    case "warning":
      return body(item, given);
    case "stopped":
      return item.good && item.output === null
        ? null
        : html`<div class=${item.good ? "theirs" : "stopped"}>
            ${item.good ? null : html`<${Chip} status=${item.stop.kind} /> <span class="text">${notice(item.stop.detail_notice, item.stop.detail || "")}</span>`}
            ${item.output === null ? null : typeof item.output === "string" ? html`<${Markdown} text=${item.output} />` : html`<${Pre} text=${asText(item.output)} />`}
          </div>`;
    default:
      return null;
  }
}

// The conversations, each with its newest run. Forks are included.
function ConversationList({ current }) {
  const { list } = use(runs);
  useEffect(() => void loadRuns(), []);
  const heads = useMemo(() => {
    const { byId } = runs.get();
    const flows = new Set((agents.get() || []).filter(one => one.graph).map(one => one.name));
    const newest = new Map(); // newest run of each conversation, by its first run
    for (const run of list || []) {
      let first = run;
      for (let step = 0; step < 200 && byId.get(first.base); step++) first = byId.get(first.base);
      if (!run.parent && !flows.has(run.agent) && !newest.has(first.run_id))
        newest.set(first.run_id, { run, title: titleOf(first) });
    }
    return [...newest.values()].slice(0, 40);
  }, [list]);
  return html`<aside class="before" aria-label=${t("Conversations")}>
    <a class="button new" href=${link(["chat"])}>${t("New conversation")}</a>
    <a class="button back" href=${link(["chat"])}>← ${t("Conversations")}</a>
    <ul>
      ${heads.map(
        ({ run, title }) =>
          html`<li key=${run.run_id}>
            <a href=${link(["chat", run.run_id])} aria-current=${run.run_id === current ? "true" : null}
              ><span class="title">${title}</span
              ><span class="note"
                >${[other(run.user_id), run.agent, when(run.updated), run.base && !run.session_id && t("fork")].filter(Boolean).join(" · ")}</span
              ></a
            >
          </li>`,
      )}
    </ul>
  </aside>`;
}

function Conversation({ id, following, edit, setProblem }) {
  const { facts, run, problem, connection, live } = following;
  const story = useMemo(() => fold(facts, id), [facts]);
  const status = run ? statusOf(story, run) : "running";
  const near = useRef(true);
  const [most, show] = useState(MOST);
  const [chosen, choose] = useChosen([...story.questions.keys()]);
  useEffect(() => {
    let last = 0; // only scrolling up leaves the end; pictures that load do not
    const look = () => {
      near.current = innerHeight + scrollY > document.documentElement.scrollHeight - 160 || (near.current && scrollY >= last);
      last = scrollY;
    };
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  const down = () => near.current && scrollTo(0, document.documentElement.scrollHeight);
  useEffect(down, [facts, Boolean(run)]);
  useEffect(() => live.listen(() => requestAnimationFrame(down)), [live]);
  if (problem && !run) return html`<${Inbox} run=${id} otherwise=${html`<${ErrorBox} problem=${problem} again=${following.again} />`} />`;
  if (!run) return html`<${Loading} />`;
  const resume = () => post(runPath(id, "/resume"), { mode: "detach" }).then(following.again, setProblem);
  const over = Boolean(story.state.stop) || status === "interrupted";
  const open = new Set(over ? [] : story.questions.keys());
  const given = { edit: may("talk") && !UNDER_WAY.has(status) ? edit : null, run: id, asked: chosen, choose, over, open };
  return html`<div class="talk" onLoadCapture=${down}>
      ${story.items.length > most ? html`<${Button} onClick=${() => show(most + MOST)}>${t("Show earlier messages")}</${Button}>` : null}
      ${story.items.slice(-most).map(item => html`<${ChatItem} key=${item.key} item=${item} given=${given} />`)}
      <${Live} live=${live} agent=${story.state.agent} over=${!UNDER_WAY.has(status)} />
      ${status === "interrupted" ? html`<p class="row"><span class="note">${t("The run was interrupted. The server resumes it.")}</span><${Button} onClick=${resume}>${t("Resume")}</${Button}></p>` : null}
    </div>
    ${connection === "lost" ? html`<${Offline} />` : null}
    <p class="note">
      <${Chip} status=${status} /> ${money(story.state.cost)} · <a href=${link(["runs", id])}>${t("Show the run")}</a>
    </p>`;
}

export default function Chat({ path, query }) {
  const id = path.slice(1).join("/");
  const known = (use(agents) || []).filter(one => !one.graph); // workflows have no chat
  const following = useRun(id);
  const field = useRef();
  const [agent, setAgent] = useState(known.find(one => one.name === query.agent)?.name || known[0]?.name || "");
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const [files, setFiles] = useState([]);
  const run = following?.run;
  const story = useMemo(() => (following ? fold(following.facts, id) : null), [following?.facts]);
  const going = run && UNDER_WAY.has(statusOf(story, run));
  const waits = Boolean(story?.questions.size);
  const closed = waits || Boolean(id && !run) || Boolean(run && !known.some(one => one.name === run.agent)); // the run waits, or is not loaded yet
  const [unread, setUnread] = useState([]); // messages that the run in progress has not taken in yet
  const isRead = text => story?.items.some(item => item.run === id && item.kind === "asked_for" && item.text === text);
  useEffect(() => setUnread(going ? unread.filter(text => !isRead(text)) : []), [following?.facts, going, id]);
  useEffect(() => (waits ? field.current?.blur() : field.current?.focus({ preventScroll: true })), [id, waits]);

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
  // Start the next run of the session; without a session, fork this run.
  const ask = text =>
    attempt(async () => {
      const input = await withFiles(text, files);
      if (!run) return post("api/runs", { input, agent, session_id: newSessionId(), mode: "detach" });
      const followed = (runs.get().list || []).some(one => one.base === run.run_id && one.session_id);
      if (run.session_id && !followed)
        return post("api/runs", { input, agent: run.agent, session_id: run.session_id, user_id: run.user_id, mode: "detach" });
      return post(runPath(id, "/fork"), { input, mode: "detach" });
    });
  const edit = (item, input) =>
    attempt(() => post(runPath(item.run, "/fork"), { at: Math.max(1, item.seq - 1), input, mode: "detach" }));
  const stop = () => post(runPath(id, "/stop"), {}).catch(setProblem);
  const say = async (text, urgent) => {
    setBusy(true);
    setProblem(null);
    try {
      await post(runPath(id, "/messages"), { input: await withFiles(text, files), urgent });
      setUnread(before => [...before, text]);
      return true;
    } catch (failed) {
      setProblem(failed);
      return false;
    } finally {
      setBusy(false);
    }
  };
  const submit = async (event, urgent = false) => {
    event?.preventDefault();
    const text = field.current.value.trim();
    if (!(text || files.length) || busy || closed) return;
    if (await (going ? say(text, urgent) : ask(text))) (setFiles([]), field.current && (field.current.value = ""));
  };
  const attach = list => {
    const { files: more, tooLarge } = filesOf(list, files);
    setFiles(known => [...known, ...more]);
    setProblem(tooLarge.length ? new Error(t("Too large: {names}. The files of a message can have 20 MB in all.", { names: tooLarge.join(", ") })) : null);
  };
  const drop = event => event.dataTransfer?.files.length && (event.preventDefault(), attach(event.dataTransfer.files));
  const paste = event => event.clipboardData?.files.length && (event.preventDefault(), attach(event.clipboardData.files));
  useKeys({ "/": () => field.current.focus(), ".": () => going && (!waits || confirm(t("Stop this run?"))) && stop() });
  return html`<h1 class="unseen">${t("Chat")}</h1>
    <div class=${`chat ${id ? "talking" : ""}`}>
      <${ConversationList} current=${id} />
      <section aria-label=${t("Conversation")}>
        ${id ? html`<${Conversation} key=${id} id=${id} following=${following} edit=${edit} setProblem=${setProblem} />` : html`<${EmptyState} title=${t("What do you want to do?")}><p>${known.length ? t("Choose an agent and write a message.") : t("This server has no agents.")}</p></${EmptyState}>`}
        ${unread.map(text => html`<div class="mine unread" key=${text}><${Text} text=${text} /><p class="note">${t("The agent reads this at its next step.")}</p></div>`)}
        <${ErrorBox} problem=${problem} />
      </section>
      ${
        may("talk")
          ? html`<form class="ask" onSubmit=${submit} onDrop=${drop} onDragOver=${event => event.preventDefault()} onPaste=${paste}>
              <${Attached} files=${files} remove=${place => setFiles(files.filter((_, at) => at !== place))} />
              <textarea
                ref=${field}
                rows="2"
                aria-label=${t("Your message")}
                placeholder=${waits ? (may("approve") ? t("The run is waiting for your answer above.") : t("The run is waiting for an answer.")) : going ? t("Add something while the agent works …") : t("Message …")}
                onKeyDown=${event => isSendKey(event) && submit(event)}
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
                <label class="attach note"
                  >${t("Attach a file")}
                  <input
                    type="file"
                    multiple
                    class="unseen"
                    onChange=${event => (attach(event.target.files), (event.target.value = ""))}
                /></label>
                <span class="note hint">${t("Enter to send, Shift+Enter for a new line")}</span>
                ${going ? html`<${Button} hint="." onClick=${stop}>${t("Stop")}</${Button}>` : null}
                ${going && !waits ? html`<${Button} onClick=${event => submit(event, true)}>${t("Send now")}</${Button}>` : null}
                <button class="main" disabled=${busy || closed}>${t("Send")}</button>
              </div>
            </form>`
          : null
      }
    </div>`;
}
