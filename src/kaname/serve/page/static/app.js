// The frame of the page: sign-in, navigation, and the current view.

import { html, render, useEffect, useErrorBoundary, useMemo, useState } from "./vendor/preact.js";
import { get, post, Problem } from "./server.js";
import { address, agents, pollQuestions, go, inbox, line, link, may, me, use, watch } from "./shared.js";
import { japanese, language, prepare, problemText, speak, t } from "./words.js";
import { Button, Dialog, Key, Loading, Offline, EmptyState, Announce, ErrorBox, useKeys } from "./parts.js";

const VIEWS = {
  chat: { title: "Chat", key: "c", load: () => import("./views/chat.js") },
  runs: { title: "Runs", key: "r", load: () => import("./views/runs.js") },
  inbox: { title: "Inbox", key: "i", load: () => import("./views/inbox.js") },
  workflows: { title: "Workflows", key: "w", load: () => import("./views/workflows.js") },
  memory: { title: "Memory", key: "m", load: () => import("./views/memory.js") },
  evals: { title: "Evaluations", key: "e", role: "admin", load: () => import("./views/evals.js") },
  learn: { title: "Learning", key: "l", role: "admin", load: () => import("./views/learn.js") },
  work: { title: "Queue", key: "q", role: "admin", load: () => import("./views/work.js") },
  figures: { title: "Metrics", key: "f", load: () => import("./views/figures.js") },
};
const DEEPER = { runs: () => import("./views/run.js"), compare: () => import("./views/compare.js") };
const THEME = "kaname.theme";

function applyTheme(which) {
  if (which) document.documentElement.dataset.theme = which;
  else delete document.documentElement.dataset.theme;
}

function useView(path) {
  const [loaded, set] = useState({ which: "", view: null });
  const [problem, fail] = useState(null);
  const [name = "runs", id] = path;
  const load = (id && DEEPER[name]) || DEEPER[name === "compare" ? name : ""] || VIEWS[name]?.load;
  const which = `${name}/${Boolean(id && DEEPER[name])}`;
  useEffect(() => {
    if (!load) return set({ which, view: NotFound });
    let here = true;
    load().then(
      made => here && (fail(null), set({ which, view: made.default })),
      () => here && fail(new Problem(0, "The server cannot be reached.")),
    );
    return () => (here = false);
  }, [which]);
  return [loaded.which === which ? loaded.view : null, problem];
}

const NotFound = () =>
  html`<${EmptyState} title=${t("Page not found")}><a href=${link(["runs"])}>${t("Runs")}</a></${EmptyState}>`;

function ErrorBoundary({ view: View, ...props }) {
  const [fault, reset] = useErrorBoundary(problem => console.error(problem));
  if (fault) return html`<${ErrorBox} problem=${{ detail: `${t("Something went wrong on this page")}: ${fault.message}` }} again=${reset} />`;
  return html`<${View} ...${props} />`;
}

function Nav({ name, theme, setTheme, showHelp }) {
  const { questions } = use(inbox);
  const waiting = may("approve") ? questions?.length : 0;
  return html`<nav aria-label=${t("Main")}>
    <a class="brand" href=${link(["runs"])}>kaname <span class="seal" lang="ja" aria-hidden="true">要</span></a>
    ${Object.entries(VIEWS).filter(([, { role }]) => !role || may(role)).map(
      ([view, { title }]) =>
        html`<a href=${link([view])} aria-current=${name === view || (name === "compare" && view === "runs") ? "page" : null}>
          ${t(title)}${view === "inbox" && waiting ? html`<span class="count" aria-label=${t("{count} waiting", { count: waiting })}>${waiting}</span>` : null}</a
        >`,
    )}
    <div class="foot">
      <p>${location.host}${me.get()?.project ? html` · <b>${me.get().project}</b>` : null}</p>
      ${me.get()?.name ? html`<p class="who" title=${me.get().roles.join(", ")}>${t("signed in as {name}", me.get())}</p>` : null}
      <p class="row">
        <button type="button" class="plain" onClick=${() => speak(japanese() ? "en" : "ja")} lang=${japanese() ? "en" : "ja"}>
          ${japanese() ? "English" : "日本語"}
        </button>
        <button type="button" class="plain" onClick=${() => setTheme()}>${theme === "dark" ? t("light") : t("dark")}</button>
        <button type="button" class="plain" onClick=${showHelp} aria-keyshortcuts="?">${t("shortcuts")}</button>
        ${me.get()?.signed_in ? html`<button type="button" class="plain" onClick=${() => post("api/signout").then(() => location.reload())}>${t("sign out")}</button>` : null}
      </p>
    </div>
  </nav>`;
}

