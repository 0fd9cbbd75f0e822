// The story of a run: messages and calls, each with the number of its fact. A call and its result are shown together.

import { html, useState } from "../vendor/preact.js";
import { link, runs, use } from "../shared.js";
import { Chip, HUGE, Pre, Raw } from "../parts.js";
import { saveFile } from "../server.js";
import { Markdown } from "../markdown.js";
import { by, callText, clock, count, durationText, money, asText, shorten, state, visible } from "../format.js";
import { notice, t } from "../words.js";
import { Answer, Answered, Question } from "./question.js";
import { Medium } from "./media.js";

const LONG = 600; // characters
const LINES = 12;

// An external text, unchanged. A long text is cut, a huge one can be downloaded.
const TODO = { open: "to do", doing: "in progress", done: "done", failed: "failed" };

export function Text({ text }) {
  const [whole, set] = useState(false);
  const brief = text.slice(0, LONG).split("\n").slice(0, LINES).join("\n");
  const shown = whole ? text.slice(0, HUGE) : brief;
  const all = t("all {count} characters", { count: count(text.length) });
  return html`<span class="text" dir="auto">${shown}${shown === text ? "" : " …"}</span>
    ${brief === text ? null : html` <button type="button" class="plain" onClick=${() => set(!whole)}>${whole ? t("less") : all}</button>`}
    ${whole && shown !== text ? html` <button type="button" class="plain" onClick=${() => saveFile("text.txt", text)}>${t("Download the full text")}</button>` : null}`;
}

// The result of a call, its duration, and the number of its fact.
function CallResult({ call, given = {}, parallel }) {
  const { fork, now, over, at } = given;
  const open = call.ended === undefined;
  const stopped = open && (over || call.cut);
  const took = call.started && !call.given && !stopped && !call.question?.open ? (call.ended ?? now) - call.started : null;
  const details = [
    call.given ? t("supplied in this fork, not run") : "",
    took === null ? "" : durationText(took),
    parallel ? t("in parallel") : "",
    call.tries > 1 ? t("try {count}", { count: call.tries }) : "",
    call.effect && call.effect !== "pure" ? t(call.effect) : "",
  ];
  const doing = () =>
    call.question?.open && !over
      ? `◆ ${t("waiting for an answer")}`
      : stopped
        ? t(call.started ? "not finished" : "not run")
        : call.started
          ? html`<span class="live">◐</span> ${t("running")}`
          : t("not run yet");
  return html`${
      open
        ? html`<p class="ret note">${doing()}</p>`
        : html`<p class=${`ret ${call.error === null ? "" : "failed"}`}>
            ${at && !call.apart ? html`<${Number} seq=${call.endedSeq} at=${call.earlier && !call.given ? null : at} />` : null}
            ${call.error === null ? null : html`<b>✕ </b>`}<${Text} text=${call.error ?? asText(call.output)} />
          </p>`
    }
    <p class="note call-note">
      ${details.filter(Boolean).join(" · ")}${fork && !open && !call.earlier ? html` <button type="button" class="plain" onClick=${() => fork(call)}>${t("fork with another result …")}</button>` : null}
    </p>`;
}

export function Call({ call, parallel, given }) {
  const args = typeof call.args === "object" ? callText(call.name, call.args, 400) : call.name;
  return html`<div class="a-call">
    <details>
      <summary class="call">${args}</summary>
      <${Pre} text=${visible(asText(call.args))} />
    </details>
    ${call.changed ? html`<p class="note">${t("run with:")} <code>${callText(call.name, call.changed)}</code></p>` : null}
    ${call.used ? html`<p class="note">${t("run instead:")} <code>${callText(call.used.name, call.used.args)}</code></p>` : null}
    ${call.apart ? null : html`<${CallResult} call=${call} given=${given} parallel=${parallel} />`}
    ${(call.media || []).map(one => html`<${Medium} one=${one} />`)}
    <${Children} call=${call} />
  </div>`;
}

// A result that is not directly below its call.
export const Result = ({ call, given }) =>
  html`<div class="a-call">
    <span class="call">${callText(call.name, call.changed || call.args, 90)}</span><${CallResult} call=${call} given=${given} />
  </div>`;

