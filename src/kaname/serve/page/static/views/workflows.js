// Workflows: the graphs of the served workflows, their last runs, and a form to start one.

import { html, useEffect, useState } from "../vendor/preact.js";
import { post } from "../server.js";
import { agents, go, link, loadRuns, may, runs, use } from "../shared.js";
import { EmptyState, ErrorBox } from "../parts.js";
import { t } from "../words.js";
import { Graph } from "./graph.js";
import { Row } from "./runs.js";

function Start({ agent, parameters }) {
  const [problem, setProblem] = useState(null);
  const known = Object.entries(parameters?.properties || {}).map(([name, one]) => [name, one.default ?? ""]);
  const start = async event => {
    event.preventDefault();
    const text = new FormData(event.target).get("params").trim() || "{}";
    try {
      JSON.parse(text);
    } catch (failed) {
      return setProblem({ detail: `${t("This is not JSON")}: ${failed.message}` });
    }
    try {
      const run = await post("api/runs", { agent, input: text, mode: "detach" });
      go(["runs", run.run_id]);
    } catch (failed) {
      setProblem(failed);
    }
  };
  return html`<form class="row" onSubmit=${start}>
    <label class="grow"
      >${t("Parameters, as JSON")}<input
        name="params"
        defaultValue=${JSON.stringify(Object.fromEntries(known))}
        spellcheck=${false} /></label
    ><button class="main">${t("Start")}</button><${ErrorBox} problem=${problem} />
  </form>`;
}

export default function Workflows() {
  const known = (use(agents) || []).filter(agent => agent.drawing);
  const { list } = use(runs);
  useEffect(() => void loadRuns(), []);
  return html`<header class="top"><h1>${t("Workflows")}</h1></header>
    ${
      known.length
        ? known.map(
            agent =>
              html`<section class="sheet" aria-label=${agent.name}>
                <h2 class="name">${agent.name}</h2>
                <${Graph} drawing=${agent.drawing} title=${agent.name} />
                ${may("talk") ? html`<${Start} agent=${agent.name} parameters=${agent.parameters} />` : null}
                <div class="flush">
                  ${(list || [])
                    .filter(run => run.agent === agent.name)
                    .slice(0, 5)
                    .map(run => html`<${Row} key=${run.run_id} run=${run} />`)}
                </div>
              </section>`,
          )
        : html`<${EmptyState} title=${t("This server has no workflows")}><p>${t("Serve a workflow like an agent: app([agent, workflow]). To see the graph of another workflow, open one of its runs.")}</p></${EmptyState}>`
    }`;
}
