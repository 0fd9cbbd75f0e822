// Build the story of a run from its facts: messages and calls in order, and the state at any fact.

export const UNDER_WAY = new Set(["running", "interrupted", "waiting"]);
const PAUSES = new Set(["Opened", "Received", "Resumed", "Answered"]); // the time before these facts is not working time
const OVER = new Set(["completed", "degraded"]);

const parts = (message, type) => (message?.parts || []).filter(part => part.type === type);
export const textOf = message =>
  parts(message, "text")
    .map(part => part.text)
    .join("");

// Return the story of run `own` up to its fact `at`. Its facts follow those of the runs that it continues.
export function fold(facts, own, at = Infinity) {
  const story = new Story(own);
  for (const fact of facts) {
    if (fact.run === own && fact.seq > at) break;
    story.take(fact);
  }
  return story;
}

const SCHEDULED = /^(.+)@[^@/]+@(?:\d{8}T\d{6}Z|[0-9a-f]{25})$/; // the id of a run that a schedule has started: its name comes first
const BACKGROUND = "background:"; // how the names of facts begin about tasks in the background

class Story {
  constructor(own) {
    Object.assign(this, { own, items: [], bars: [], pauses: [], calls: new Map(), questions: new Map(), background: new Map(), graph: null });
    Object.assign(this, { recipe: {}, opened: null });
    this.state = { status: "running", agent: "", model: "", replies: 0, calls: 0, steps: 0, input: 0, output: 0, cost: 0 };
    Object.assign(this.state, { seconds: 0, stop: null, result: null, attempt: 1, recalled: [], seq: 0, warnings: 0 });
    this.before = 0;
    this.plans = 0;
  }

  take(fact) {
    const { state } = this;
    if (this.before && PAUSES.has(fact.type)) {
      if (fact.time - this.before > 1) this.pauses.push([this.before, fact.time]);
    } else if (this.before) state.seconds += Math.max(0, fact.time - this.before);
    if (fact.run === this.own) state.seq = fact.seq;
    const on = this[`on${fact.type}`] || this.onUnknown;
    on.call(this, fact.body || {}, fact);
    this.before = fact.time;
    this.last = fact;
  }

  add(fact, kind, more = {}) {
    const item = {
      key: `${fact.run}:${fact.seq}`,
      run: fact.run,
      seq: fact.seq,
      time: fact.time,
      agent: fact.agent,
      kind,
      ...more,
    };
    item.earlier = fact.run !== this.own;
    this.items.push(item);
    return item;
  }

  charge(usage) {
    if (!usage) return;
    const { state } = this;
    state.input += usage.input || 0;
    state.output += usage.output || 0;
    state.cost = state.cost === null || usage.cost === null ? null : state.cost + (usage.cost || 0);
  }

  onOpened(body, fact) {
    const { state } = this;
    const first = !this.opened;
    Object.assign(this, { opened: fact, recipe: body.recipe || {}, user: body.parent ? null : body.user || "" });
    this.schedule = (!body.parent && SCHEDULED.exec(fact.run)?.[1]) || "";
    Object.assign(state, {
      agent: fact.agent,
      model: this.recipe.model || "",
      input: 0,
      output: 0,
      cost: 0,
      stop: null,
      attempt: 1,
    });
    Object.assign(state, { status: "running", replies: 0, calls: 0 });
    if (fact.graph) this.graph = { ...fact.graph, own: /^/, from: 0 };
    if (!first && fact.run === this.own) this.add(fact, "goes_on", { base: body.base });
  }

  onResumed(body, fact) {
    Object.assign(this.state, { attempt: body.attempt, stop: null, status: this.questions.size ? "waiting" : "running" });
    for (const call of this.calls.values()) call.cut = call.ended === undefined; // its process has ended
    this.add(fact, "resumed", { attempt: body.attempt });
  }

  onReceived(body, fact) {
    for (const question of this.questions.values()) this.close(question);
    Object.assign(this.state, { steps: 0, stop: null, status: "running" });
    const media = parts(body.message, "media").map(part => ({ ...part, run: fact.run }));
    this.add(fact, body.message?.role === "assistant" ? "said" : "asked_for", {
      text: textOf(body.message),
      media,
      user: this.user,
      schedule: this.schedule,
    });
  }

  onInterjected(body, fact) {
    if (body.id?.startsWith(BACKGROUND)) return void this.addTask(body.id, { collected: true }, fact); // it has ended
    const media = parts(body.message, "media").map(part => part.name || part.mime);
    this.add(fact, "asked_for", { text: textOf(body.message), media, user: body.by || this.user });
  }

  onNoted(body, fact) {
    this.add(fact, "noted", { text: textOf(body.message) });
  }

