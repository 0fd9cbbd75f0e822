// Small components that all views use.

import { Component, createContext, html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { saveFile } from "./server.js";
import { problemText, t } from "./words.js";
import { state } from "./format.js";

export const Key = ({ name }) => html`<kbd aria-hidden="true">${name}</kbd>`;

export function Button({ onClick, children, hint, kind = "", disabled, label }) {
  return html`<button
    type="button"
    class=${kind}
    onClick=${onClick}
    disabled=${disabled}
    aria-label=${label}
    title=${label}
    aria-keyshortcuts=${hint}
  >
    ${children}${hint ? html`<${Key} name=${hint} />` : null}
  </button>`;
}

export function Chip({ status }) {
  const { sign, word, tone } = state(status);
  return html`<span class=${`chip ${tone}`}
    ><span class=${status === "running" ? "live" : ""} aria-hidden="true">${sign}</span> ${word}</span
  >`;
}

export const EmptyState = ({ title, children }) =>
  html`<div class="quiet">
    <p class="quiet-title">${title}</p>
    ${children}
  </div>`;
export const Loading = () => html`<p class="quiet loading" role="status">${t("Loading …")}</p>`;

export const Offline = () =>
  html`<p class="offline" role="status">
    ${t("The server cannot be reached. The page shows the last known state and reconnects automatically.")}
  </p>`;

// The current time in seconds, updated every second while `going`.
export function useNow(going) {
  const [now, set] = useState(() => Date.now() / 1000);
  useEffect(() => {
    if (!going) return;
    const again = setInterval(() => set(Date.now() / 1000), 1000);
    return () => clearInterval(again);
  }, [going]);
  return now;
}

export function ErrorBox({ problem, again }) {
  if (!problem) return null;
  return html`<div class="trouble" role="alert">
    <p>${problemText(problem)}</p>
    ${again ? html`<${Button} onClick=${again}>${t("Try again")}</${Button}>` : null}
  </div>`;
}

// Load something once, and again when one of `depends` changes.
export function useLoaded(load, depends) {
  const [held, set] = useState({ value: null, problem: null });
  const [turn, again] = useState(0);
  useEffect(() => {
    const gone = new AbortController();
    load(gone.signal).then(
      value => gone.signal.aborted || set({ value, problem: null }),
      problem => gone.signal.aborted || set(old => ({ value: old.value, problem })),
    );
    return () => gone.abort();
  }, [...depends, turn]);
  return { ...held, again: () => again(turn + 1) };
}

export const HUGE = 50000; // characters of one text: laying out a line of a million takes a browser a minute

// An external text, unchanged.
export function Pre({ text }) {
  const cut = text.length > HUGE;
  return html`<pre tabindex="0" dir="auto">${cut ? text.slice(0, HUGE) : text}</pre>
    ${cut ? html`<${Button} onClick=${() => saveFile("text.txt", text)}>${t("Download the full text")}</${Button}>` : null}`;
}

// JSON as text, shown on demand.
export function Raw({ value, title, kind = "raw" }) {
  const [open, set] = useState(false);
  return html`<details class=${kind} open=${open} onToggle=${event => set(event.currentTarget.open)}>
    <summary>${title}</summary>
    ${open ? html`<${Pre} text=${JSON.stringify(value, null, 2)} />` : null}
  </details>`;
}

export function Dialog({ title, close, children }) {
  const ref = useRef();
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${ref} aria-label=${title} onClose=${close} onClick=${event => event.target === ref.current && close()}>
    <header><h2>${title}</h2><${Button} onClick=${close} label=${t("Close")}>✕</${Button}></header>${children}</dialog>`;
}

// Keyboard shortcuts of a view: {"f": action}. They are off while the user types or a dialog is open. They hold as soon as the
// view is in the document: an effect after the next paint would lose keys that are pressed before.
export function useKeys(keys) {
  const held = useRef(keys);
  held.current = keys;
  useLayoutEffect(() => {
    const onKey = event => {
      const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
      if (typing || event.repeat || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]"))
        return;
      const action = held.current[event.key];
      if (action) (event.preventDefault(), action(event));
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

// A long list in blocks of rows. Only blocks near the window are rendered.
let watcher = null;
const watched = new WeakMap();
function observe(element, tell) {
  watcher ??= new IntersectionObserver(seen => seen.forEach(one => watched.get(one.target)?.(one.isIntersecting)), {
    rootMargin: "900px 0px",
  });
  watched.set(element, tell);
  watcher.observe(element);
  return () => watcher.unobserve(element);
}

class Stretch extends Component {
  state = { near: this.props.first };
  componentDidMount() {
    this.stop = observe(this.base, near => {
      if (near === this.state.near) return;
      if (!near) this.height = this.base.offsetHeight;
      this.setState({ near });
    });
  }
  componentWillUnmount() {
    this.stop();
  }
  shouldComponentUpdate(next, now) {
    return (
      now.near !== this.state.near ||
      next.stamp !== this.props.stamp ||
      next.items.length !== this.props.items.length ||
      next.items.some((item, place) => item !== this.props.items[place])
    );
  }
  render({ items, row, estimate }, { near }) {
    if (near) return html`<div class="stretch">${items.map(row)}</div>`;
    return html`<div class="stretch" style=${{ height: `${this.height || items.length * estimate}px` }}></div>`;
  }
}

// `stamp`: what the rows depend on in addition to their items.
export function LongList({ items, row, estimate, block = 30, stamp, role, label }) {
  const stretches = [];
  for (let place = 0; place < items.length; place += block) stretches.push(items.slice(place, place + block));
  return html`<div class="long" role=${role} aria-label=${label}>
    ${stretches.map(
      (part, place) =>
        html`<${Stretch} key=${place} items=${part} row=${row} estimate=${estimate} stamp=${stamp} first=${place < 2} />`,
    )}
  </div>`;
}

export const Announce = createContext(() => {});