function Children({ call }) {
  const { list } = use(runs);
  const inner = (list || []).filter(
    run => run.parent && run.run_id.startsWith(`${run.parent}/${call.id}/`) && run.parent === call.run,
  );
  return inner.map(
    run =>
      html`<p class="child">
        ↳ <a href=${link(["runs", run.run_id])}>${run.agent}</a> <${Chip} status=${run.status} />
        <span class="note">${count(run.facts)} ${t("facts")} · ${money(run.usage.cost)}</span>
      </p>`,
  );
}

export function Thinking({ text }) {
  return text
    ? html`<details class="thinking">
        <summary class="note">${t("Thinking")}</summary>
        <${Text} text=${text} />
      </details>`
    : null;
}

function Reply({ item, given }) {
  const { usage = {} } = item;
  return html`<${Thinking} text=${item.thinking} />
    ${
      item.text
        ? item.plan
          ? html`${body({ kind: "todo", title: "Plan", items: item.steps() }, given)}<details>
              <summary>${t("plan {number}", { number: item.plan })}</summary>
              <${Pre} text=${item.text} />
            </details>`
          : html`<div class="said-by"><${Markdown} text=${item.text} /></div>`
        : null
    }
    ${item.media.map(one => html`<${Medium} one=${one} />`)}
    ${item.problem ? html`<p class="note bad">✕ ${item.problem}</p>` : null}
    ${item.calls.map(call => html`<${Call} key=${call.id} call=${call} parallel=${item.calls.length > 1} given=${given} />`)}
    <p class="note" title=${item.request || null}>
      ${[t("step {number}", { number: item.step }), item.agent, item.model, durationText(item.seconds), usage.output || usage.input ? `${count((usage.input || 0) + (usage.output || 0))} ${t("tokens")}` : "", usage.cost === 0 || usage.cost === undefined ? "" : money(usage.cost)].filter(Boolean).join(" · ")}
    </p>`;
}

export function body(item, given) {
  switch (item.kind) {
    case "asked_for":
      return html`<div class="said-by you">
          <${Text} text=${item.text} />${(item.media || []).map(one => html`<${Medium} one=${one} />`)}
        </div>
        <p class="note">${[item.schedule ? t("schedule {name}", { name: item.schedule }) : by(item.user), clock(item.time)].filter(Boolean).join(", ")}</p>`;
    case "said":
      return html`<div class="said-by"><${Markdown} text=${item.text} /></div>`;
    case "reply":
      return html`<${Reply} item=${item} given=${given} />`;
    case "call":
      return item.calls.map(call => html`<${Call} key=${call.id} call=${call} given=${given} />`);
    case "result":
      return html`<${Result} call=${item.call} given=${given} />`;
    case "question":
      return given.open.has(item.question.key)
        ? html`<${Question}
            question=${item.question}
            run=${given.run}
            active=${given.asked === item.question.key}
            choose=${() => given.choose(item.question.key)}
          />`
        : html`<${Answered} question=${item.question} />`;
    case "answered":
      return html`<${Answer} question=${item.question} />`;
    case "noted":
      return html`<p class="note">· <${Text} text=${item.text} /></p>`;
    case "warning":
      return html`<p class="note warn">⚠ ${item.source}: ${notice(item.notice, item.text)}</p>`;
    case "resumed":
      return html`<p class="note">— ${t("resumed, attempt {count}", { count: item.attempt })} · ${clock(item.time)}</p>`;
    case "goes_on":
      return html`<p class="note">
        — ${t("continues from")}:
        <a href=${link(["runs", item.base?.[0] || ""], { at: item.base?.[1] })}
          >${item.base?.[0]?.slice(0, 12)}, ${t("fact")} ${item.base?.[1]}</a
        >
      </p>`;
    case "handed":
      return html`<p class="note">→ ${t("transferred to")} <b>${item.text}</b></p>`;
    case "compacted":
      return html`<details>
        <summary class="note">${t("{count} messages were summarized", { count: item.upto })}</summary>
        <${Text} text=${item.text} />
      </details>`;
    case "stopped":
      return html`<div class=${`stopped ${state(item.stop.kind).tone}`}>
        <p class="row">
          <${Chip} status=${item.stop.kind} />
          ${item.stop.detail ? html`<span class="text">${notice(item.stop.detail_notice, item.stop.detail)}</span>` : null}
          ${item.stop.error ? html`<code>${item.stop.error}</code>` : null}
        </p>
        ${item.output === null ? null : html`<div class="said-by">${typeof item.output === "string" ? html`<${Markdown} text=${item.output} />` : html`<${Pre} text=${asText(item.output)} />`}</div>`}
      </div>`;
    case "given":
      return html`<p class="note">← ${t("result supplied for {name}", { name: item.call.name })}</p>
        <p class="ret"><${Text} text=${item.call.error ?? asText(item.call.output)} /></p>`;
    case "todo":
      return html`<ul class="todo" aria-label=${t(item.title || "To do")}>
        ${item.items.map(one => html`<li class=${one.status}><span role="img" aria-label=${t(TODO[one.status] || one.status)}>${{ done: "✓", doing: "◐", failed: "✕" }[one.status] || "○"}</span> ${one.run ? html`<a href=${link(["runs", one.run])}>${one.text}</a>` : one.text}</li>`)}
      </ul>`;
    case "recalled":
      return html`<details>
        <summary class="note">${t("memories recalled: {count}", { count: item.lines.length })}</summary>
        <ul>
          ${item.lines.map(line => html`<li>${line}</li>`)}
        </ul>
      </details>`;
    default:
      return html`<details>
        <summary class="note">
          ${item.name}${item.hidden ? ` (${t("not shown to users")})` : ""}:
          ${shorten(asText(item.data).replace(/\s+/g, " "), 90)}
        </summary>
        <${Pre} text=${asText(item.data)} />
      </details>`;
  }
}