  onModelReplied(body, fact) {
    const { reply = {} } = body;
    const { state } = this;
    state.replies++;
    state.steps++;
    this.charge(reply.usage);
    const calls = parts(reply.message, "call").map(call => this.call(call, fact));
    const text = textOf(reply.message);
    const from = this.working ?? this.before;
    const item = this.add(fact, "reply", {
      step: state.steps,
      text,
      calls,
      thinking: parts(reply.message, "thinking")
        .map(part => part.text)
        .join(""),
      usage: reply.usage,
      media: parts(reply.message, "media").map(part => ({ ...part, run: fact.run })),
      model: reply.served || reply.model || state.model,
      request: reply.request_id,
      seconds: fact.time - from,
      problem: reply.problem,
    });
    const label = calls.length ? calls.map(call => call.name).join(", ") : text.slice(0, 40);
    this.bars.push({ lane: fact.agent, kind: "model", from, to: fact.time, text: label, seq: fact.seq, run: fact.run });
    if (!fact.graph) return;
    item.plan = ++this.plans;
    if (this.graph) this.graph.to = this.calls.size;
    const graph = (this.graph = { ...fact.graph, own: /^plan\d+\./, from: this.calls.size }); // the calls of its steps follow
    item.steps = () => this.tasks(graph).map(({ name, status }) => ({ text: name, status: STEPS[status] || "open" }));
  }

  call(call, fact) {
    const made = { id: call.id, name: call.name, args: call.args ?? {}, seq: fact.seq, run: fact.run, tries: 0 };
    made.earlier = fact.run !== this.own;
    this.calls.set(call.id, made);
    this.state.calls++;
    return made;
  }

  onToolStarted(body, fact) {
    let call = this.calls.get(body.call.id);
    if (!call || call.ended) {
      call = this.call(body.call, fact); // a task of a workflow, which no reply has called
      this.add(fact, "call", { calls: [call] });
    }
    call.used = body.call.name !== call.name ? body.call : null; // another tool runs instead
    if (JSON.stringify(body.call.args ?? {}) !== JSON.stringify(call.args)) call.changed = body.call.args ?? {};
    Object.assign(call, {
      started: fact.time,
      startedSeq: fact.seq,
      startedIn: fact.run,
      effect: body.effect || "irreversible",
    });
    call.tries = body.attempt || 1;
    call.cut = false;
  }

  onToolFinished(body, fact) {
    const { result } = body;
    let call = this.calls.get(result.call_id);
    if (!call) {
      call = this.call({ id: result.call_id, name: result.name }, fact);
      this.add(fact, "call", { calls: [call] });
    }
    this.charge(result.usage);
    Object.assign(call, {
      ended: fact.time,
      endedSeq: fact.seq,
      output: result.output,
      waiting: result.waiting,
      error: result.error ?? null,
      media: (result.media || []).map(part => ({ ...part, run: fact.run })),
      apart: fact.apart,
    });
    if (fact.apart) this.add(fact, "result", { call });
    else if (call.earlier && fact.run === this.own && call.startedIn !== fact.run) {
      call.given = true; // the fork got this result instead of running the call
      this.add(fact, "given", { call });
    }
    const from = call.given ? fact.time : (call.started ?? fact.time);
    const kind = call.error === null ? "tool" : "error";
    this.bars.push({ lane: result.name, kind, from, to: fact.time, text: label(call), seq: fact.seq, run: fact.run });
    for (const question of this.questions.values()) if (question.call_id === call.id) this.close(question);
    this.status();
  }

  onAsked(body, fact) {
    if (body.key.startsWith("batch:")) return void (this.state.status = "waiting"); // a provider's batch answers it
    const call = this.calls.get(body.call_id);
    const question = {
      key: body.key,
      prompt: body.prompt,
      notice: body.prompt_notice,
      options: body.options || [],
      in_doubt: body.in_doubt,
      call_id: body.call_id || "",
      seq: fact.seq,
      run: fact.run,
      time: fact.time,
      open: true,
    };
    const about = body.about || call; // the fact may hold the arguments that the tool receives
    question.call = about ? { id: about.id, name: about.name, arguments: about.args } : null;
    if (call) call.question = question;
    this.questions.set(body.key, question);
    this.add(fact, "question", { question });
    this.status();
  }

  onAnswered(body, fact) {
    if (body.key.startsWith("batch:")) return this.status();
    const question = this.questions.get(body.key) || { key: body.key };
    this.close(question);
    Object.assign(question, { answer: body.answer, by: body.by || "" });
    if (question.time) this.bars.push({ ...questionBar(question), to: fact.time });
    this.add(fact, "answered", { question });
    this.status();
  }

