// A run: the timeline on top, the story in the middle, the state at the cursor next to it.

import { html, useContext, useEffect, useMemo, useState } from "../vendor/preact.js";
import { download, post, runPath, send } from "../server.js";
import { agents, change, dropRun, go, link, loadRuns, may, runs, titleOf, use } from "../shared.js";
import { Button, Chip, Dialog, Loading, LongList, Offline, EmptyState, Announce, ErrorBox, useKeys, useNow } from "../parts.js";
import { clock, count, day, durationText, money, shorten, value } from "../format.js";
import { notice, problemText, t } from "../words.js";
import { fold, UNDER_WAY } from "../fold.js";
import { useRun } from "./following.js";
import { Fact, Item, Live } from "./story.js";
import { Lanes } from "./lanes.js";
import { Graph } from "./graph.js";
import { forkPoint, Fork } from "./fork.js";
import { useChosen } from "./question.js";
import Inbox from "./inbox.js";
import { filter, Row } from "./runs.js";

function countNames(names) {
  const each = new Map();
  for (const name of names) each.set(name, (each.get(name) || 0) + 1);
  return [...each].map(([name, number]) => (number > 1 ? `${name} × ${number}` : name)).join(", ");
}

export const statusOf = (story, run) =>
  story.state.status === "running" && run.status === "interrupted" ? "interrupted" : story.state.status;

// Names and values. Missing rows are left out.
const Terms = ({ rows }) =>
  html`<dl>
    ${rows.filter(Boolean).map(
      ([name, text]) =>
        html`<dt>${name}</dt>
          <dd>${text}</dd>`,
    )}
  </dl>`;

function StatePanel({ story, run, at }) {
  const { state } = story;
  const tasks = story.tasks();
  const done = tasks.filter(task => task.status === "done").length;
  const recalled = state.recalled.map(line => line.replace(/^- /, "")).join("; ");
  const rows = [
    [t("state"), html`<${Chip} status=${at ? state.status : statusOf(story, run)} />`],
    state.stop?.detail && [t("reason"), notice(state.stop.detail_notice, state.stop.detail)],
    tasks.length && [t("tasks"), t("{done} of {all} done", { done, all: tasks.length })],
    [t("model calls"), count(state.replies)],
    [t("tool calls"), count(state.calls)],
    [t("tokens"), `${count(state.input)} + ${count(state.output)}`],
    [t("cost"), money(state.cost)],
    [t("working time"), durationText(state.seconds)],
    story.open.length && [t("open calls"), countNames(story.open.map(call => call.name))],
    recalled && [t("memory used"), shorten(recalled, 160)],
    state.attempt > 1 && [t("attempts"), state.attempt],
    state.warnings && [t("warnings"), state.warnings],
  ];
  return html`<section class="sheet">
    <h2>${at ? t("At fact {seq}", { seq: at }) : t("Now")}</h2>
    <${Terms} rows=${rows} />
  </section>`;
}

// The configuration of the agent.
function ConfigurationPanel({ story, run }) {
  const { recipe } = story;
  const session = html`<a href=${link(["runs"], { q: `session:${run.session_id}` })}>${run.session_id}</a>`;
  const rows = [
    [t("agent"), run.agent],
    recipe.model && [t("model"), recipe.model],
    [t("tools"), Object.keys(recipe.tools || {}).join(", ") || "–"],
    run.session_id && [t("session"), session],
    run.user_id && [t("user"), run.user_id],
    [t("run"), html`<span class="id">${run.run_id}</span>`],
  ];
  return html`<section class="sheet">
    <h2>${t("Configuration")}</h2>
    <${Terms} rows=${rows} />
    ${
      recipe.instructions
        ? html`<details>
            <summary class="note">${t("instructions")}</summary>
            <pre tabindex="0">${recipe.instructions}</pre>
          </details>`
        : null
    }
  </section>`;
}

