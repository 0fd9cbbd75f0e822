// Metrics: small charts over time, each with its numbers.

import { html } from "../vendor/preact.js";
import { get } from "../server.js";
import { agents, change, link, use } from "../shared.js";
import { Loading, EmptyState, ErrorBox, useLoaded } from "../parts.js";
import { count, durationText, money, state } from "../format.js";
import { t } from "../words.js";

const GOOD = ["completed", "degraded"];
const OPEN = ["running", "waiting", "interrupted"];
const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");
const sum = (by, names) => names.reduce((all, name) => all + (by[name] || 0), 0);
const [WIDE, HIGH] = [260, 64];

function Bars({ title, days, value, told, more }) {
  const values = days.map(value);
  const most = Math.max(...values.map(one => one || 0), 1e-9);
  const step = WIDE / days.length;
  const words = days.map((day, place) => `${day.day}: ${told(values[place])}`).join("; ");
  return html`<figure class="sheet">
    <figcaption>
      <h2>${title}</h2>
      <b>${more}</b>
    </figcaption>
    <svg viewBox=${`0 0 ${WIDE} ${HIGH}`} role="img" aria-label=${`${title}. ${words.slice(-600)}`}>
      <line x1="0" y1=${HIGH - 0.5} x2=${WIDE} y2=${HIGH - 0.5} />
      ${days.map((day, place) => html`<rect x=${place * step} y=${HIGH - ((values[place] || 0) / most) * (HIGH - 4)} width=${Math.max(1, Math.min(28, step - 2))} height=${((values[place] || 0) / most) * (HIGH - 4)}><title>${day.day}: ${told(values[place])}</title></rect>`)}
    </svg>
    <p class="note ends">
      <span>${days[0].day}</span><span>${t("max")}: ${told(Math.max(...values.map(one => one || 0)))}</span
      ><span>${days.at(-1).day}</span>
    </p>
  </figure>`;
}

const Uses = ({ title, list, costs }) =>
  html`<section class="sheet" aria-label=${title}>
    <h2>${title}</h2>
    <div class="table">
      <table>
        <thead>
          <tr>
            <th scope="col">${t("name")}</th>
            <th scope="col" class="number">${t("calls")}</th>
            <th scope="col" class="number">${costs ? t("tokens") : t("failed")}</th>
            <th scope="col" class="number">${t("median")}</th>
            <th scope="col" class="number">95 %</th>
            ${costs ? html`<th scope="col" class="number">${t("cost")}</th>` : null}
          </tr>
        </thead>
        <tbody>
          ${list.map(
            one =>
              html`<tr>
                <td>${one.name}</td>
                <td class="number">${count(one.calls)}</td>
                <td class="number">${costs ? count(one.tokens) : `${one.failed} (${share(one.failed, one.calls)})`}</td>
                <td class="number">${durationText(one.median)}</td>
                <td class="number">${durationText(one.slow)}</td>
                ${costs ? html`<td class="number">${money(one.cost)}</td>` : null}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;

const amount = (value, unit) => (unit === "usd" ? money(value) : `${count(value)} ${t(unit === "unpriced" ? "calls of unknown cost" : unit)}`);

const Budgets = ({ list }) =>
  html`<section class="sheet" aria-label=${t("Budgets")}>
    <h2>${t("Budgets")}</h2>
    <div class="table">
      <table>
        <thead>
          <tr>
            <th scope="col">${t("whose")}</th>
            <th scope="col">${t("period")}</th>
            <th scope="col" class="number">${t("spent")}</th>
            <th scope="col" class="number">${t("reserved")}</th>
            <th scope="col" class="number">${t("limit")}</th>
          </tr>
        </thead>
        <tbody>
          ${list.map(
            one =>
              html`<tr>
                <td>${t(one.scope)} ${one.whose}</td>
                <td>${one.window || "–"}</td>
                <td class="number">${amount(one.spent, one.unit)}</td>
                <td class="number">${one.reserved ? amount(one.reserved, one.unit) : "–"}</td>
                <td class="number">${one.limit == null ? "–" : `${amount(one.limit, one.unit)} (${share(one.spent, one.limit)})`}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;

