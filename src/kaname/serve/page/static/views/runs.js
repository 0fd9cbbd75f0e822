// Runs: a live list, one line each. Filters are text, so that they can be typed and shared.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { change, go, link, loadRuns, may, moreRuns, runs, titleOf, use } from "../shared.js";
import { Chip, Loading, LongList, EmptyState, ErrorBox, useKeys, useNow } from "../parts.js";
import { clock, count, day, durationText, money, state, STATUSES, when } from "../format.js";
import { t } from "../words.js";
import { UNDER_WAY } from "../fold.js";

const SORTS = {
  newest: null,
  cost: run => run.usage.cost ?? -1,
  duration: run => run.updated - run.created,
  tokens: run => run.usage.input_tokens + run.usage.output_tokens,
};

const isStatus = (status, wanted) => status === wanted || state(status).word.replaceAll(" ", "_") === wanted;
const isFork = run => run.base && !run.session_id;
const IS = { fork: isFork, child: run => run.parent, open: run => UNDER_WAY.has(run.status) };
const NUMBERS = {
  cost: run => run.usage.cost,
  tokens: run => run.usage.input_tokens + run.usage.output_tokens,
  seconds: run => run.updated - run.created,
};
const TEXTS = { agent: run => run.agent, user: run => run.user_id, session: run => run.session_id };

const has = word => run =>
  `${run.title} ${run.run_id} ${run.agent} ${run.session_id} ${run.user_id}`.toLowerCase().includes(word.toLowerCase());

// Return a test for a run, as in "status:failed"; null for an unknown filter.
function test(word) {
  const [, minus, name, sign, wanted] = /^(-?)([a-z]+)([:<>])(.+)$/i.exec(word) || [];
  const field = name?.toLowerCase();
  if (!field || /^https?$/.test(field)) return has(word);
  if (minus) return null;
  if (NUMBERS[field]) {
    const [number, of] = [parseFloat(wanted), NUMBERS[field]];
    if (!/^\d*\.?\d+$/.test(wanted)) return null;
    return run => of(run) != null && (sign === ">" ? of(run) > number : sign === "<" ? of(run) < number : of(run) === number);
  }
  if (sign !== ":") return null;
  if (TEXTS[field]) return run => TEXTS[field](run) === wanted;
  if (field === "is") return IS[wanted] || null;
  if (field === "day" && /^(today|\d{4}-\d\d-\d\d)$/.test(wanted))
    return run => day(run.created) === (wanted === "today" ? day(Date.now() / 1000) : wanted);
  const each = wanted.split(",");
  if (field !== "status" || !each.every(one => STATUSES.some(status => isStatus(status, one)))) return null;
  return run => each.some(one => isStatus(run.status, one));
}

const wordsOf = text => text.match(/\S+/g) || [];

// Return a test for a run, as in "status:failed agent:desk cost>0.01 day:today refund".
export function filter(text) {
  const tests = wordsOf(text).map(word => test(word) || has(word));
  return run => tests.every(one => one(run));
}

export function Row({ run, chosen, onClick, user }) {
  const working = UNDER_WAY.has(run.status) && run.status !== "waiting";
  return html`<a
    class=${`run ${chosen ? "chosen" : ""} ${user ? "with-user" : ""}`}
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
    ${user ? html`<span class="user note" title=${run.user_id}>${run.user_id || "–"}</span>` : null}
    <span class="note number begun" title=${`${day(run.created)} ${clock(run.created)}`}>${when(run.created)}</span>
    <span class="number">${working ? html`<${Ticking} since=${run.created} />` : durationText(run.updated - run.created)}</span>
    <span class="number wide">${count(run.usage.input_tokens + run.usage.output_tokens)}</span>
    <span class="number">${money(run.usage.cost)}</span>
  </a>`;
}

const Ticking = ({ since }) => durationText(Math.max(0, useNow(true) - since));

const left = { chosen: "", scroll: 0, words: "" }; // state of the list when the user left it

export default function Runs({ query }) {
  const { list, problem, next } = use(runs);
  const [words, setWords] = useState(query.q || "");
  const [chosen, choose] = useState(left.chosen);
  useEffect(() => {
    if (left.words === (query.q || "")) requestAnimationFrame(() => scrollTo(0, left.scroll)); // restore the scroll position
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
  const user = useMemo(() => may("admin") && (list || []).some(run => run.user_id), [list]);
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
  const odd = wordsOf(words).filter(word => !test(word));
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
        placeholder=${t("title, agent:name, cost>0.01 …")}
        aria-label=${t("Search and filter")}
        onInput=${event => setWords(event.target.value)}
        onKeyDown=${event => event.key === "Escape" && event.target.blur()}
        list="statuses"
      />
      <datalist id="statuses">${STATUSES.map(one => html`<option value=${`status:${one}`} />`)}</datalist>
      ${quick.map(word => html`<button type="button" class="plain filter" aria-pressed=${words.includes(word) ? "true" : "false"} onClick=${() => toggle(word)}>${word}</button>`)}
      <label class="sort"
        >${t("Sort by")}
        <select value=${sort} onChange=${event => change({ sort: event.target.value === "newest" ? "" : event.target.value })}>
          ${Object.keys(SORTS).map(one => html`<option value=${one} selected=${one === sort}>${t(one)}</option>`)}
        </select></label
      >
    </div>
    ${odd.length ? html`<p class="note warn">${t("Unknown filters: {words}", { words: odd.join(" ") })} · status: agent: user: session: day: is: cost> tokens> seconds></p>` : null}
    <${ErrorBox} problem=${problem} again=${loadRuns} />
    ${
      !list
        ? problem
          ? null
          : html`<${Loading} />`
        : shown.length
          ? html`<div class="sheet flush">
              <div class=${`run head ${user ? "with-user" : ""}`} aria-hidden="true">
                <span>${t("state")}</span><span class="title">${t("title")}</span
                ><span class="agent">${t("agent")}</span>${user ? html`<span class="user">${t("user")}</span>` : null}<span
                  class="number begun"
                  >${t("started")}</span
                >
                <span class="number">${t("duration")}</span><span class="number wide">${t("tokens")}</span
                ><span class="number">${t("cost")}</span>
              </div>
              <${LongList}
                items=${shown}
                estimate=${39}
                block=${40}
                stamp=${`${chosen} ${user}`}
                row=${run => html`<${Row} key=${run.run_id} run=${run} chosen=${chosen === run.run_id} user=${user} />`}
              />
            </div>`
          : list.length
            ? html`<${EmptyState} title=${t("No matching runs")}><p>${t("Try fewer search words.")}</p></${EmptyState}>`
            : html`<${EmptyState} title=${t("No runs yet")}><p>${t("Send a message to an agent to start a run.")} <a href=${link(["chat"])}>${t("Chat")}</a></p></${EmptyState}>`
    }
    ${next ? html`<p class="note"><button type="button" class="plain" onClick=${moreRuns}>${t("Load older runs")}</button></p>` : null}`;
}
