// Learning: failures by cause, what went well, and lessons to approve or roll back.

import { html, useContext, useState } from "../vendor/preact.js";
import { get, post } from "../server.js";
import { link } from "../shared.js";
import { Announce, Button, EmptyState, ErrorBox, Loading, useLoaded } from "../parts.js";
import { shorten } from "../format.js";
import { notice, t } from "../words.js";

const TONES = { approved: "good", dropped: "bad" };
const points = share => `${share > 0 ? "+" : ""}${Math.round(100 * share)}`;

const Failure = ({ one }) =>
  html`<li>
    <b>${one.runs}</b> ${t(one.cause)} ${one.tool ? html`<code>${one.tool}</code>` : null} <span class="note">${one.user}</span>
    ${one.examples.map(each => html`<p class="note"><a href=${link(["runs", each.run])}>${shorten(each.task || each.run, 80)}</a> ${each.note ? `← ${shorten(each.note, 80)}` : ""}</p>`)}
  </li>`;

const Pattern = ({ one }) =>
  html`<li><b>${one.good}/${one.runs}</b> ${one.tools.join(" → ") || t("no tools")} <span class="note">${one.kind}</span></li>`;

function Lesson({ one, done }) {
  const [problem, fail] = useState(null);
  const say = useContext(Announce);
  const change = (body, said) => () =>
    post(`api/learning/lessons/${encodeURIComponent(one.id)}`, body).then(() => (say(said), done()), fail);
  const approve = share => change({ action: "approve", share, untested: !one.proven }, t("Approved"));
  const trial = one.trial.decision && `${t(one.trial.decision)} (${points(one.trial.helps.difference)}, p = ${one.trial.helps.p.toPrecision(2)})`;
  return html`<li>
    <p><span class=${`chip ${TONES[one.status] || ""}`}>${t(one.status)}</span> ${notice(one.advice)}</p>
    <p class="note parted"><span>${one.id}</span><span>${one.agent}</span><span>${one.shared ? t("for all users") : one.user}</span><span>${trial || t("not tried")}</span><span>${notice(one.why)}</span>
      ${one.evidence.slice(-3).map(id => html`<a href=${link(["runs", id])}>${id.slice(0, 8)}</a>`)}</p>
    <p class="row">
      ${one.status === "suggested" ? html`<${Button} onClick=${approve(false)}>${one.proven ? t("Approve") : t("Approve without a trial")}</${Button}>${one.user ? html`<${Button} onClick=${approve(true)}>${one.proven ? t("Approve for all users") : t("Approve for all users without a trial")}</${Button}>` : null}` : null}
      ${one.status !== "dropped" ? html`<${Button} onClick=${change({ action: "rollback" }, t("Rolled back"))}>${t("Roll back")}</${Button}>` : null}
    </p><${ErrorBox} problem=${problem} />
  </li>`;
}

const Part = ({ title, list, item, empty }) =>
  html`<section class="sheet"><h2>${title}</h2>${list.length ? html`<ul>${list.map(item)}</ul>` : html`<p class="note">${empty}</p>`}</section>`;

export default function Learning() {
  const { value, problem, again } = useLoaded(signal => get("api/learning", signal), []);
  if (!value) return problem ? html`<${ErrorBox} problem=${problem} again=${again} />` : html`<${Loading} />`;
  const { runs, failed, failures, patterns, lessons } = value;
  return html`<header class="top"><h1>${t("Learning")}</h1></header>
    ${runs || lessons.length
      ? html`<${Part} title=${t("Lessons")} list=${lessons} item=${one => html`<${Lesson} one=${one} done=${again} />`} empty="kaname learn" />
          <${Part} title=${t("Failures: {failed} of {runs} runs", { failed, runs })} list=${failures} item=${one => html`<${Failure} one=${one} />`} empty=${t("none")} />
          <${Part} title=${t("What went well")} list=${patterns} item=${one => html`<${Pattern} one=${one} />`} empty=${t("none")} />`
      : html`<${EmptyState} title=${t("No runs yet")} />`}`;
}
