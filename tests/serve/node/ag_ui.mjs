// The client of AG-UI: node ag_ui.mjs URL
import { HttpAgent } from "@ag-ui/client";

const [url] = process.argv.slice(2);
let name; // of the case that is tried
const tell = (one) => console.log(JSON.stringify([name, one]));

function talking(agent, words) {
  const made = new HttpAgent({ url: `${url}/ag-ui/${agent}`, threadId: "t" });
  made.addMessage({ id: "1", role: "user", content: words });
  return made;
}

// What the page has after a run: its messages, what is asked, the result.
async function run(agent, more) {
  const { result } = await agent.runAgent(more, { onRunErrorEvent: ({ event }) => tell(event) });
  tell({ messages: agent.messages, interrupts: agent.pendingInterrupts, result });
}

async function answered(status, payload) {
  const agent = talking("cashier", "go");
  await run(agent);
  const resume = agent.pendingInterrupts.map((one) => ({ interruptId: one.id, status, payload }));
  await run(agent, { resume });
}

const cases = {
  async add() {
    const agent = talking("desk", "please add");
    await run(agent);
    agent.addMessage({ id: "2", role: "user", content: "history" });
    await run(agent);
  },
  async twice() {
    const agent = talking("desk", "please add");
    await agent.runAgent();
    agent.addMessage({ id: "2", role: "user", content: "please add" });
    await run(agent);
  },
  async think() {
    await run(talking("desk", "think"));
  },
  async fail() {
    await run(talking("desk", "fail"));
  },
  async approve() {
    await answered("resolved", { approved: true });
  },
  async deny() {
    await answered("cancelled");
  },
};

for (name of Object.keys(cases)) {
  try {
    await cases[name]();
  } catch (problem) {
    tell({ error: problem.constructor.name, message: problem.message });
  }
}
