// Runs: one line each, live. Filters are text, so that they can be typed, shared and understood.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { change, go, link, loadRuns, moreRuns, runs, titleOf, use } from "../shared.js";
import { Chip, Loading, Long, Quiet, Trouble, useKeys } from "../parts.js";
import { clock, count, day, lasted, money, state, STATUSES, when } from "../told.js";
import { t } from "../words.js";

const UNDER_WAY = ["running", "interrupted", "waiting"];
const SORTS = {
  newest: null,
  cost: run => run.usage.cost ?? -1,
  duration: run => run.updated - run.created,
  tokens: run => run.usage.input_tokens + run.usage.output_tokens,
};

const NUMBERS = ["cost", "tokens", "seconds"];
const isStatus = wanted => STATUSES.some(one => one === wanted || state(one).word.replaceAll(" ", "_") === wanted);

// What looks like a filter and is none that there is.
const unknown = text =>
  (text.match(/\S+/g) || []).filter(word => {
    const [, minus, field, sign, wanted] = /^(-?)([a-z]+)([:<>])(.+)$/i.exec(word) || [];
    if (!field || /^https?$/.test(field)) return false;
    const name = field.toLowerCase();
    if (minus) return true;
    if (NUMBERS.includes(name)) return !/^\d*\.?\d+$/.test(wanted);
    if (sign !== ":") return true;
    if (name === "status") return !wanted.split(",").every(isStatus);
    if (name === "is") return !["fork", "child", "open"].includes(wanted);
    if (name === "day") return wanted !== "today" && !/^\d{4}-\d\d-\d\d$/.test(wanted);
    return !["agent", "user", "session"].includes(name);
  });

// "status:failed agent:desk cost>0.01 day:today refund" as a test of a run.
export function filter(text) {
  const tests = (text.match(/\S+/g) || []).map(word => {
    const [, field, sign, wanted] = /^(status|agent|user|session|day|cost|tokens|seconds|is)(:|>|<)(.+)$/i.exec(word) || [];
    if (!field)
      return run =>
        `${run.title} ${run.run_id} ${run.agent} ${run.session_id} ${run.user_id}`.toLowerCase().includes(word.toLowerCase());
    const number = parseFloat(wanted);
    const compared = value => (sign === ">" ? value > number : sign === "<" ? value < number : value === number);
    switch (field.toLowerCase()) {
      case "status":
        return run => wanted.split(",").some(one => run.status === one || state(run.status).word.replaceAll(" ", "_") === one);
      case "agent":
        return run => run.agent === wanted;
      case "user":
        return run => run.user_id === wanted;
      case "session":
        return run => run.session_id === wanted;
      case "day":
        return run => day(run.created) === (wanted === "today" ? day(Date.now() / 1000) : wanted);
      case "cost":
        return run => run.usage.cost != null && compared(run.usage.cost);
      case "tokens":
        return run => compared(run.usage.input_tokens + run.usage.output_tokens);
      case "seconds":
        return run => compared(run.updated - run.created);
      default:
        return run => (wanted === "fork" ? isFork(run) : wanted === "child" ? run.parent : UNDER_WAY.includes(run.status));
    }
  });
  return run => tests.every(test => test(run));
}

const isFork = run => run.base && !run.session_id;

export function Row({ run, chosen, onClick }) {
  const working = UNDER_WAY.includes(run.status) && run.status !== "waiting";
  return html`<a
    class=${`run ${chosen ? "chosen" : ""}`}
    href=${link(["runs", run.run_id])}
    id=${`run-${run.run_id}`}
    onClick=${onClick}
    aria-current=${chosen ? "true" : null}
  >
    <${Chip} status=${run.status} />
    <span class="title"
      >${run.parent ? html`<span class="note">↳ </span>` : null}${titleOf(run)}${isFork(run) ? html` <span class="note">· ${t("fork")}</span>` : null}</span
    >
    <span class="agent note">${run.agent}</span>
    <span class="note number begun" title=${`${day(run.created)} ${clock(run.created)}`}>${when(run.created)}</span>
    <span class="number">${working ? html`<${Ticking} since=${run.created} />` : lasted(run.updated - run.created)}</span>
    <span class="number wide">${count(run.usage.input_tokens + run.usage.output_tokens)}</span>
    <span class="number">${money(run.usage.cost)}</span>
  </a>`;
}

function Ticking({ since }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const again = setInterval(() => tick(one => one + 1), 1000);
    return () => clearInterval(again);
  }, []);
  return lasted(Math.max(0, Date.now() / 1000 - since));
}

const left = { chosen: "", scroll: 0, words: "" }; // where the list was left

