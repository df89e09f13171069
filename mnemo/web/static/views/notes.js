// Notes: long-term topics, each with its text and its versions, compared line by line.

import "../vendor/diff.js";
import { get } from "../api.js";
import { Empty, html, Loaded, Text, Time, To, useContext, useEffect, useLoad, useRef, useState, World } from "../parts.js";

const { diffLines } = globalThis.Diff;
/** Within this a comparison is made; beyond it the version is shown whole. */
const MOST_MS = 300;

export function Notes({ params }) {
  const { repo, tick } = useContext(World);
  const state = useLoad((signal) => get("/notes", { repo, limit: 1_000 }, signal), [repo], tick);
  return html`<div class=${params.topic ? "split" : ""}>
    <section aria-label="List"><${Loaded} state=${state}>
      ${(notes) => (notes.length ? html`<${Table} ...${{ notes, params }} />` : html`<${Empty}>No notes yet. They are written at the end of a task, by topic.<//>`)}
    <//></section>
    ${params.topic && html`<${Note} key=${params.topic} topic=${params.topic} />`}
  </div>`;
}

function Table({ notes, params }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Notes"><table>
    <thead><tr><th scope="col">Topic</th><th scope="col">About</th><th scope="col" class="second">Version</th><th scope="col" class="second">Written</th></tr></thead>
    <tbody>${notes.map((note) => html`<tr key=${note.topic} class=${note.topic === params.topic ? "chosen" : ""}>
      <th scope="row"><${To} view="notes" params=${{ topic: note.topic }}>${note.topic}<//></th>
      <td class="wrap"><${Text} text=${note.description} cut=${200} /></td><td class="second">${note.version}</td><td class="second"><${Time} at=${note.updated_at} /></td>
    </tr>`)}</tbody>
  </table></div>`;
}

function Note({ topic }) {
  const { repo, tick } = useContext(World);
  const heading = useRef(null);
  useEffect(() => heading.current?.focus(), []);
  const state = useLoad((signal) => get("/note/history", { repo, topic }, signal), [repo, topic], tick);
  return html`<section class="panel" aria-labelledby="details">
    <div class="head"><h2 id="details" tabindex="-1" ref=${heading}>Note ${topic}</h2><${To} view="notes">Close<//></div>
    <${Loaded} state=${state}>
      ${(versions) => html`<p class="quiet"><${Text} text=${versions.at(-1)?.description} /></p>
        <pre class="note"><${Text} text=${versions.at(-1)?.body} cut=${20_000} /></pre>
        <h3>Versions, newest first</h3>
        ${versions.map((version, index) => html`<${Version} key=${version.version} version=${version} before=${versions[index - 1]} />`).reverse()}`}
    <//>
  </section>`;
}

function Version({ version, before }) {
  const [open, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.target.open)}>
    <summary>Version ${version.version}: ${version.action} by ${version.by}, <${Time} at=${version.at} /></summary>
    ${version.reason && html`<p>${version.reason}</p>`}
    ${open && html`<${Difference} old=${before?.body ?? ""} now=${version.body} />`}
  </details>`;
}

function Difference({ old, now }) {
  const parts = diffLines(old, now, { timeout: MOST_MS });
  if (!parts) return html`<pre class="note"><${Text} text=${now} cut=${20_000} /></pre>`;
  return html`<pre class="diff">${parts.map((part) => {
    const [mark, kind] = part.added ? ["+", "added"] : part.removed ? ["−", "gone"] : [" ", ""];
    const lines = part.value.replace(/\n$/, "").split("\n").map((line) => `${mark} ${line}\n`);
    return html`<span class=${kind}>${lines.join("")}</span>`;
  })}</pre>`;
}