// Fill in the days without runs.
function everyDay(days) {
  if (!days.length) return [];
  const known = new Map(days.map(day => [day.day, day]));
  const found = [];
  for (
    let at = new Date(`${days[0].day}T12:00:00Z`), last = days.at(-1).day, left = 400;
    left--;
    at.setUTCDate(at.getUTCDate() + 1)
  ) {
    const day = at.toISOString().slice(0, 10);
    found.push(known.get(day) || { day, runs: 0, by_status: {}, tokens: 0, cost: 0, median: null, slow: null });
    if (day >= last) break;
  }
  return found;
}

export default function Figures({ query }) {
  const known = use(agents) || [];
  const days = query.days || "30";
  const asked = new URLSearchParams({
    days,
    west: `${720 + new Date().getTimezoneOffset()}`,
    ...(query.agent ? { agent: query.agent } : {}),
  }).toString();
  const { value, problem, again } = useLoaded(signal => get(`api/figures?${asked}`, signal), [asked]);
  const all = value?.all;
  const list = everyDay(value?.days || []);
  const ended = by =>
    sum(
      by,
      Object.keys(by).filter(one => !OPEN.includes(one)),
    );
  return html`<header class="top">
      <h1>${t("Metrics")}</h1>
      <span class="meta"
        >${all ? html`<b>${count(all.runs)}</b> ${t("runs")} · <b>${money(all.cost)}</b>${all.unpriced ? ` (${t("{count} with unknown price", { count: all.unpriced })})` : ""}` : null}</span
      >
    </header>
    <div class="filters">
      ${["1", "7", "30", "90"].map(one => html`<button type="button" class="plain filter" aria-pressed=${days === one ? "true" : "false"} onClick=${() => change({ days: one })}>${t("{count} d", { count: one })}</button>`)}
      <label class="sort"
        >${t("agent")}
        <select value=${query.agent || ""} onChange=${event => change({ agent: event.target.value })}>
          <option value="">${t("all")}</option>
          ${known.map(one => html`<option value=${one.name} selected=${one.name === query.agent}>${one.name}</option>`)}
        </select></label
      >
    </div>
    <${ErrorBox} problem=${problem} again=${again} />
    ${
      !value
        ? problem
          ? null
          : html`<${Loading} />`
        : !all.runs
          ? html`<${EmptyState} title=${t("No runs in this period")}></${EmptyState}>`
          : html`<div class="multiples">
                <${Bars} title=${t("Runs")} days=${list} value=${day => day.runs} told=${count} more=${count(all.runs)} />
                <${Bars}
                  title=${t("Success")}
                  days=${list}
                  value=${day => (ended(day.by_status) ? sum(day.by_status, GOOD) / ended(day.by_status) : 0)}
                  told=${one => `${Math.round(100 * (one || 0))} %`}
                  more=${share(sum(all.by_status, GOOD), ended(all.by_status))}
                />
                <${Bars} title=${t("Cost")} days=${list} value=${day => day.cost} told=${money} more=${money(all.cost)} />
                <${Bars} title=${t("Tokens")} days=${list} value=${day => day.tokens} told=${count} more=${count(all.tokens)} />
                <${Bars}
                  title=${t("Duration (median)")}
                  days=${list}
                  value=${day => day.median}
                  told=${durationText}
                  more=${durationText(all.median)}
                />
                <${Bars}
                  title=${t("Duration (95 %)")}
                  days=${list}
                  value=${day => day.slow}
                  told=${durationText}
                  more=${durationText(all.slow)}
                />
              </div>
              <section class="sheet">
                <h2>${t("How the runs ended")}</h2>
                <p class="row">
                  ${Object.entries(all.by_status)
                    .sort((a, b) => b[1] - a[1])
                    .map(
                      ([status, number]) =>
                        html`<a class=${`chip ${state(status).tone}`} href=${link(["runs"], { q: `status:${status}` })}
                          >${state(status).sign} ${state(status).word} <b>${count(number)}</b></a
                        >`,
                    )}
                </p>
              </section>
              <div class="columns even">
                <${Uses} title=${t("Tools")} list=${value.tools} /><${Uses}
                  title=${t("Models")}
                  list=${value.models}
                  costs=${true}
                />
              </div>
              ${value.budgets.length ? html`<${Budgets} list=${value.budgets} />` : null}
              <p class="note">
                ${t("Tools and models are counted in the last {count} runs.", { count: value.read })}
                ${all.runs > value.timed ? t("Durations are measured in the last {count} runs.", { count: value.timed }) : null}
              </p>`
    }`;
}
