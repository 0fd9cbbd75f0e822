// Follow a run: its facts so far, new facts, and the text that is streaming.

import { useEffect, useMemo, useState } from "../vendor/preact.js";
import { follow, get, runPath } from "../server.js";
import { cell, takeRuns } from "../shared.js";
import { UNDER_WAY } from "../fold.js";

const FIRST = 300; // facts
const SILENT = { text: "", thinking: "", progress: null, notes: {} };

// Return a function that calls `act` at most once per frame.
function eachFrame(act) {
  let due = 0;
  return () => (due ||= requestAnimationFrame(() => ((due = 0), act())));
}

class Following {
  constructor(id, changed) {
    Object.assign(this, { id, facts: [], run: null, problem: null, connection: "loading", last: 0 });
    this.live = cell(SILENT);
    this.said = SILENT;
    this.tell = eachFrame(changed);
    this.show = eachFrame(() => this.live.set(this.said));
    this.stopped = false;
  }

  async begin() {
    try {
      const { run, facts } = await get(runPath(this.id, `/facts?whole=1&upto=${FIRST}`));
      if (this.stopped) return;
      Object.assign(this, { run, facts, last: facts.at(-1).seq });
      if (run.facts > FIRST) await this.rest();
      this.connection = "over";
      if (UNDER_WAY.has(this.run.status)) this.follow();
    } catch (problem) {
      this.problem = problem;
    }
    this.tell();
  }

  // Show the beginning of a long run while the rest is loading.
  async rest() {
    this.tell();
    const { run, facts } = await get(runPath(this.id, `/facts?after=${this.last}`));
    if (facts.length) Object.assign(this, { run, facts: [...this.facts, ...facts], last: facts.at(-1).seq });
  }

  follow() {
    if (this.stopped) return;
    this.connection = "open";
    const last = `${this.last}`;
    this.leave = follow(runPath(this.id, `/facts?after=${last}`), {
      last,
      take: batch => this.take(batch),
      state: (now, problem) => {
        if (now === "open") this.said = SILENT; // unfinished text is sent again, or as a fact
        Object.assign(this, { connection: now, problem: now === "refused" ? problem : this.problem });
        this.show();
        this.tell();
        if (now === "over") this.look();
      },
    });
    this.looking = setInterval(() => this.look(), 4000);
  }

  take(batch) {
    let facts = null;
    for (const { name, data } of batch) {
      const inner = data.data?.run_id; // an event of a run inside this one
      if (inner && inner !== this.id) continue;
      if (name === "fact") {
        if (data.seq <= this.last) continue;
        this.last = data.seq;
        (facts ??= []).push(data);
        if (data.type === "ModelReplied") this.said = { ...SILENT, progress: this.said.progress };
      } else if (name === "delta") this.said = { ...this.said, text: this.said.text + data.data.content };
      else if (name === "thinking") this.said = { ...this.said, thinking: this.said.thinking + data.data.content };
      else if (name === "status" && data.data.status === "restarted") this.said = { ...SILENT, progress: this.said.progress };
      else if (name === "progress")
        this.said = { ...this.said, notes: { ...this.said.notes, [data.data.tool_call_id]: data.data.content } };
      else if (name === "status" && data.data.status === "progress") this.said = { ...this.said, progress: data.data };
    }
    if (facts) {
      this.facts = [...this.facts, ...facts];
      this.tell();
    }
    this.show();
  }

  // Read the status: no fact says that a run was interrupted.
  async look() {
    if (document.visibilityState === "hidden" && this.connection !== "over") return;
    try {
      const { run } = await get(runPath(this.id, `/facts?after=${this.last}`));
      if (this.stopped) return;
      this.run = run;
      takeRuns([run]);
      this.tell();
    } catch {
      // the stream shows if the server can be reached
    }
    if (this.connection === "over") clearInterval(this.looking);
  }

  end() {
    this.stopped = true;
    this.leave?.();
    clearInterval(this.looking);
  }
}

export function useRun(id) {
  const [turn, again] = useState(0);
  const [, tick] = useState(0);
  const following = useMemo(() => (id ? new Following(id, () => tick(one => one + 1)) : null), [id, turn]);
  useEffect(() => {
    following?.begin();
    return () => following?.end();
  }, [following]);
  return following && { ...following, live: following.live, again: () => again(one => one + 1) };
}