  close(question) {
    question.open = false;
    this.questions.delete(question.key);
  }

  status() {
    if (!this.state.stop) this.state.status = this.questions.size ? "waiting" : "running";
  }

  onHandedOff(body, fact) {
    this.state.agent = body.to;
    this.add(fact, "handed", { text: body.to });
  }

  onWarned(body, fact) {
    this.state.warnings++;
    this.add(fact, "warning", { text: body.text, notice: body.text_notice, source: body.source });
  }

  onCustom(body, fact) {
    const { name, data } = body;
    if (name === "title") return;
    if (name === "rating") this.rating = data?.rating;
    if (name.startsWith("memory:")) {
      const lines = Array.isArray(data?.value) ? data.value.filter(one => typeof one === "string") : [];
      this.state.recalled = lines;
      if (lines.length) this.add(fact, "recalled", { lines });
      return;
    }
    if (name.startsWith(BACKGROUND)) return void this.addTask(name, data, fact);
    if (name === "todo" && Array.isArray(data?.items)) return void this.add(fact, "todo", { items: data.items });
    this.add(fact, "custom", { name, data, hidden: body.shown === false });
  }

  // A task that works in the background, or what is new of it: the list of all of them is shown again.
  addTask(name, { tool, agent, about, collected }, fact) {
    const run = name.slice(BACKGROUND.length);
    const text = this.background.get(run)?.text ?? `${agent === fact.agent ? tool : agent}: ${about}`;
    this.background.set(run, { run, text, status: collected ? "done" : "doing" });
    this.add(fact, "todo", { items: [...this.background.values()], title: "In the background" });
  }

  onCompacted(body, fact) {
    this.charge(body.usage);
    this.add(fact, "compacted", { text: body.summary, upto: body.upto });
  }

  onStopped(body, fact) {
    const { state } = this;
    Object.assign(state, { stop: body.stop, status: body.stop.kind, result: body.output ?? null });
    const said = this.items.findLast(item => item.kind === "reply")?.text;
    const told = typeof body.output === "string" && body.output === said ? null : (body.output ?? null);
    this.add(fact, "stopped", { stop: body.stop, output: told, good: OVER.has(body.stop.kind) });
  }

  onUnknown(body, fact) {
    this.add(fact, "custom", { name: fact.type, data: body });
  }

  // The open calls: those without a result.
  get open() {
    return [...this.calls.values()].filter(call => call.ended === undefined && !call.earlier && !this.state.stop);
  }

  // Bars of open calls and questions, up to now.
  barsUnderWay(now) {
    const open = [...this.calls.values()].filter(call => call.started && !call.ended && !call.question?.open);
    const end = this.state.stop ? this.before : now;
    const working = open.map(call => ({
      lane: call.name,
      kind: "tool",
      from: call.started,
      to: end,
      text: label(call),
      seq: call.startedSeq,
      run: call.run,
    }));
    return [...working, ...[...this.questions.values()].map(one => ({ ...questionBar(one), to: end }))];
  }

  // The tasks of the plan or workflow, with their status.
  tasks(graph = this.graph) {
    if (!graph) return [];
    const { own, from, to, tasks } = graph;
    const made = new Map();
    for (const call of [...this.calls.values()].slice(from, to)) {
      if (!own.test(call.id)) continue;
      const name = call.id.replace(own, "").replace(/[[\]@#~?].*$/, "");
      made.set(name, [...(made.get(name) || []), call]);
    }
    return tasks.map(task => {
      const calls = made.get(task.name) || [];
      return { ...task, calls, status: taskStatus(calls, this.state) };
    });
  }
}

const STEPS = { done: "done", running: "doing", waiting: "doing", failed: "failed" }; // of a plan, as things to do

function taskStatus(calls, state) {
  if (!calls.length) return state.stop ? "not run" : "not started";
  if (calls.some(call => call.ended === undefined))
    return state.stop ? "not finished" : calls.some(call => call.question?.open) ? "waiting" : "running";
  if (calls.some(call => call.id.endsWith("~") && call.error === null)) return "undone";
  const last = calls[calls.length - 1];
  return last.error === null ? "done" : "failed";
}

const label = call =>
  Object.values(typeof call.args === "object" ? call.args : {})
    .map(one => (typeof one === "object" ? JSON.stringify(one) : `${one}`))
    .join(", ")
    .slice(0, 60);
const questionBar = question => ({
  lane: question.call?.name || "?",
  kind: "asked",
  from: question.time,
  text: question.prompt.slice(0, 80),
  notice: question.notice,
  seq: question.seq,
  run: question.run,
});
