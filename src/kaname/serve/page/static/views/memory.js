// Memory: the stored memories, their origin and earlier versions. They can be corrected and deleted.

import { html, useContext, useState } from "../vendor/preact.js";
import { get, post, send } from "../server.js";
import { change, link, may } from "../shared.js";
import { Button, Loading, EmptyState, Announce, ErrorBox, useLoaded } from "../parts.js";
import { day, when } from "../format.js";
import { t } from "../words.js";

const KINDS = { fact: "a fact", preference: "a preference", decision: "a decision", said: "said", profile: "a setting" };

function One({ chain, place, done }) {
  const [now, ...before] = chain;
  const [editing, edit] = useState(null);
  const [problem, setProblem] = useState(null);
  const say = useContext(Announce);
  const act = async (work, said) => {
    try {
      await work();
      edit(null);
      say(said);
      done();
    } catch (failed) {
      setProblem(failed);
    }
  };
  const correct = event => (
    event.preventDefault(),
    act(() => send("PATCH", `api/memory/${now.id}?${place}`, { text: editing }), t("Corrected"))
  );
  const forget = () =>
    confirm(t("Delete this memory and its earlier versions permanently?")) &&
    act(() => send("DELETE", `api/memory/${now.id}?${place}`), t("Deleted"));
  return html`<li class="memory">
    ${editing === null ? html`<p>${now.about ? html`<span class="note">${now.about}: </span>` : null}${now.text}</p>` : html`<form onSubmit=${correct}><textarea ref=${field => field?.focus()} rows="2" value=${editing} aria-label=${t("Corrected text")} onInput=${event => edit(event.target.value)}></textarea><div class="row"><button class="main">${t("Save")}</button><${Button} onClick=${() => edit(null)}>${t("Cancel")}</${Button}></div></form>`}
    <p class="note parted">
      <span>${t(KINDS[now.kind] || now.kind)}</span>
      <span
        >${t("since {day}", { day: day(now.said) })}${now.ended ? `, ${t("until {day}", { day: day(now.ended) })}` : ""}</span
      >
      ${now.run ? html`<a href=${link(["runs", now.run])}>${t("from a run")}</a>` : t("added by hand")}
      ${may("talk") && editing === null ? html`<button type="button" class="plain" onClick=${() => edit(now.text)}>${t("correct")}</button> <button type="button" class="plain" onClick=${forget}>${t("delete")}</button>` : null}
    </p>
    ${before.map(old => html`<p class="note past">↳ ${t("previously")}: <s>${old.text}</s> (${day(old.said)} – ${day(old.ended)})</p>`)}<${ErrorBox}
      problem=${problem}
    />
  </li>`;
}

export default function Memory({ query }) {
  const of = query.of || "user";
  const who = new URLSearchParams({
    of,
    ...(query.user ? { user_id: query.user } : {}),
    ...(query.agent ? { agent: query.agent } : {}),
  }).toString();
  const { value, problem, again } = useLoaded(
    signal => get(`api/memory?${who}&past=1${query.q ? `&q=${encodeURIComponent(query.q)}` : ""}`, signal),
    [who, query.q],
  );
  const [trouble, setTrouble] = useState(null);
  const chains = new Map();
  const newest = list => [...list].sort((a, b) => b.said - a.said || b.id - a.id);
  for (const one of query.q ? value?.memories || [] : newest(value?.memories || []))
    chains.set(one.chain, [...(chains.get(one.chain) || []), one]);
  const add = async event => {
    event.preventDefault();
    const form = event.target;
    try {
      await post(`api/memory?${who}`, { text: new FormData(form).get("text") });
      form.reset();
      setTrouble(null);
      again();
    } catch (failed) {
      setTrouble(failed);
    }
  };
  return html`<header class="top"><h1>${t("Memory")}</h1></header>
    ${
      value && !value.agents.length
        ? html`<${EmptyState} title=${t("No agent on this server has memory")}><p>${t("To add memory, use Agent(…, context=[Memory()]), or memory: in kaname.yaml.")}</p></${EmptyState}>`
        : html` <div class="filters" role="search">
              <input
                type="search"
                value=${query.q || ""}
                placeholder=${t("Search")}
                aria-label=${t("Search")}
                onChange=${event => change({ q: event.target.value })}
              />
              ${may("admin") ? ["user", "agent", "project"].map(one => html`<button type="button" class="plain filter" aria-pressed=${of === one ? "true" : "false"} onClick=${() => change({ of: one === "user" ? "" : one })}>${t(`${one} memories`)}</button>`) : null}
              ${may("admin") && of === "user" ? html`<input class="small" value=${query.user || ""} placeholder=${t("user")} aria-label=${t("user")} onChange=${event => change({ user: event.target.value })} />` : null}
            </div>
            <${ErrorBox} problem=${problem || trouble} again=${problem ? again : null} />
            ${
              !value
                ? problem
                  ? null
                  : html`<${Loading} />`
                : html`<section class="sheet">
                    ${
                      chains.size
                        ? html`<ul class="memories">
                            ${[...chains.values()].map(chain => html`<${One} key=${chain[0].id} chain=${chain} place=${who} done=${again} />`)}
                          </ul>`
                        : html`<p class="note">${query.q ? t("No matches") : t("No memories yet")}</p>`
                    }
                    ${
                      may("talk")
                        ? html`<form class="row" onSubmit=${add}>
                            <label class="grow">${t("New memory")}<input name="text" required maxlength="2000" /></label
                            ><button>${t("Add")}</button>
                          </form>`
                        : null
                    }
                  </section>`
            }`
    }`;
}