export default function Runs({ query }) {
  const { list, problem, next } = use(runs);
  const [words, setWords] = useState(query.q || "");
  const [chosen, choose] = useState(left.chosen);
  useEffect(() => {
    if (left.words === (query.q || "")) requestAnimationFrame(() => scrollTo(0, left.scroll)); // back from a run: where we were
    return () => Object.assign(left, { scroll: scrollY });
  }, [Boolean(list)]);
  const sort = query.sort in SORTS ? query.sort : "newest";
  const search = useRef();
  useEffect(() => void loadRuns(), []);
  useEffect(() => {
    if (words === (query.q || "")) return;
    const later = setTimeout(() => change({ q: words }), 200);
    return () => clearTimeout(later);
  }, [words]);
  const inner = /(^|\s)is:child/.test(words);
  const shown = useMemo(() => {
    const test = filter(words);
    const found = (list || []).filter(run => (inner || !run.parent) && test(run));
    const by = SORTS[sort];
    return by ? [...found].sort((a, b) => by(b) - by(a)) : found;
  }, [list, words, sort]);
  const outer = useMemo(() => (list || []).filter(run => inner || !run.parent).length, [list, inner]);
  Object.assign(left, { chosen, words });
  const move = step => {
    const place = shown.findIndex(run => run.run_id === chosen);
    const next = shown[Math.max(0, Math.min(shown.length - 1, place + step))];
    if (!next) return;
    choose(next.run_id);
    document.getElementById(`run-${next.run_id}`)?.scrollIntoView({ block: "nearest" });
  };
  useKeys({
    "/": () => search.current.focus(),
    j: () => move(1),
    k: () => move(-1),
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    Enter: () => chosen && go(["runs", chosen]),
  });
  const quick = ["status:waiting", "status:running", "status:interrupted", "status:failed", "is:fork", "day:today"];
  const odd = unknown(words);
  const toggle = word =>
    setWords(words.includes(word) ? words.replace(word, "").replace(/\s+/g, " ").trim() : `${words} ${word}`.trim());
  const priced = shown.filter(run => run.usage.cost != null);
  const total = shown.length && !priced.length ? null : priced.reduce((sum, run) => sum + run.usage.cost, 0);
  return html`<header class="top">
      <h1>${t("Runs")}</h1>
      <span class="meta"
        >${list ? html`<b>${count(shown.length)}</b> ${shown.length === outer ? "" : t("of {count}", { count: count(outer) })} · <b>${money(total)}</b>` : null}</span
      >
    </header>
    <div class="filters" role="search">
      <input
        ref=${search}
        type="search"
        value=${words}
        placeholder=${t("title, status:failed, agent:name, cost>0.01, day:today …")}
        aria-label=${t("Search and filter")}
        onInput=${event => setWords(event.target.value)}
        onKeyDown=${event => event.key === "Escape" && event.target.blur()}
        list="statuses"
      />
      <datalist id="statuses">${STATUSES.map(one => html`<option value=${`status:${one}`} />`)}</datalist>
      ${quick.map(word => html`<button type="button" class="plain filter" aria-pressed=${words.includes(word) ? "true" : "false"} onClick=${() => toggle(word)}>${word}</button>`)}
      <label class="sort"
        >${t("by")}
        <select value=${sort} onChange=${event => change({ sort: event.target.value === "newest" ? "" : event.target.value })}>
          ${Object.keys(SORTS).map(one => html`<option value=${one} selected=${one === sort}>${t(one)}</option>`)}
        </select></label
      >
    </div>
    ${odd.length ? html`<p class="note warn">${t("not understood: {words}", { words: odd.join(" ") })} · status: agent: user: session: day: is: cost> tokens> seconds></p>` : null}
    <${Trouble} problem=${problem} again=${loadRuns} />
    ${
      !list
        ? problem
          ? null
          : html`<${Loading} />`
        : shown.length
          ? html`<div class="sheet flush">
              <div class="run head" aria-hidden="true">
                <span>${t("state")}</span><span class="title">${t("title")}</span><span class="agent">${t("agent")}</span
                ><span class="number begun">${t("begun")}</span> <span class="number">${t("duration")}</span
                ><span class="number wide">${t("tokens")}</span><span class="number">${t("cost")}</span>
              </div>
              <${Long}
                items=${shown}
                estimate=${39}
                block=${40}
                stamp=${chosen}
                row=${(run, at) => html`<${Row} key=${run.run_id} run=${run} chosen=${chosen === run.run_id} />`}
              />
            </div>`
          : list.length
            ? html`<${Quiet} title=${t("No run fits")}><p>${t("Take a word out of the search.")}</p></${Quiet}>`
            : html`<${Quiet} title=${t("No runs yet")}><p>${t("Ask an agent something, and it will stand here.")} <a href=${link(["chat"])}>${t("Chat")}</a></p></${Quiet}>`
    }
    ${next ? html`<p class="note"><button type="button" class="plain" onClick=${moreRuns}>${t("Load older runs")}</button></p>` : null}`;
}
