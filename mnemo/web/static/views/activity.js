// Activity: what happens in the repository, newest first; filterable, pausable.

import { Empty, html, MOST_EVENTS, number, plural, Search, Text, Time, Title, useContext, useState, World } from "../parts.js";

const PAGE = 100;

export function Activity() {
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
    <${Title} text="Activity"><span class="origin" role="status">${plural(shown.length, "event")}${kept.length < MOST_EVENTS ? "" : `, the last ${MOST_EVENTS}`} since the page was opened${held ? `; paused, ${missed} more since` : ""}</span><//>
    <section class="card" aria-label="Events">
      <header><${Search} label="Words" value=${words} onInput=${setWords} />
        <button onClick=${() => setHeld(held ? null : events)} aria-pressed=${held ? "true" : "false"}>${held ? "Go on" : "Pause"}</button></header>
      ${!shown.length && html`<${Empty}>${live ? (wanted.length && kept.length ? "Nothing matches." : "Nothing has happened since the page was opened.") : "The stream is not connected."}<//>`}
      <ol class="rows events">${shown.slice(0, most).map((event) => html`<li key=${event.number}><${Happened} event=${event} /></li>`)}</ol>
      ${shown.length > most && html`<div class="more"><button class="plain" onClick=${() => setMost(most + PAGE)}>Show earlier ones</button></div>`}
    </section>
  `;
}

/** An event on one line, which opens to all of it. */
function Happened({ event: { at, name, data } }) {
  const [open, setOpen] = useState(false);
  const kind = data.error || data.to_state === "failed" ? "failed" : "";
  return html`<details class="body" onToggle=${(event) => setOpen(event.target.open)}>
    <summary><span class="origin"><${Time} at=${at} seconds /></span> <span class=${kind}>${name}</span> <span class="origin">${brief(data)}</span></summary>
    ${open && html`<pre><${Text} text=${JSON.stringify(data, null, 1)} cut=${4_000} /></pre>`}
  </details>`;
}

const shownNumber = (value) => (Number.isInteger(value) ? number(value) : Number(value.toPrecision(3)));

/** The facts of an event on one line; of lists the length, of objects nothing. */
const brief = (data) =>
  Object.entries(data)
    .filter(([name, value]) => !["at", "repo_id", "cursor"].includes(name) && value !== null && value !== "" && value !== false && !(typeof value === "object" && !value.length))
    .map(([name, value]) => `${name.replaceAll("_", " ")}: ${Array.isArray(value) ? value.length : typeof value === "number" ? shownNumber(value) : String(value).slice(0, 80)}`)
    .join(", ");
