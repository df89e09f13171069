// Markdown as elements: headings, lists, code, quotes, emphasis. HTML and links in it stay text.

import { html } from "../parts.js";

const INLINE = /(`[^`]+`|\*\*[^*]+\*\*|__[^_]+__|\*[^*\s][^*]*\*)/;
const MOST_LINES = 2_000;

const inline = (text) =>
  text.split(INLINE).map((part) => {
    if (/^`.+`$/.test(part)) return html`<code>${part.slice(1, -1)}</code>`;
    if (/^(\*\*|__).+\1$/.test(part)) return html`<strong>${part.slice(2, -2)}</strong>`;
    return /^\*.+\*$/.test(part) ? html`<em>${part.slice(1, -1)}</em>` : part;
  });

/** Blocks of lines: [kind, lines]. */
function blocks(text) {
  const found = [];
  let fenced = false;
  for (const line of text.split("\n").slice(0, MOST_LINES)) {
    if (/^```/.test(line)) fenced = !fenced;
    const kind = /^```/.test(line) ? "fence" : fenced ? "code" : /^#{1,6} /.test(line) ? "head" : /^\s*[-*+] /.test(line) ? "list" : /^\s*\d+[.)] /.test(line) ? "ordered" : /^> ?/.test(line) ? "quote" : line.trim() ? "text" : "";
    const last = found.at(-1);
    if (last && last[0] === kind && kind !== "head") last[1].push(line);
    else found.push([kind, [line]]);
  }
  return found;
}

const SHOWN = {
  head: ([line]) => html`<p class="strong ${line.startsWith("# ") ? "lead" : ""}" role="heading" aria-level=${Math.min(6, 2 + line.match(/^#+/)[0].length)}>${inline(line.replace(/^#+ /, ""))}</p>`,
  list: (lines) => html`<ul class="bullets">${lines.map((line) => html`<li>${inline(line.replace(/^\s*[-*+] /, ""))}</li>`)}</ul>`,
  ordered: (lines) => html`<ol class="bullets">${lines.map((line) => html`<li>${inline(line.replace(/^\s*\d+[.)] /, ""))}</li>`)}</ol>`,
  code: (lines) => html`<pre>${lines.join("\n")}</pre>`,
  quote: (lines) => html`<blockquote>${inline(lines.map((line) => line.replace(/^> ?/, "")).join("\n"))}</blockquote>`,
  text: (lines) => html`<p class="text">${inline(lines.join("\n"))}</p>`,
};

export const Markdown = ({ text }) => html`<div class="markdown">${blocks(text).map(([kind, lines]) => SHOWN[kind]?.(lines))}</div>`;
