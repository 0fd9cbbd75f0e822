// The graph of a plan or workflow, drawn by the server, with the status of each task as sign, word and border.

import { html } from "../vendor/preact.js";
import { notice, t } from "../words.js";

const SIGNS = {
  "not started": "○",
  running: "◐",
  done: "●",
  failed: "✕",
  "not run": "–",
  "not finished": "◌",
  undone: "↶",
  waiting: "◆",
};

function Task({ task, choose }) {
  const { x, y, w, h, status } = task;
  const act = choose && (() => choose(task));
  const lines = [
    `${status ? `${SIGNS[status]} ` : ""}${task.name}`,
    `${task.tool}${status ? ` · ${t(status)}` : ""}`,
    ...(task.conditions || []).map(one => notice(one)),
  ];
  return html`<svg
    class=${`task ${(status || "not started").replaceAll(" ", "-")}`}
    x=${x}
    y=${y}
    width=${w}
    height=${h}
    role=${act ? "button" : null}
    tabindex=${act ? 0 : null}
    onClick=${act}
    onKeyDown=${event => act && (event.key === "Enter" || event.key === " ") && (event.preventDefault(), act())}
  >
    <title>${lines.join(" · ")}</title>
    <rect x="1" y="1" width=${w - 2} height=${h - 2} rx="6" />
    ${lines.map((line, at) => html`<text x="12" y=${19 + at * 17} class=${["name", "tool"][at] || "when"}>${line}</text>`)}
  </svg>`;
}

export const Graph = ({ drawing: { width, height, edges, tasks }, choose, title }) =>
  html`<div class="graph">
    <svg
      viewBox=${`0 0 ${width} ${height}`}
      style=${{ width: `${width}px`, minWidth: `${Math.min(width, Math.max(300, width * 0.75))}px` }}
      role="group"
      aria-label=${title}
    >
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
          <path class="head" d="M0,0L8,4L0,8z" />
        </marker>
      </defs>
      ${edges.map(edge => html`<path class="edge" d=${edge} marker-end="url(#arrow)" />`)}
      ${tasks.map(task => html`<${Task} key=${task.name} task=${task} choose=${choose} />`)}
    </svg>
  </div>`;