function SignIn() {
  const [keep, set] = useState(false);
  const [ways, know] = useState({ token: true, oidc: null });
  const [trouble, fail] = useState(null);
  useEffect(() => void get("api/signin").then(know, () => {}), []);
  const enter = event => {
    event.preventDefault();
    const token = new FormData(event.target).get("token").trim();
    if (!token) return;
    fail(null);
    post("api/signin", { token, keep }).then(() => location.reload(), fail);
  };
  const company = ways.oidc ? html`<p><a class="button main" href="signin/oidc">${t("Sign in with {name}", { name: ways.oidc })}</a></p>` : null;
  if (company && !ways.token)
    return html`<main class="sign-in">
      <div class="sheet"><h1>kaname <span class="seal" lang="ja">要</span></h1>${company}</div>
    </main>`;
  return html`<main class="sign-in">
    <form class="sheet" onSubmit=${enter}>
      <h1>kaname <span class="seal" lang="ja">要</span></h1>
      ${company}
      <p>${t("This server requires a token.")} <span class="note">kaname serve users add NAME</span></p>
      <label>${t("Token")}<input name="token" type="password" autocomplete="current-password" required autofocus /></label>
      <label class="check"
        ><input type="checkbox" checked=${keep} onChange=${event => set(event.target.checked)} />
        ${t("Keep me signed in on this browser")}</label
      >
      ${trouble ? html`<p class="trouble" role="alert">${trouble.status === 401 ? t("This token is not valid.") : problemText(trouble)}</p>` : null}
      <button class="main">${t("Sign in")}</button>
    </form>
  </main>`;
}

function Help({ close }) {
  const keys = [
    ["g c · g r · g i · g w · g m · g e · g l · g q · g f", "Go to chat, runs, inbox, workflows, memory, evaluations, learning, queue, metrics"],
    ["j · k", "Next, previous item"],
    ["Enter", "Open"],
    ["/", "Search"],
    ["← · →", "Previous fact, next fact"],
    ["f · c · t · .", "Fork, compare, save as test, stop"],
    ["y · e · n", "Approve, edit, refuse"],
    ["?", "Show this list"],
  ];
  return html`<${Dialog} title=${t("Keyboard shortcuts")} close=${close}><dl class="keys">${keys.map(
    ([key, text]) =>
      html`<dt><${Key} name=${key} /></dt>
        <dd>${t(text)}</dd>`,
  )}</dl></${Dialog}>`;
}

function App() {
  const { path, query } = use(address);
  const who = use(me);
  const speaking = use(language);
  const connection = use(line);
  const [refused, refuse] = useState(null);
  const [help, showHelp] = useState(false);
  const [said, say] = useState("");
  const [theme, setTheme] = useState(
    () => localStorage.getItem(THEME) || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"),
  );
  const [view, problem] = useView(path);
  const [name = "runs", id] = path;
  const single = (name === "runs" && id) || name === "compare" || (name === "chat" && id);
  const going = { pending: false };
  const saying = useMemo(() => ({ gone: 0 }), []);
  useEffect(() => say(""), [name, id]);

  const enter = () => {
    refuse(null);
    Promise.all([get("api/me"), get("api/agents")]).then(
      ([caller, known]) => (agents.set(known.agents), me.set(caller)),
      refuse,
    );
  };
  useEffect(enter, [connection === "refused"]);
  useEffect(() => (who ? (single ? pollQuestions() : watch()) : undefined), [Boolean(who), Boolean(single)]);
  useEffect(() => void (document.title = `${t(VIEWS[name]?.title || "kaname")} · kaname`), [name, id, speaking]);
  useEffect(() => {
    let gone = 0;
    const onKey = event => {
      if (
        event.target.closest?.("input, textarea, select") ||
        document.querySelector("dialog[open]") ||
        event.ctrlKey ||
        event.metaKey ||
        event.altKey
      )
        return;
      if (going.pending) {
        const target = Object.keys(VIEWS).find(one => VIEWS[one].key === event.key);
        going.pending = false;
        if (target) (event.preventDefault(), event.stopImmediatePropagation(), go([target]));
      } else if (event.key === "g") {
        going.pending = true;
        clearTimeout(gone);
        gone = setTimeout(() => (going.pending = false), 1200);
      }
    };
    addEventListener("keydown", onKey, true);
    return () => removeEventListener("keydown", onKey, true);
  }, []);
  useKeys({ "?": () => showHelp(true) });

  if (refused?.status === 401) return html`<${SignIn} />`;
  if (refused) return html`<main><${ErrorBox} problem=${refused} again=${enter} /></main>`;
  const swap = () => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem(THEME, next);
    applyTheme(next);
    setTheme(next);
  };
  const announce = text => {
    clearTimeout(saying.gone);
    say("");
    setTimeout(() => say(text), 10);
    saying.gone = setTimeout(() => say(""), 4000);
  };
  return html`<${Announce.Provider} value=${announce}>
    <a class="skip" href="#main" onClick=${event => (event.preventDefault(), document.getElementById("main").focus())}>${t("Skip to content")}</a>
    <${Nav} name=${name} theme=${theme} setTheme=${swap} showHelp=${() => showHelp(true)} />
    <main id="main" tabindex="-1" class=${`view-${name}`}>
      ${connection === "lost" && !single ? html`<${Offline} />` : null}
      ${problem ? html`<${ErrorBox} problem=${problem} again=${() => location.reload()} />` : null}
      ${view && who ? html`<${ErrorBoundary} key=${`${name}/${id || ""}/${speaking}`} view=${view} path=${path} query=${query} />` : problem ? null : html`<${Loading} />`}
    </main>
    <p class="said" role="status" aria-live="polite">${said}</p>
    ${help ? html`<${Help} close=${() => showHelp(false)} />` : null}
  </${Announce.Provider}>`;
}

applyTheme(localStorage.getItem(THEME));
prepare().then(() => render(html`<${App} />`, document.getElementById("app")));
