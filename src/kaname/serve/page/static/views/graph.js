// A plan or a workflow, drawn: tasks in layers by the longest way to them, each with its state by sign, word and edge.

import { html } from "../vendor/preact.js";
import { t } from "../words.js";

const SIGNS = {
  "to come": "○",
  running: "◐",
  done: "●",
  failed: "✕",
  "not run": "–",
  "not finished": "◌",
  undone: "↶",
  asks: "◆",
};
const [HIGH, GAP_X, GAP_Y, EDGE] = [46, 34, 34, 10];
const wide = text => [...text].reduce((sum, letter) => sum + (letter.charCodeAt(0) > 0x2e80 ? 2 : 1), 0);
const cut = (text, most) => (wide(text) > most ? `${[...text].slice(0, most - 1).join("")}…` : text);

function layers(tasks) {
  const depth = new Map();
  const known = new Map(tasks.map(task => [task.name, task]));
  for (let round = 0; round <= tasks.length && depth.size < tasks.length; round++)
    for (const task of tasks) {
      if (depth.has(task.name)) continue;
      const before = task.after.filter(name => known.has(name));
      if (before.every(name => depth.has(name))) depth.set(task.name, Math.max(-1, ...before.map(name => depth.get(name))) + 1);
    }
  const rows = [];
  for (const task of tasks) (rows[depth.get(task.name) ?? 0] ??= []).push(task);
  return rows;
}

export function Graph({ tasks, chosen, choose, title }) {
  const rows = layers(tasks);
  const second = task => (task.status ? `${cut(task.tool, 24)} · ${t(task.status)}` : cut(task.tool, 24));
  const size = task => 34 + 7.4 * Math.max(wide(cut(task.name, 24)) + 2, wide(second(task)) * 0.9);
  const widths = rows.map(row => row.reduce((sum, task) => sum + size(task) + GAP_X, -GAP_X));
  const width = Math.max(120, ...widths) + 2 * EDGE;
  const places = new Map();
  rows.forEach((row, number) => {
    let left = (width - widths[number]) / 2;
    for (const task of row) {
      places.set(task.name, { x: left, y: EDGE + number * (HIGH + GAP_Y), w: size(task) });
      left += size(task) + GAP_X;
    }
  });
  const height = 2 * EDGE + rows.length * (HIGH + GAP_Y) - GAP_Y;
  const arrow = (from, to) => {
    const [x, y, toX, toY] = [from.x + from.w / 2, from.y + HIGH, to.x + to.w / 2, to.y];
    const middle = (y + toY) / 2;
    return `M${x},${y} C${x},${middle} ${toX},${middle} ${toX},${toY}`;
  };
  return html`<div class="graph">
    <svg
      viewBox=${`0 0 ${width} ${height}`}
      style=${{ width: `${width}px`, minWidth: `${Math.min(width, 320, width * 0.6)}px` }}
      role="group"
      aria-label=${title}
    >
      ${tasks.flatMap(task => task.after.filter(name => places.has(name)).map(name => html`<path class="edge" d=${arrow(places.get(name), places.get(task.name))} />`))}
      ${tasks.map(task => {
        const { x, y, w } = places.get(task.name);
        const status = task.status || "to come";
        const act = choose ? () => choose(task) : undefined;
        return html`<g
          class=${`task ${status.replaceAll(" ", "-")} ${chosen === task.name ? "chosen" : ""}`}
          role=${act ? "button" : null}
          tabindex=${act ? 0 : null}
          onClick=${act}
          onKeyDown=${event => act && (event.key === "Enter" || event.key === " ") && (event.preventDefault(), act())}
        >
          <rect x=${x} y=${y} width=${w} height=${HIGH} rx="6" />
          <text x=${x + 12} y=${y + 19} class="name">${task.status ? `${SIGNS[status]} ` : ""}${cut(task.name, 24)}</text>
          <text x=${x + 12} y=${y + 36} class="tool">${second(task)}</text></g
        >`;
      })}
    </svg>
  </div>`;
}
