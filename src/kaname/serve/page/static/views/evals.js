// Evaluations: the list, the cases of one, and the comparison of two.

import { html, useState } from "../vendor/preact.js";
import { get } from "../server.js";
import { go, link } from "../shared.js";
import { EmptyState, ErrorBox, Loading, useLoaded } from "../parts.js";
import { clock, day, money, shorten } from "../format.js";
import { notice, t } from "../words.js";

const percent = share => `${Math.round(100 * share)} %`;
const nameOf = one => [one.name, one.label && `[${one.label}]`].filter(Boolean).join(" ");
const apiOf = job => `api/evaluations/${encodeURIComponent(job)}`;
const Sign = ({ good }) =>
  html`<span class=${`chip ${good ? "good" : "bad"}`}>${good ? `✓ ${t("passed")}` : `✗ ${t("failed")}`}</span>`;

const Numbers = ({ one }) =>
  html`<p class="meta">
    <b>${percent(one.rate)}</b> ${t("of attempts passed")} (95 %: ${percent(one.interval[0])} – ${percent(one.interval[1])}) ·
    ${t("{count} cases × {repeat}", { count: one.cases, repeat: one.repeat })}
    ${one.repeat > 1 && one.reliability != null ? ` · pass^${one.repeat} ${percent(one.reliability)}` : ""}
    ${one.judge ? ` · ${t("judge and people: κ = {kappa} ({rated} rated)", { kappa: one.judge.kappa == null ? "–" : one.judge.kappa.toFixed(2), rated: one.judge.rated })}` : ""}
    ${one.errors ? ` · ${t("{count} errors", { count: one.errors })}` : ""} · ${one.about.agent} · ${one.about.model || "–"} ·
    ${money(one.cost)}
  </p>`;

const Head = cells =>
  html`<thead>
    <tr>
      ${cells.map(([text, kind]) => html`<th scope="col" class=${kind}>${text}</th>`)}
    </tr>
  </thead>`;

function List() {
  const { value, problem, again } = useLoaded(signal => get("api/evaluations", signal), []);
  const found = value?.evaluations || [];
  const columns = [
    [t("evaluation")],
    [t("passed"), "number"],
    ["95 %", "number"],
    [t("cases"), "number"],
    [t("model")],
    [t("cost"), "number"],
    [t("time")],
  ];
  const row = one =>
    html`<tr>
      <td><a href=${link(["evals", one.job])}>${nameOf(one)}</a>${one.complete ? null : html` <span class="note">${t("not complete")}</span>`}</td>
      <td class="number">${percent(one.rate)}</td>
      <td class="number">${percent(one.interval[0])} – ${percent(one.interval[1])}</td>
      <td class="number">${one.cases} × ${one.repeat}</td>
      <td>${one.about.model || "–"}</td>
      <td class="number">${money(one.cost)}</td>
      <td>${day(one.about.time)} ${clock(one.about.time)}</td>
    </tr>`;
  return html`<header class="top"><h1>${t("Evaluations")}</h1></header>
    <${ErrorBox} problem=${problem} again=${again} />
    ${
      !value
        ? problem
          ? null
          : html`<${Loading} />`
        : found.length
          ? html`<section class="sheet">
              <div class="table">
                <table>
                  ${Head(columns)}
                  <tbody>
                    ${found.map(row)}
                  </tbody>
                </table>
              </div>
            </section>`
          : html`<${EmptyState} title=${t("No evaluations yet")}><p>kaname eval evals.yaml</p></${EmptyState}>`
    }`;
}

function Case({ one }) {
  const shown = one.attempts.find(attempt => !attempt.passed) || one.attempts[0];
  const why = shown && (notice(shown.error) || shown.findings.map(([, said]) => notice(said)).find(Boolean));
  return html`<tr>
    <td><b>${one.name}</b>${one.title === one.name ? null : html`<br /><span class="note">${shorten(one.title, 80)}</span>`}</td>
    <td><${Sign} good=${one.passed} /> ${one.attempts.filter(attempt => attempt.passed).length}/${one.attempts.length}</td>
    <td>${shorten(shown?.output || "", 200)}${why ? html`<br /><span class="trouble-text">${shorten(why, 300)}</span>` : null}</td>
    <td>${shown?.run_ids.length ? html`<a href=${link(["runs", shown.run_ids.at(-1)])}>${t("open run")}</a>` : "–"}</td>
  </tr>`;
}

function One({ job }) {
  const { value, problem, again } = useLoaded(signal => get(apiOf(job), signal), [job]);
  const others = useLoaded(signal => get("api/evaluations", signal), [job]).value?.evaluations || [];
  const [failed, onlyFailed] = useState(false);
  if (!value) return problem ? html`<${ErrorBox} problem=${problem} again=${again} />` : html`<${Loading} />`;
  const listed = value.results.filter(one => !failed || !one.passed);
  const same = others.filter(one => one.name === value.name && one.job !== job);
  return html`<header class="top"><h1>${nameOf(value)}</h1></header>
    <${Numbers} one=${value} />
    <div class="filters">
      <button type="button" class="plain filter" aria-pressed=${failed ? "true" : "false"} onClick=${() => onlyFailed(!failed)}>
        ${t("only failed cases")}
      </button>
      ${
        same.length
          ? html`<label class="sort"
              >${t("Compare with")}
              <select onChange=${event => event.target.value && go(["evals", event.target.value, job])}>
                <option value="">–</option>
                ${same.map(one => html`<option value=${one.job}>${one.label || one.job} (${percent(one.rate)})</option>`)}
              </select></label
            >`
          : null
      }
    </div>
    <section class="sheet">
      <div class="table">
        <table>
          ${Head([[t("case")], [t("result")], [t("answer")], [t("run")]])}
          <tbody>
            ${listed.map(one => html`<${Case} key=${one.name} one=${one} />`)}
          </tbody>
        </table>
      </div>
    </section>`;
}

const Names = ({ title, list }) => (list.length ? html`<p><b>${title}</b>: ${list.join(", ")}</p>` : null);

function Two({ one, other }) {
  const asked = new URLSearchParams({ one, other }).toString();
  const { value, problem, again } = useLoaded(signal => get(`api/evaluations/compare?${asked}`, signal), [asked]);
  if (!value) return problem ? html`<${ErrorBox} problem=${problem} again=${again} />` : html`<${Loading} />`;
  return html`<header class="top"><h1>${t("Comparison")}</h1></header>
    <div class="sheet sides">
      ${[value.baseline, value.other].map(
        side => html`<div><p><a href=${link(["evals", side.job])}><b>${nameOf(side)}</b></a></p><${Numbers} one=${side} /></div>`,
      )}
    </div>
    <p class="verdict" role="status">${notice(value.told)}</p>
    <${Names} title=${t("better")} list=${value.better} />
    <${Names} title=${t("worse")} list=${value.worse} />
    <${Names} title=${t("not compared")} list=${value.unpaired} />`;
}

export default function Evaluations({ path }) {
  const [, one, other] = path;
  if (other) return html`<${Two} one=${one} other=${other} />`;
  return one ? html`<${One} job=${one} />` : html`<${List} />`;
}
