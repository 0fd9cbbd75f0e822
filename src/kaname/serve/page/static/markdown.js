// Render the Markdown of models as elements, never as HTML. Unknown syntax stays as it was written.
//
// A picture is shown as its text, and links lead only to http, https or mailto: nothing is loaded or run.
// Emphasis needs no spaces around it, because Japanese has none: **これ**です.

import { html, Component } from "./vendor/preact.js";

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const LIST = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const DEEPEST = 8;
const HUGE = 20000; // characters of one block; a larger one is not rendered

// Split the text into blocks at empty lines outside of fences. While a text grows, only the last block changes.
export function blocks(text) {
  const found = [];
  let held = [];
  let fence = "";
  const end = () => (held.length && found.push(held.join("\n")), (held = []));
  for (const line of text.split("\n")) {
    const mark = FENCE.exec(line);
    if (fence) {
      held.push(line);
      if (mark && mark[1][0] === fence[0] && mark[1].length >= fence.length && !mark[2]) (end(), (fence = ""));
    } else if (mark) {
      if (!LIST.test(held[0] || "")) end();
      held.push(line);
      fence = mark[1];
    } else if (!line.trim()) {
      if (held.length && LIST.test(held[0]))
        held.push(line); // a list continues after an empty line
      else end();
    } else {
      if (held.length && LIST.test(held[0]) && !held.at(-1).trim() && !/^\s|^[-*+]\s|^\d{1,9}[.)]\s/.test(line)) end();
      held.push(line);
    }
  }
  end();
  return found;
}

class Block extends Component {
  shouldComponentUpdate(next) {
    return next.text !== this.props.text;
  }
  render({ text }) {
    return text.length > HUGE ? html`<p>${text}</p>` : block(text.split("\n"), 0);
  }
}

export function Markdown({ text }) {
  return html`<div class="prose">${blocks(text).map((one, place) => html`<${Block} key=${place} text=${one} />`)}</div>`;
}

function block(lines, depth) {
  const out = [];
  let place = 0;
  const until = test => {
    const start = place;
    while (place < lines.length && test(lines[place], place)) place++;
    return lines.slice(start, place);
  };
  while (place < lines.length) {
    const line = lines[place];
    const fence = FENCE.exec(line);
    const head = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (!line.trim()) place++;
    else if (fence) {
      place++;
      const body = until(one => !(FENCE.exec(one)?.[1]?.startsWith(fence[1]) && !FENCE.exec(one)[2]));
      place++;
      out.push(html`<${Code} text=${body.join("\n")} language=${fence[2]} />`);
    } else if (head) {
      place++;
      out.push(
        html`<p class=${`head h${head[1].length}`} role="heading" aria-level=${Math.min(6, head[1].length + 2)}>
          ${inline(head[2])}
        </p>`,
      );
    } else if (RULE.test(line)) {
      place++;
      out.push(html`<hr />`);
    } else if (/^ {0,3}>/.test(line) && depth < DEEPEST) {
      const body = until(one => /^ {0,3}>/.test(one)).map(one => one.replace(/^ {0,3}> ?/, ""));
      out.push(html`<blockquote>${block(body, depth + 1)}</blockquote>`);
    } else if (LIST.test(line) && depth < DEEPEST) {
      const body = until((one, at) => LIST.test(one) || /^\s+\S/.test(one) || (!one.trim() && at + 1 < lines.length));
      out.push(list(body, depth));
    } else if (
      line.includes("|") &&
      /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[place + 1] || "") &&
      lines[place + 1].includes("-")
    ) {
      out.push(table(until(one => one.includes("|"))));
    } else {
      const said = until((one, at) => one.trim() && (at === place || !starts(one)));
      out.push(html`<p>${said.map((one, at) => [at ? html`<br />` : null, inline(one.trim())])}</p>`);
    }
  }
  return out;
}

const starts = line => FENCE.test(line) || LIST.test(line) || /^ {0,3}(#{1,6}\s|>)/.test(line) || RULE.test(line);

function list(lines, depth) {
  const first = LIST.exec(lines[0]);
  const edge = first[1].length;
  const items = [];
  for (const line of lines) {
    const mark = LIST.exec(line);
    if (mark && mark[1].length <= edge + 1) items.push([mark[3]]);
    else items.at(-1)?.push(line.slice(Math.min(edge + 2, line.length - line.trimStart().length)));
  }
  const shown = items.map(item => html`<li>${item.length === 1 ? inline(item[0]) : block(item, depth + 1)}</li>`);
  const ordered = /\d/.test(first[2]);
  return ordered
    ? html`<ol start=${parseInt(first[2], 10)}>
        ${shown}
      </ol>`
    : html`<ul>
        ${shown}
      </ul>`;
}

function table(lines) {
  const cells = line =>
    line
      .trim()
      .replace(/^\||\|$/g, "")
      .split(/(?<!\\)\|/)
      .map(one => one.trim().replaceAll("\\|", "|"));
  const [head, rule, ...rows] = lines;
  const sides = cells(rule).map(one => (/-:$/.test(one) ? (one[0] === ":" ? "center" : "right") : ""));
  return html`<div class="table">
    <table>
      <thead>
        <tr>
          ${cells(head).map((one, at) => html`<th scope="col" class=${sides[at]}>${inline(one)}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          row =>
            html`<tr>
              ${cells(row).map((one, at) => html`<td class=${sides[at]}>${inline(one)}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

export function Code({ text, language = "" }) {
  return html`<div class="code">
    <pre tabindex="0"><code>${text}</code></pre>
    ${language ? html`<span class="note">${language}</span>` : null}
  </div>`;
}

const INLINE =
  /(`+)([\s\S]*?[^`])\1(?!`)|(!?)\[([^\[\]]*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+"[^"]*")?\)|(\*\*|__)(?=\S)([\s\S]*?\S)\6|(?<![\w*])([*_])(?=\S)([^*_]*?[^*_\s])\8(?!\w)|~~(?=\S)([\s\S]*?\S)~~|(https?:\/\/[^\s<>"'`。、)）」\]]+)|\\([\\`*_{}[\]()#+.!|~>-])/;

export function inline(text, depth = 0) {
  const out = [];
  let rest = text;
  while (rest) {
    const found = depth < DEEPEST ? INLINE.exec(rest) : null;
    if (!found) return [...out, rest];
    const [whole, tick, code, picture, words, target, , bold, , slanted, struck, address, escaped] = found;
    out.push(rest.slice(0, found.index));
    const inner = said => inline(said, depth + 1);
    if (tick) out.push(html`<code>${code}</code>`);
    else if (words !== undefined)
      out.push(picture ? html`<span class="note">▧ ${words || target}</span>` : anchor(target, inner(words)));
    else if (bold !== undefined) out.push(html`<strong>${inner(bold)}</strong>`);
    else if (slanted !== undefined) out.push(html`<em>${inner(slanted)}</em>`);
    else if (struck !== undefined) out.push(html`<s>${inner(struck)}</s>`);
    else if (address) out.push(anchor(address, address));
    else out.push(escaped);
    rest = rest.slice(found.index + whole.length);
  }
  return out;
}

function anchor(target, words) {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return html`<span>${words}</span>`;
  return html`<a href=${target} target="_blank" rel="noopener noreferrer nofollow" title=${target}>${words}</a>`;
}
