// Requests to the server, and streams of events. The browser sends the cookie of the sign-in, which no script can read.

for (const store of [sessionStorage, localStorage]) store.removeItem("kaname.token"); // earlier versions kept the token here

// An error. `status` is 0 if the server could not be reached.
export class Problem extends Error {
  constructor(status, detail, notice) {
    super(detail);
    Object.assign(this, { status, detail, notice });
  }
}

async function request(path, options) {
  try {
    return await fetch(path, { cache: "no-store", ...options });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Problem(0, "The server cannot be reached.");
  }
}

async function check(answer) {
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, said.detail || said.error?.message || `${answer.status}`, said.notice);
}

export async function get(path, signal) {
  return (await check(await request(path, { signal }))).json();
}

export async function send(method, path, body = {}) {
  const content = { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await check(await request(path, content));
  return answer.status === 204 ? null : answer.json();
}

export const post = (path, body) => send("POST", path, body);

// Send a file as it is. A message names it by the `file_id` of the answer.
export async function upload(name, content) {
  const headers = { "content-type": "application/octet-stream" };
  const answer = await request(`api/media?name=${encodeURIComponent(name)}`, { method: "POST", headers, body: content });
  return (await check(answer)).json();
}

export async function download(path) {
  const answer = await check(await request(path));
  const name = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition") || "")?.[1] || "download";
  saveFile(name, await answer.blob());
  return name;
}

// The content of an address, as a Blob.
export const blob = async path => (await check(await request(path, { cache: "default" }))).blob();

// Save content as a file on the user's machine.
export function saveFile(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const runPath = (id, more = "") => `api/runs/${id.split("/").map(encodeURIComponent).join("/")}${more}`;

// Follow a stream of events until it says that it is over. After a lost connection or a restart of the server it continues
// after the last event. It is closed while the tab is hidden: a browser has six connections for all tabs.
export function follow(path, { last = "", take, state = () => {} }) {
  const stopped = new AbortController();
  let reading = null;
  const closeIfHidden = () => document.visibilityState === "hidden" && reading?.abort();
  document.addEventListener("visibilitychange", closeIfHidden);
  stopped.signal.addEventListener("abort", () => reading?.abort());

  (async () => {
    for (let tries = 0; !stopped.signal.aborted; tries++) {
      while (document.visibilityState === "hidden" && !stopped.signal.aborted) await untilVisible();
      reading = new AbortController();
      try {
        const asked = { accept: "text/event-stream", ...(last ? { "last-event-id": last } : {}) };
        const answer = await check(await request(path, { headers: asked, signal: reading.signal }));
        if (answer.status === 204) return state("over");
        state("open");
        tries = 0;
        for await (const batch of events(answer.body)) {
          for (const event of batch) if (event.id) last = event.id;
          take(batch);
          if (batch.some(event => event.name === "over")) return state("over");
        }
      } catch (problem) {
        if (stopped.signal.aborted) return;
        if (problem instanceof Problem && problem.status >= 400 && problem.status < 500 && problem.status !== 429)
          return state("refused", problem);
      }
      if (stopped.signal.aborted) return;
      if (document.visibilityState !== "hidden") state("lost");
      await new Promise(done => setTimeout(done, Math.min(5000, 250 * 2 ** Math.min(tries, 5))));
    }
  })();
  return () => {
    stopped.abort();
    document.removeEventListener("visibilitychange", closeIfHidden);
  };
}

const untilVisible = () =>
  new Promise(done => {
    const look = () => (document.removeEventListener("visibilitychange", look), done());
    document.addEventListener("visibilitychange", look);
  });

// Yield the events of a text/event-stream, in batches as they arrive.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const end = held.lastIndexOf("\n\n");
    if (end < 0) continue;
    const frames = held.slice(0, end).split("\n\n");
    held = held.slice(end + 2);
    yield frames.map(parseFrame).filter(Boolean);
  }
}

function parseFrame(frame) {
  const event = { id: "", name: "message", data: null };
  for (const line of frame.split("\n")) {
    const at = line.indexOf(": ");
    const field = line.slice(0, at);
    if (field === "id") event.id = line.slice(at + 2);
    else if (field === "event") event.name = line.slice(at + 2);
    else if (field === "data") event.data = JSON.parse(line.slice(at + 2));
  }
  return event.data === null ? null : event;
}
