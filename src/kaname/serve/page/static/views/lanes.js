// The timeline: a lane for each agent and tool, bars to scale, and a cursor at one fact. Idle time is shortened.

import { html, useMemo, useRef, useState } from "../vendor/preact.js";
import { durationText } from "../format.js";
import { notice, t } from "../words.js";

const MOST = 10; // lanes
const barText = bar => (bar.kind === "asked" ? `? ${notice(bar.notice, bar.text)}` : bar.text);
const PAUSE = 0.03; // of the width

// Return a function from a time to its place on the track, from 0 to 1.
export function scale(start, end, pauses) {
  const cuts = pauses.filter(([from, to]) => to > from && from >= start && to <= end);
  const idle = cuts.reduce((sum, [from, to]) => sum + to - from, 0);
  const worked = Math.max(0.001, end - start - idle);
  const room = Math.max(0.4, 1 - cuts.length * PAUSE);
  const each = cuts.length ? (1 - room) / cuts.length : 0;
  return time => {
    let [at, left] = [0, Math.min(Math.max(time, start), end) - start];
    for (const [from, to] of cuts) {
      if (time <= from) break;
      const gone = Math.min(time, to) - from;
      left -= gone;
      at += each * (gone / (to - from));
    }
    return Math.min(1, at + (left / worked) * room);
  };
}

// Leave out bars that would cover each other.
function withoutOverlaps(bars, place) {
  const seen = new Set();
  return bars.filter(bar => {
    const key = `${bar.lane} ${bar.kind} ${Math.round(place(bar.from) * 400)} ${Math.round(place(bar.to) * 400)}`;
    return !seen.has(key) && seen.add(key);
  });
}

export function Lanes({ story, facts, own, at, go, now }) {
  const track = useRef();
  const [all, showAll] = useState(false);
  const mine = useMemo(() => facts.filter(fact => fact.run === own), [facts, own]);
  const { lanes, place, start, end, others } = useMemo(() => {
    const start = mine[0]?.time ?? 0;
    const idle = story.pauses.reduce((sum, [from, to]) => sum + (from >= start ? to - from : 0), 0);
    let end = Math.max(start + 0.001, mine.at(-1)?.time ?? 0, now);
    if (story.questions.size && !story.state.stop) end += 0.25 * Math.max(0.001, end - start - idle); // a question is open: leave room
    const bars = [...story.bars, ...story.barsUnderWay(end)].filter(bar => bar.run === own && bar.to >= start);
    const place = scale(start, end, story.pauses);
    const named = splitLanes(bars);
    const lanes = named.slice(0, all ? 300 : MOST).map(({ who, list }) => [who, withoutOverlaps(list, place)]);
    return { lanes, place, start, end, others: all ? 0 : Math.max(0, named.length - MOST) };
  }, [story, mine, Math.round(now), all]);
  if (!mine.length) return null;
  const factAt = event => {
    const box = track.current.getBoundingClientRect();
    const wanted = (event.clientX - box.left) / box.width;
    let best = mine[0];
    for (const fact of mine) if (Math.abs(place(fact.time) - wanted) <= Math.abs(place(best.time) - wanted)) best = fact;
    go(best.seq);
  };
  const here = mine.find(fact => fact.seq === at) || mine.at(-1);
  const cursorAt = place(here.time);
  const drag = event => (event.buttons & 1 || event.type === "pointerdown") && factAt(event);
  const apartBy = innerWidth < 700 ? 0.22 : 0.09;
  const ticks = [];
  for (const share of [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]) {
    const time = start + share * (end - start);
    const free = [cursorAt, ...ticks.map(place)].every(other => Math.abs(place(time) - other) > apartBy);
    if (free) ticks.push(time);
  }
  return html`<section class="sheet lanes-sheet" aria-label=${t("Timeline")}>
    <div class="time">
      <div class="lanes">
        ${lanes.map(
          ([who, bars]) =>
            html`<div class="who" title=${who}>${who}</div>
              <div class="track" onPointerDown=${drag} onPointerMove=${drag}>
                ${bars.map(bar => html`<span class=${`bar ${bar.kind}`} title=${`${barText(bar)} · ${durationText(bar.to - bar.from)}`} style=${{ left: `${place(bar.from) * 100}%`, width: `${Math.max(0.25, (place(bar.to) - place(bar.from)) * 100)}%` }}>${barText(bar)}</span>`)}
              </div>`,
        )}
      </div>
      ${others ? html`<button type="button" class="plain" onClick=${() => showAll(true)}>${t("{count} more lanes", { count: others })}</button>` : null}
      <div class="scrub" ref=${track} onPointerDown=${drag} onPointerMove=${drag}>
        ${story.pauses.filter(([from]) => from >= start).map(([from, to]) => html`<i class="pause" title=${t("waited {time}", { time: durationText(to - from) })} style=${{ left: `${place((from + to) / 2) * 100}%` }}>⋯</i>`)}
        ${ticks.map(time => html`<i style=${{ left: `${place(time) * 100}%` }} class=${place(time) > 0.95 ? "last" : ""}>${time > start ? durationText(time - start) : "0"}</i>`)}
      </div>
      <div class="over">
        <span class="now" style=${{ left: `${cursorAt * 100}%` }}
          ><b style=${{ transform: `translateX(${-cursorAt * 100}%)` }}>${t("fact {seq}", { seq: here.seq })}</b></span
        >
      </div>
    </div>
    <label class="unseen"
      >${t("Fact")}<input
        type="range"
        min="1"
        max=${mine.at(-1).seq}
        value=${here.seq}
        onInput=${event => go(Number(event.target.value))}
    /></label>
  </section>`;
}

// One lane per name; overlapping bars of one name get separate lanes.
function splitLanes(bars) {
  const named = new Map();
  for (const bar of [...bars].sort((a, b) => a.from - b.from)) {
    const lanes = named.get(bar.lane) || named.set(bar.lane, []).get(bar.lane);
    const free = lanes.find(lane => lane.list.at(-1).to <= bar.from + 1e-9);
    if (free) free.list.push(bar);
    else lanes.push({ who: bar.lane, list: [bar] });
  }
  return [...named.values()].flat();
}