// The number of a fact, with a link to it; facts of earlier runs have none.
function Number({ seq, at }) {
  const label = t("fact {seq}", { seq });
  return at
    ? html`<a class="seq" href=${at(seq)} aria-label=${label} title=${label}>${seq}</a>`
    : html`<span class="seq" aria-hidden="true">·</span>`;
}

// A row. `use.at`: returns the link to a fact.
export function Item({ item, use: given }) {
  return html`<div class=${`item is-${item.kind} ${item.earlier ? "earlier" : ""}`} role="listitem">
    <${Number} seq=${item.seq} at=${item.earlier ? null : given.at} />
    <div class="what">${body(item, given)}</div>
  </div>`;
}

// The text that is streaming.
export function Live({ live, agent, over }) {
  const { text, thinking, progress, notes } = use(live);
  if (!text && !thinking && (over || (!progress && !Object.keys(notes).length))) return null;
  return html`<div class=${`item is-reply ${over ? "unfinished" : "going"}`} aria-live="off">
    <span class="seq live" aria-hidden="true">◐</span>
    <div class="what">
      ${thinking && !text ? html`<p class="note thinking-now">${shorten(thinking.slice(-300), 300)}</p>` : html`<${Thinking} text=${thinking} />`}
      ${text ? html`<div class="said-by"><${Markdown} text=${text} /></div>` : null}
      ${Object.values(notes).map(note => html`<p class="note">${note}</p>`)}
      ${progress ? html`<p class="note">${progress.done}/${progress.of} · ${(progress.running || []).join(", ")}</p>` : null}
      <p class="note">${over ? t("not finished and not recorded") : agent}</p>
    </div>
  </div>`;
}

const BRIEF = {
  Opened: body => body.recipe?.model || "",
  Received: body => messageText(body.message),
  Noted: body => messageText(body.message),
  ModelReplied: body =>
    (body.reply?.message?.parts || [])
      .map(part => part.text || (part.type === "call" ? callText(part.name, part.args) : part.type))
      .join(" "),
  ToolStarted: body => callText(body.call.name, body.call.args),
  ToolFinished: body => `${body.result.name} ← ${body.result.error ?? asText(body.result.output)}`,
  Asked: body => body.prompt,
  Answered: body => JSON.stringify(body.answer),
  Stopped: body => `${body.stop.kind} ${body.stop.detail || ""}`,
};
const messageText = message => (message?.parts || []).map(part => part.text || part.type).join(" ");

// A recorded fact.
export function Fact({ fact, earlier }) {
  const brief = BRIEF[fact.type]?.(fact.body || {}) ?? asText(fact.body);
  const title = html`<span class="seq">${fact.seq}</span><span class="note">${clock(fact.time)}</span><b>${fact.type}</b
    ><span class="brief">${shorten(`${brief}`.replace(/\s+/g, " "), 160)}</span>`;
  return html`<${Raw} value=${fact} title=${title} kind=${`fact ${earlier ? "earlier" : ""}`} />`;
}