function Related({ run }) {
  const { list } = use(runs);
  const forks = (list || []).filter(one => one.base === run.run_id && !one.session_id);
  const next = (list || []).filter(one => one.base === run.run_id && one.session_id);
  const lines = [
    run.parent ? [t("parent run"), run.parent] : null,
    run.base ? [run.session_id ? t("previous run") : t("forked from"), run.base, !run.session_id] : null,
    ...next.map(one => [t("next run"), one.run_id]),
    ...forks.map(one => [t("fork"), one.run_id, true]),
  ].filter(Boolean);
  if (!lines.length) return null;
  const title = id => titleOf((list || []).find(one => one.run_id === id) || { run_id: id });
  return html`<section class="sheet">
    <h2>${t("Related runs")}</h2>
    <ul class="related">
      ${lines.map(
        ([how, id, differs]) =>
          html`<li>
            <span class="note">${how}</span>
            <a href=${link(["runs", id])}>${shorten(title(id), 60)}</a>
            ${differs ? html` <a class="note" href=${link(["compare", ...(how === t("fork") ? [run.run_id, id] : [id, run.run_id])])}>${t("compare")}</a>` : null}
          </li>`,
      )}
    </ul>
  </section>`;
}

function ChooseRun({ run, close }) {
  const { list } = use(runs);
  const [words, set] = useState("");
  useEffect(() => void loadRuns(), []);
  const near = one => (one.base === run.run_id || one.run_id === run.base ? 2 : one.agent === run.agent ? 1 : 0);
  const found = (list || [])
    .filter(one => one.run_id !== run.run_id && !one.parent)
    .filter(filter(words))
    .sort((a, b) => near(b) - near(a))
    .slice(0, 30);
  return html`<${Dialog} title=${t("Compare with")} close=${close}><input type="search" autofocus aria-label=${t("Search and filter")} value=${words} onInput=${event => set(event.target.value)} />
    <div class="choose">${found.map(one => html`<${Row} run=${one} onClick=${event => (event.preventDefault(), close(), go(["compare", run.run_id, one.run_id]))} />`)}
    ${list && !found.length ? html`<p class="note">${t("No matching runs")}</p>` : null}</div></${Dialog}>`;
}

function TokenChart({ story }) {
  const replies = story.items.filter(item => item.kind === "reply" && !item.earlier && item.usage);
  if (replies.length < 2) return null;
  const of = item => (item.usage.input || 0) + (item.usage.output || 0);
  const each = Math.ceil(replies.length / 130); // calls per bar; a bar shows the largest of them
  const tokens = [];
  for (let place = 0; place < replies.length; place += each)
    tokens.push(Math.max(...replies.slice(place, place + each).map(of)));
  const most = Math.max(1, ...tokens);
  const step = 260 / tokens.length;
  const told = t("Tokens per model call: {list}", { list: tokens.slice(0, 20).join(", ") });
  return html`<section class="sheet">
    <h2>${t("Tokens per model call")}</h2>
    <svg class="spark" viewBox="0 0 260 48" role="img" aria-label=${told}>
      <title>${told}</title>
      ${tokens.map((one, place) => html`<rect x=${place * step} y=${48 - (one / most) * 46} width=${Math.max(1, step - 0.8)} height=${(one / most) * 46} />`)}
    </svg>
    <p class="note">${t("max per call")}: ${count(most)} · ${t("total cost")}: ${money(story.state.cost)}</p>
  </section>`;
}

