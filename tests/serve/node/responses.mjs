// OpenAI's client, Responses: node responses.mjs URL
import OpenAI from "openai";

const [url] = process.argv.slice(2);
let name; // of the case that is tried
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const tell = (one) => console.log(JSON.stringify([name, one]));
const respond = (input, more) => client.responses.create({ model: "desk", input, ...more });

async function approval(approve) {
  const asked = await respond("go", { model: "cashier" });
  tell(asked);
  const answer = { type: "mcp_approval_response", approval_request_id: asked.output[0].id, approve };
  tell(await respond([answer], { model: "cashier", previous_response_id: asked.id }));
}

const cases = {
  async whole() {
    tell(await respond("please add"));
  },
  async stream() {
    for await (const event of await respond("please add", { stream: true })) tell(event);
  },
  async helper() {
    const stream = client.responses.stream({ model: "desk", input: "please add" });
    const words = [];
    stream.on("response.output_text.delta", (event) => words.push(event.delta));
    const final = await stream.finalResponse();
    tell({ words: words.join(""), text: final.output_text, output: final.output });
  },
  async previous() {
    const first = await respond("one");
    tell((await respond("history", { previous_response_id: first.id })).output_text);
  },
  async kept() {
    const done = await respond("hi");
    tell(await client.responses.retrieve(done.id));
    tell(await client.responses.cancel(done.id));
    await client.responses.delete(done.id);
    await client.responses.retrieve(done.id);
  },
  async approve() {
    await approval(true);
  },
  async deny() {
    await approval(false);
  },
  async tools() {
    await respond("hi", { tools: [{ type: "web_search" }] });
  },
  async fail() {
    tell(await respond("fail"));
  },
};

for (name of Object.keys(cases)) {
  try {
    await cases[name]();
  } catch (problem) {
    tell({ error: problem.constructor.name, message: problem.message, status: problem.status, code: problem.code });
  }
}
