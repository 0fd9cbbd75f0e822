// Queued work: schedules, the queue and its workers, for administrators.

import { html, useState } from "../vendor/preact.js";
import { get, post } from "../server.js";
import { link } from "../shared.js";
import { Button, Chip, ErrorBox, Loading, useLoaded, useNow } from "../parts.js";
import { count, when } from "../format.js";
import { notice, t } from "../words.js";

const PACE = 5; // seconds between two looks

const STATES = { waiting: "queued", delayed: "delayed", taken: "being executed", set_aside: "set aside" };
const stateText = state => t(STATES[state] || state);

const Table = ({ title, heads, rows, empty }) =>
  html`<section class="sheet" aria-label=${title}>
    <h2>${title}</h2>
    ${
      rows.length
        ? html`<div class="table">
            <table>
              <thead><tr>${heads.map(head => html`<th scope="col">${head}</th>`)}</tr></thead>
              <tbody>${rows.map(row => html`<tr>${row.map(one => html`<td>${one}</td>`)}</tr>`)}</tbody>
            </table>
          </div>`
        : html`<p class="note">${empty}</p>`
    }
  </section>`;

export default function Work() {
  const turn = Math.floor(useNow(true) / PACE);
  const { value, problem, again } = useLoaded(signal => get("api/work", signal), [turn]);
  const [trouble, fail] = useState(null);
  const steer = (action, name) => {
    fail(null);
    post(`api/work/${action}/${encodeURIComponent(name)}`, {}).then(again, fail);
  };
  if (!value) return problem ? html`<${ErrorBox} problem=${problem} again=${again} />` : html`<${Loading} />`;
  const { workers, queue, schedules } = value;
  const run = id => html`<a href=${link(["runs", id])}>${id}</a>`;
  return html`<header class="top">
      <h1>${t("Queue")}</h1>
      <span class="meta">${Object.entries(queue.counts).map(([state, number]) => `${stateText(state)} ${count(number)}`).join(" · ")}</span>
    </header>
    <${ErrorBox} problem=${trouble || problem} again=${trouble ? null : again} />
    <${Table}
      title=${t("Schedules")}
      empty=${t("There are no schedules.")}
      heads=${[t("name"), t("agent"), t("due"), t("next"), t("last runs"), ""]}
      rows=${schedules.map(one => [
        one.name,
        one.agent,
        one.when,
        one.paused ? t("paused") : one.next ? when(one.next) : "–",
        one.runs.map(each => html`<div>${run(each.run_id)} <${Chip} status=${each.status} /></div>`),
        html`<${Button} onClick=${() => steer(one.paused ? "resume" : "pause", one.name)}>${one.paused ? t("Resume schedule") : t("Pause")}</${Button}>
          <${Button} onClick=${() => steer("run", one.name)}>${t("Run now")}</${Button}>`,
      ])}
    />
    <${Table}
      title=${t("Queued runs")}
      empty=${t("The queue is empty.")}
      heads=${[t("run"), t("agent"), t("state"), t("reason"), ""]}
      rows=${queue.runs.map(one => [
        run(one.run_id),
        one.agent,
        stateText(one.state),
        notice(one.reason_notice, one.reason),
        one.state === "set_aside" ? html`<${Button} onClick=${() => steer("retry", one.run_id)}>${t("Retry")}</${Button}>` : null,
      ])}
    />
    <${Table}
      title=${t("Workers")}
      empty=${t("No process executes runs of this journal.")}
      heads=${[t("process"), t("runs"), t("last heartbeat")]}
      rows=${workers.map(one => [one.name, count(one.executing), one.seen ? when(one.seen) : "–"])}
    />`;
}
