// Notes: long-term topics, each rendered, written and corrected here, with its versions.

import { call, get } from "../api.js";
import { address, Empty, Failure, html, Loaded, number, plural, Search, short, Text, Time, Title, To, useContext, useEffect, useLoad, useRef, useState, World } from "../parts.js";
import { Markdown } from "./markdown.js";

/** Within this a comparison is made; beyond it the version is shown whole. */
const MOST_MS = 300;

export function Notes({ params }) {
  const { repo, tick, canWrite } = useContext(World);
  const [words, setWords] = useState("");
  const state = useLoad((signal) => get("/notes", { repo, limit: 1_000 }, signal), [repo], tick);
  const notes = state.value ?? [];
  const found = notes.filter((note) => `${note.topic} ${note.description}`.toLowerCase().includes(words.toLowerCase()));
  const isOpen = params.topic || params.write;
  return html`<${Title} text=${notes.length ? plural(notes.length, "note") : "Notes"}>${canWrite && html`<a class="button" href=${address("notes", { repo, write: 1 })}>Write a note</a>`}<//>
    <div class="sides ${isOpen ? "open" : ""}">
    <section class="card" aria-label="List"><header><${Search} label="Topic or description" value=${words} onInput=${setWords} /></header>
      <${Loaded} state=${state}>${() => (found.length
        ? html`<ul class="rows">${found.map((note) => html`<li key=${note.topic}><${To} view="notes" params=${{ topic: note.topic }} class="row ${note.topic === params.topic ? "chosen" : ""}" aria-current=${note.topic === params.topic ? "true" : undefined}>
            <span class="strong text">${note.topic}</span><span class="origin"><${Time} at=${note.updated_at} /></span><span class="origin under">${short(note.description, 200)}${note.version > 1 ? ` · version ${number(note.version)}` : ""}</span><//></li>`)}</ul>`
        : html`<${Empty}>${notes.length ? "No note has these words." : html`<strong>No notes yet.</strong> They are written at the end of a task, by topic, or here by hand.`}<//>`)}<//></section>
    ${params.topic && html`<${Note} key=${params.topic} topic=${params.topic} />`}
    ${!params.topic && params.write && html`<${Writer} note=${null} />`}
  </div>`;
}

function Note({ topic }) {
  const { repo, tick, canWrite } = useContext(World);
  const [writes, setWrites] = useState(false);
  const heading = useRef(null);
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  const state = useLoad((signal) => get("/note/history", { repo, topic }, signal), [repo, topic], tick);
  return html`<section aria-labelledby="details"><${To} view="notes" class="back">‹ All notes<//>
    <div class="card"><header><h2 id="details" tabindex="-1" ref=${heading}>${topic}</h2><${To} view="notes" data-close>Close<//></header>
    <${Loaded} state=${state}>${(versions) => {
      const now = versions.at(-1);
      return html`<div class="body"><p class="soft"><${Text} text=${now.description} /></p><${Markdown} text=${now.body} /></div>
        ${canWrite && !writes && html`<div class="body"><button onClick=${() => setWrites(true)}>Correct</button></div>`}`;
    }}<//></div>
    ${writes && state.value && html`<${Writer} note=${{ topic, ...state.value.at(-1) }} onDone=${() => setWrites(false)} />`}
    <section class="card" aria-labelledby="versions"><header><h2 id="versions">Versions, newest first</h2></header>
      ${(state.value ?? []).map((version, index, all) => html`<${Version} key=${version.version} version=${version} before=${all[index - 1]} />`).reverse()}</section>
  </section>`;
}

/** A note's text by hand: a new one, or the next version; another that came meanwhile is not overwritten. */
function Writer({ note, onDone }) {
  const { repo } = useContext(World);
  const [error, setError] = useState(null);
  const base = useRef(note?.version ?? 0).current; // what was being corrected, whatever comes meanwhile
  const first = useRef(note).current;
  const sent = (event) => {
    event.preventDefault();
    const { topic, body, description } = Object.fromEntries(new FormData(event.target));
    const name = note?.topic ?? topic.trim();
    call("PUT", "/note", { params: { repo, topic: name }, body: { body, description, expected_version: base } }).then(() => (onDone?.(), (location.hash = address("notes", { repo, topic: name }))), setError);
  };
  return html`<form class="card" aria-label="Write" onSubmit=${sent}><div class="body stack">
    ${!note && html`<label>Topic <input name="topic" required maxlength="200" /></label>`}
    <label>Description <input name="description" required defaultValue=${first?.description} /></label>
    <label>Text (Markdown) <textarea name="body" rows="12" required defaultValue=${first?.body}></textarea></label>
    ${note && note.version !== base && html`<p role="status"><strong>It changed while you wrote</strong>: version ${note.version} stands above.</p>`}
    <p class="acts"><button class="first">Save</button>${note && html`<button type="button" class="quiet" onClick=${onDone}>Cancel</button>`}</p>
    ${error && html`<${Failure} error=${error} />`}</div></form>`;
}

function Version({ version, before }) {
  const [open, setOpen] = useState(false);
  return html`<details class="body" onToggle=${(event) => setOpen(event.target.open)}>
    <summary>Version ${version.version}: ${version.action} <span class="origin">by ${version.by}, <${Time} at=${version.at} /></span></summary>
    ${version.reason && html`<p><${Text} text=${version.reason} /></p>`}
    ${open && html`<${Difference} old=${before?.body ?? ""} now=${version.body} />`}
  </details>`;
}

function Difference({ old, now }) {
  const parts = globalThis.Diff.diffLines(old, now, { timeout: MOST_MS });
  if (!parts) return html`<pre><${Text} text=${now} cut=${20_000} /></pre>`;
  return html`<pre class="diff">${parts.map((part) => {
    const [mark, kind] = part.added ? ["+", "added"] : part.removed ? ["−", "gone"] : [" ", ""];
    const lines = part.value.replace(/\n$/, "").split("\n").map((line) => `${mark} ${line}\n`);
    return html`<span class=${kind}>${lines.join("")}</span>`;
  })}</pre>`;
}
