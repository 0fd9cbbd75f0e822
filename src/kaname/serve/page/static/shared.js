// State that several views share: observable cells, the address, the user, the runs, the open questions.

import { useEffect, useState } from "./vendor/preact.js";
import { follow, get } from "./server.js";

export function cell(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function use(one) {
  const [value, set] = useState(() => one.get());
  useEffect(() => (set(() => one.get()), one.listen(next => set(() => next))), [one]);
  return value;
}

// The address: #/runs/abc?at=14 has the path ["runs", "abc"] and the query {at: "14"}.
const readAddress = () => {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    path: path.split("/").filter(Boolean).map(decodeURIComponent),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
};
export const address = cell(readAddress());
addEventListener("hashchange", () => address.set(readAddress()));

export function link(path, query = {}) {
  const said = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value != null)).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${said ? `?${said}` : ""}`;
}
export const go = (path, query) => (location.hash = link(path, query));
export function change(query) {
  const now = readAddress();
  if (now.path.join("/") !== address.get().path.join("/")) return; // the user is leaving this view
  history.replaceState(null, "", link(now.path, { ...now.query, ...query }));
  address.set(readAddress());
}

export const me = cell(null);
export const agents = cell(null);
export const may = role => Boolean(me.get()?.roles.includes(role));

export const runs = cell({ list: null, byId: new Map(), problem: null, next: null }); // next: the place of the next page
export const inbox = cell({ questions: null, problem: null });
export const line = cell("open"); // state of the stream of changes: "open", "lost" or "over"

const MOST = 10000; // runs that are loaded without a click
let loading = null;
// Load the newest runs first, then the rest page by page. Older ones are loaded on request.
export function loadRuns() {
  loading ??= whileLoading(async () => {
    const first = await get("api/runs?limit=200");
    setRuns(first.runs, first.next);
    while (runs.get().next && runs.get().list.length < MOST) await readPage();
  });
  return loading;
}
export const moreRuns = () => (loading ??= whileLoading(readPage));

async function whileLoading(work) {
  try {
    await work();
  } catch (problem) {
    runs.set({ ...runs.get(), problem });
  } finally {
    loading = null;
  }
}
async function readPage() {
  const page = await get(`api/runs?limit=1000&before=${runs.get().next}`);
  const known = runs.get();
  setRuns([...known.list, ...page.runs.filter(run => !known.byId.has(run.run_id))], page.next);
}

function setRuns(list, next) {
  runs.set({ list, byId: new Map(list.map(run => [run.run_id, run])), problem: null, next });
}

export function takeRuns(changed) {
  const known = runs.get();
  if (!known.list || !changed.length) return;
  const byId = new Map(known.byId);
  const fresh = changed.filter(run => !byId.has(run.run_id));
  for (const run of changed) byId.set(run.run_id, run);
  const list = [...fresh.sort((a, b) => b.created - a.created), ...known.list.map(run => byId.get(run.run_id))];
  runs.set({ ...known, list, byId, problem: null });
}

export function dropRun(id) {
  const known = runs.get();
  if (known.list)
    setRuns(
      known.list.filter(run => run.run_id !== id),
      known.next,
    );
}

// The title of a run. A fork without a new message has the title of the run that it continues.
export function titleOf(run) {
  const { byId } = runs.get();
  for (let one = run, step = 0; one && step < 50; one = byId.get(one.base), step++)
    if (one.title) return one.title.length >= 80 ? `${one.title}…` : one.title;
  return run.run_id;
}

let asked = 0;
export async function loadQuestions() {
  const mine = ++asked;
  try {
    const { questions } = await get("api/questions?limit=1000");
    if (mine === asked) inbox.set({ questions: questions.sort((a, b) => a.run.created - b.run.created), problem: null });
  } catch (problem) {
    if (mine === asked) inbox.set({ ...inbox.get(), problem });
  }
}

// Watch the list of runs. A view of a single run only polls the questions.
export function watch() {
  let [later, opened] = [0, 0];
  const questions = () => (clearTimeout(later), (later = setTimeout(loadQuestions, 150)));
  return follow("api/runs", {
    take(batch) {
      const changed = batch.filter(event => event.name === "run").map(event => event.data);
      takeRuns(changed);
      for (const event of batch) if (event.name === "gone") dropRun(event.data.run_id);
      if (changed.length || batch.some(event => event.name === "questions")) questions();
    },
    state(now) {
      if (now === "open" && opened++) loadRuns(); // changes during the interruption were not received
      line.set(now);
      if (now === "open") questions();
    },
  });
}
export function pollQuestions() {
  loadQuestions();
  const again = setInterval(() => document.visibilityState === "visible" && loadQuestions(), 5000);
  return () => clearInterval(again);
}
