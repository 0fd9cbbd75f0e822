// OpenAI's client, chat completions: node chat.mjs URL
import OpenAI from "openai";

const [url] = process.argv.slice(2);
let name; // of the case that is tried
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const tell = (one) => console.log(JSON.stringify([name, one]));
const said = (content) => [{ role: "user", content }];
const complete = (more) => client.chat.completions.create({ model: "desk", ...more });

const cases = {
  async models() {
    for await (const one of client.models.list()) tell(one.id);
  },
  async whole() {
    tell(await complete({ messages: said("please add") }));
  },
  async stream() {
    const messages = said("please add");
    for await (const one of await complete({ messages, stream: true, stream_options: { include_usage: true } })) tell(one);
  },
  async helper() {
    const stream = client.chat.completions.stream({ model: "desk", messages: said("please add") });
    tell(await stream.finalChatCompletion());
  },
  async history() {
    const before = [...said("one"), { role: "assistant", content: "two" }];
    tell((await complete({ messages: [...before, ...said("history")] })).choices[0].message.content);
  },
  async unknown() {
    await complete({ model: "desc", messages: said("hi") });
  },
  async fail() {
    for await (const one of await complete({ messages: said("fail"), stream: true })) tell(one);
  },
};

for (name of Object.keys(cases)) {
  try {
    await cases[name]();
  } catch (problem) {
    tell({ error: problem.constructor.name, message: problem.message, status: problem.status, code: problem.code });
  }
}