export default function Run({ path, query }) {
  const id = path.slice(1).join("/");
  const following = useRun(id);
  const { facts, run, problem, connection, live } = following;
  const [dialog, open] = useState(null);
  const [trouble, setTrouble] = useState(null);
  const say = useContext(Announce);
  useEffect(() => void (runs.get().list || loadRuns()), []);
  const last = following.last;
  const at = query.at ? Math.min(Math.max(1, parseInt(query.at, 10) || 1), last || Infinity) : 0;
  const story = useMemo(() => fold(facts, id), [facts]);
  const then = useMemo(() => (at && at < last ? fold(facts, id, at) : story), [facts, at]);
  const going = run ? UNDER_WAY.has(statusOf(story, run)) : false;
  const now = useNow(going && !story.questions.size);
  const cursor = at || last;
  const waiting = (at && at < last) || story.state.stop ? [] : [...story.questions.keys()];
  const [asked, choose] = useChosen(waiting);
  useEffect(() => void (run && (document.title = `${titleOf(run)} · kaname`)), [run?.title]);
  const to = seq => change({ at: seq >= last ? "" : seq });
  const act = (work, done) => async () => {
    setTrouble(null);
    try {
      const said = await work();
      say(done);
      return said;
    } catch (failed) {
      setTrouble(failed);
    }
  };
  const talk = may("talk");
  const stop = act(() => post(runPath(id, "/stop"), {}), t("Stop requested"));
  const test = act(() => download(runPath(id, "/test")), t("Test downloaded"));
  const addCase = act(() => post("api/evaluations/cases", { run_id: id }), t("Added to evals.jsonl"));
  const resume = act(async () => (await post(runPath(id, "/resume"), { mode: "detach" }), following.again()), t("Resumed"));
  const rate = rating => act(async () => (await post(runPath(id, "/rating"), { rating }), following.again()), t("Rated"))();
  const remove = act(async () => {
    if (!confirm(t("Delete this run permanently?"))) return;
    await send("DELETE", runPath(id));
    dropRun(id);
    go(["runs"]);
  }, "");
  useKeys({
    f: () => talk && open("fork"),
    c: () => open("compare"),
    t: () => may("admin") && test(),
    ".": () => going && (!story.questions.size || confirm(t("Stop this run?"))) && stop(),
    ArrowLeft: () => to(Math.max(1, cursor - 1)),
    ArrowRight: () => to(Math.min(last, cursor + 1)),
    Home: () => to(1),
    End: () => to(last),
  });
  if (problem && !run)
    return problem.status === 404
      ? html`<${Inbox} run=${id} otherwise=${html`<${EmptyState} title=${t("Run not found")}><p><a href=${link(["runs"])}>${t("Runs")}</a></p></${EmptyState}>`} />`
      : html`<${ErrorBox} problem=${problem} again=${following.again} />`;
  if (!run) return html`<${Loading} />`;
  const { state } = story;
  const status = statusOf(story, run);
  const raw = query.view === "facts";
  const given = {
    at: seq => link(path, { ...query, at: seq }),
    fork: talk && may("approve") ? call => open({ call }) : null,
    now: at && at < last ? then.before : now,
    run: id,
    asked,
    over: Boolean(then.state.stop) || (status === "interrupted" && !(at && at < last)),
    open: new Set(waiting),
    choose,
  };
  const shownFacts = at ? facts.filter(fact => fact.run !== id || fact.seq <= at) : facts;
  const tasks = then.tasks();
  const wide = then.graph?.width > 420;
  const graph =
    tasks.length &&
    html`<section class="sheet">
      <h2>${story.plans ? t("Plan {number}", { number: then.plans }) : t("Workflow")}</h2>
      <${Graph}
        drawing=${{ ...then.graph, tasks }}
        title=${t("Tasks")}
        choose=${task => task.calls.length && to(task.calls.at(-1).endedSeq ?? task.calls.at(-1).seq)}
      />
    </section>`;
  return html`<header class="top"><h1>${titleOf(run)}</h1><${Chip} status=${status} />
      <span class="meta">${t("agent")} <b>${state.agent}</b>${run.session_id ? html` · ${t("session")} <b>${run.session_id}</b>` : null} · ${day(run.created)} ${clock(run.created)} · <b>${durationText((going && !story.questions.size ? now : run.updated) - run.created)}</b> · ${t("{count} model calls", { count: state.replies })} · <b>${count(state.input + state.output)}</b> ${t("tokens")} · <b>${money(state.cost)}</b></span>
      <div class="actions">
        ${talk && !agents.get()?.find(one => one.name === run.agent)?.graph ? html`<a class="button" href=${link(["chat", id])}>${t("Chat")}</a>` : null}
        <${Button} hint="c" onClick=${() => open("compare")}>${t("Compare")}</${Button}>
        ${may("admin") ? html`<${Button} hint="t" onClick=${test}>${t("Save as test")}</${Button}>` : null}
        ${may("admin") && !going ? html`<${Button} onClick=${addCase}>${t("Add to evaluation")}</${Button}>` : null}
        ${talk ? html`<${Button} hint="f" onClick=${() => open("fork")}>${t("Fork from {seq}", { seq: forkPoint(story, cursor) })}</${Button}>` : null}
        ${going && talk ? html`<${Button} hint="." onClick=${stop}>${t("Stop")}</${Button}>` : null}
        ${talk && (status === "interrupted" || (!going && !["completed", "degraded"].includes(status))) ? html`<${Button} onClick=${resume}>${t("Resume")}</${Button}>` : null}
        ${!going && talk ? html`<${Button} label=${t("good")} onClick=${() => rate("good")} kind=${story.rating === "good" ? "pressed" : ""}>▲</${Button}><${Button} label=${t("bad")} onClick=${() => rate("bad")} kind=${story.rating === "bad" ? "pressed" : ""}>▼</${Button}><${Button} onClick=${remove}>${t("Delete")}</${Button}>` : null}
      </div></header>
    ${connection === "lost" ? html`<${Offline} />` : null}
    <${ErrorBox} problem=${trouble || (run && problem)} />
    <${Lanes} story=${story} facts=${facts} own=${id} at=${cursor} go=${to} now=${going && !story.questions.size ? now : story.before} />
    ${at && at < last ? html`<p class="travel" role="status">${t("You see the run at fact {seq} of {last}.", { seq: at, last })} <button type="button" class="plain" onClick=${() => to(last)}>${t("Back to the latest fact")}</button></p>` : null}
    ${wide ? graph : null}
    <div class="columns">
      <section class="sheet" aria-label=${t("Story")}><div class="tabs"><h2>${raw ? t("Facts") : t("Story")}</h2><button type="button" class="plain" onClick=${() => change({ view: raw ? "" : "facts" })}>${raw ? t("show the story") : t("all {count} facts", { count: count(facts.length) })}</button></div>
        ${
          raw
            ? html`<${LongList}
                items=${shownFacts}
                estimate=${27}
                block=${60}
                row=${fact => html`<${Fact} key=${`${fact.run}${fact.seq}`} fact=${fact} earlier=${fact.run !== id} />`}
              />`
            : html`<${LongList}
                  items=${then.items}
                  estimate=${86}
                  block=${24}
                  role="list"
                  stamp=${`${asked} ${waiting} ${Math.round(now)} ${at} ${going}`}
                  row=${item => html`<${Item} key=${item.key} item=${item} use=${given} />`}
                />
                ${at && at < last ? null : html`<${Live} live=${live} agent=${state.agent} over=${!going} />`}`
        }
      </section>
      <aside>
        <${StatePanel} story=${then} run=${run} at=${at && at < last ? at : 0} />
        ${wide ? null : graph || null}
        <${TokenChart} story=${then} /><${Related} run=${run} /><${ConfigurationPanel} story=${story} run=${run} />
      </aside></div>
    ${dialog === "compare" ? html`<${ChooseRun} run=${run} close=${() => open(null)} />` : null}
    ${dialog === "fork" || dialog?.call ? html`<${Fork} run=${run} at=${cursor} call=${dialog.call} story=${story} close=${() => open(null)} />` : null}`;
}
