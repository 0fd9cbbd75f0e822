// The chat of the Vercel AI SDK, as `useChat` has it: node vercel.mjs URL
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";

const [url] = process.argv.slice(2);
let name; // of the case that is tried
const tell = (one) => console.log(JSON.stringify([name, one]));

class State {
  status = "ready";
  messages = [];
  pushMessage = (message) => this.messages.push(message);
  popMessage = () => this.messages.pop();
  replaceMessage = (index, message) => (this.messages[index] = message);
  snapshot = structuredClone;
}

class Chat extends AbstractChat {
  constructor(agent) {
    super({
      state: new State(),
      transport: new DefaultChatTransport({ api: `${url}/vercel/${agent}` }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    });
  }
}

// What the page has after each turn.
function show(chat) {
  tell({ status: chat.status, error: chat.error?.message, messages: chat.messages });
}

async function say(chat, text) {
  await chat.sendMessage({ text });
  show(chat);
}

// The user clicks; the chat sends the messages by itself.
async function click(chat, approved) {
  const { approval } = chat.lastMessage.parts.find((part) => part.approval);
  await chat.addToolApprovalResponse({ id: approval.id, approved });
  while (!["ready", "error"].includes(chat.status)) await new Promise((done) => setTimeout(done, 5));
  show(chat);
}

const cases = {
  async add() {
    const chat = new Chat("desk");
    await say(chat, "please add");
    await say(chat, "history");
  },
  async think() {
    await say(new Chat("desk"), "think");
  },
  async broken() {
    await say(new Chat("desk"), "broken");
  },
  async fail() {
    await say(new Chat("desk"), "fail");
  },
  async unknown() {
    await say(new Chat("desc"), "hi");
  },
  async approve() {
    const chat = new Chat("cashier");
    await say(chat, "go");
    await click(chat, true);
    await say(chat, "and again");
    await click(chat, true);
  },
  async deny() {
    const chat = new Chat("cashier");
    await say(chat, "go");
    await click(chat, false);
  },
};

for (name of Object.keys(cases)) {
  try {
    await cases[name]();
  } catch (problem) {
    tell({ error: problem.constructor.name, message: problem.message });
  }
}
