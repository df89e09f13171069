// Events: what happens in the repository, newest first; filterable, pausable.

import { Badge, Empty, html, plural, Text, Time, useContext, useState, World } from "../parts.js";

const PAGE = 100;

export function Events() {
  const { events, live } = useContext(World);
  const [held, setHeld] = useState(null);
  const [words, setWords] = useState("");
  const [most, setMost] = useState(PAGE);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (event) => {
    const text = `${event.name} ${JSON.stringify(event.data)}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  };
  const kept = held ?? events;
  const shown = wanted.length ? kept.filter(has) : kept;
  const missed = held ? (events[0]?.number ?? 0) - (held[0]?.number ?? 0) : 0;
  return html`
    <div class="query">
      <label>Words <input type="search" value=${words} onInput=${(event) => setWords(event.target.value)} placeholder="such as Committed" /></label>
      <button onClick=${() => setHeld(held ? null : events)} aria-pressed=${held ? "true" : "false"}>${held ? "Go on" : "Pause"}</button>
    </div>
    <p class="quiet" role="status">${plural(shown.length, "event")}${held ? `, paused; ${missed} more since` : ""}. The page keeps the last 500 since it was opened.</p>
    ${!shown.length && html`<${Empty}>${live ? "Nothing has happened since the page was opened, or nothing matches." : "The stream is not connected."}<//>`}
    <ol class="events">
      ${shown.slice(0, most).map((event) => html`<li key=${event.number}><${Happened} event=${event} /></li>`)}
    </ol>
    ${shown.length > most && html`<button onClick=${() => setMost(most + PAGE)}>Show earlier ones</button>`}
  `;
}

/** An event on one line, which opens to all of it. */
function Happened({ event: { at, name, data } }) {
  const [open, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.target.open)}>
    <summary><${Time} at=${at} seconds /> <${Badge}>${name}<//> <span class="quiet">${brief(data)}</span></summary>
    ${open && html`<pre><${Text} text=${JSON.stringify(data, null, 1)} cut=${4_000} /></pre>`}
  </details>`;
}

const number = (value) => (Number.isInteger(value) ? value : Number(value.toPrecision(3)));

/** The facts of an event on one line; of lists the length, of objects nothing. */
const brief = (data) =>
  Object.entries(data)
    .filter(([name, value]) => !["at", "repo_id", "cursor"].includes(name) && value !== null && value !== "" && value !== false && !(typeof value === "object" && !value.length))
    .map(([name, value]) => `${name.replaceAll("_", " ")}: ${Array.isArray(value) ? value.length : typeof value === "number" ? number(value) : String(value).slice(0, 80)}`)
    .join(", ");
