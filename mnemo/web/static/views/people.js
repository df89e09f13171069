// People & things: what holds now of a name, what before, since when; and what it is tied to.

import { get } from "../api.js";
import { address, dayOf, Empty, html, Icon, Loaded, NoFacts, number, plural, Search, short, Sources, State, Text, Time, Title, To, useContext, useEffect, useLoad, useRef, useState, World } from "../parts.js";
import { Columns } from "./columns.js";

const LISTED = 60;
const LANES = 12;
const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

export function People({ params }) {
  const { repo, tick } = useContext(World);
  const state = useLoad((signal) => get("/names", { repo }, signal), [repo], tick);
  const names = state.value?.names ?? [];
  const name = params.name ?? names[0]?.name;
  if (!state.value) return html`<${Title} text="People & things" /><${Loaded} state=${state} />`;
  if (!name) return html`<${Title} text="People & things" /><section class="card"><${Empty}>${told(state.value)}<//></section>`;
  return html`<${One} key=${name} ...${{ name, names, params }} isAsked=${params.name !== undefined} about=${state.value} />`;
}

/** Why there are no names. */
function told({ facts, tags }) {
  if (!facts) return html`<${NoFacts} />`;
  return html`<strong>No names:</strong> ${plural(facts, "fact")} ${facts === 1 ? "has" : "have"} ${tags ? "no tag that two of them share" : "no tags"} and no speaker, so there is nothing to tie together. <${To} view="memories">All memories<//>`;
}

function One({ name, names, params, isAsked, about }) {
  const { repo, tick } = useContext(World);
  const isGraph = params.as === "graph";
  const state = useLoad((signal) => get("/name", { repo, name }, signal), [repo, name], tick);
  const known = names.find((one) => one.name === name);
  const times = (state.value?.facts ?? []).map((fact) => fact.at).filter(Boolean);
  const ends = times.length ? `${dayOf(times.at(-1))} to ${dayOf(times[0])}` : "";
  const kind = (known?.kind ?? state.value?.kind) === "speaker" ? "speaker · " : "";
  const count = known ? `${plural(known.facts, "fact")} now${known.before ? `, ${known.before} before` : ""}` : state.value ? `in ${plural(state.value.total, "fact")}` : "";
  const go = (as) => address("people", { repo, name, as });
  return html`
    <${Title} text=${name}><span class="soft">${kind}${count}${ends && ` · ${ends}`}</span>
      <div class="chips">${isGraph && html`<${Begin} names=${names} />`}<nav class="switch" aria-label="Picture"><a class="button" href=${go()} aria-current=${isGraph ? undefined : "page"}>Facts</a><a class="button" href=${go("graph")} aria-current=${isGraph ? "page" : undefined}>Graph</a></nav></div><//>
    ${isGraph && !about.names.length ? html`<section class="card"><${Empty}>${told(about)}<//></section>` : ""}
    <${Loaded} state=${state}>${(found) => (isGraph
      ? html`<${Columns} ...${{ found, params }} />`
      : html`<div class="people ${isAsked ? "open" : ""}"><${Names} ...${{ names, name }} /><div><a class="back" href=${address("people", { repo })}>‹ All names</a><${Facts} found=${found} /></div></div>`)}<//>`;
}

/** A field that begins the graph at another name. */
function Begin({ names }) {
  const { repo } = useContext(World);
  const begin = (event) => names.some((one) => one.name === event.target.value) && (location.hash = address("people", { repo, name: event.target.value, as: "graph" }));
  return html`<${Search} label="Begin at a name" list="names" onChange=${begin} /><datalist id="names">${names.map((one) => html`<option key=${one.name} value=${one.name} />`)}</datalist>`;
}

function Names({ names, name }) {
  const [words, setWords] = useState("");
  const [most, setMost] = useState(LISTED);
  const found = names.filter((one) => one.name.toLowerCase().includes(words.toLowerCase()));
  const group = (kind) => found.filter((one) => one.kind === kind).slice(0, most);
  const item = (one) => html`<li key=${one.name}><${To} view="people" params=${{ name: one.name }} class="row ${one.name === name ? "chosen" : ""}" aria-current=${one.name === name ? "true" : undefined}><span>${short(one.name, 60)}</span><span class="soft">${number(one.facts + one.before)}</span><//></li>`;
  return html`<section class="card names" aria-label="List">
    <header><${Search} label="Find a name" value=${words} onInput=${setWords} /></header>
    <ul>${group("speaker").map(item)}</ul>
    ${group("tag").length > 0 && html`<h3 class="origin group">In two facts or more</h3><ul>${group("tag").map(item)}</ul>`}
    ${!found.length && html`<${Empty}>No name has these letters.<//>`}
    ${found.length > most && html`<div class="more"><button class="plain" onClick=${() => setMost(most + LISTED)}>Load more</button></div>`}
  </section>`;
}

function Facts({ found }) {
  const [chosen, setChosen] = useState(null);
  const [lane, setLane] = useState([]);
  const [most, setMost] = useState(LISTED);
  const isPast = (fact) => fact.valid_to || fact.superseded_by;
  const now = found.facts.filter((fact) => !isPast(fact));
  const before = found.facts.filter(isPast);
  const changes = before.filter((fact) => fact.valid_to);
  if (!found.total) return html`<section class="card"><${Empty}>No fact names it.<//></section>`;
  return html`
    ${changes.length > 0 && html`<${Changed} ...${{ changes, found }} onLane=${setLane} lane=${lane} />`}
    <div class=${before.length ? "two" : ""}>
      <section class="card" aria-labelledby="now"><header><h2 id="now">Now <span class="origin">${number(now.length)}</span></h2></header>
        <ul class="rows">${now.slice(0, most).map((fact) => html`<li key=${fact.id} class=${fact.id === chosen || lane.includes(fact.id) ? "chosen" : ""}>
          <button class="row dated plain" aria-expanded=${fact.id === chosen ? "true" : "false"} onClick=${() => setChosen(fact.id === chosen ? null : fact.id)}><span class="origin"><${Time} at=${fact.at} day /></span><span class="text">${short(fact.text, 400)}</span></button>
          ${fact.id === chosen && html`<${Said} fact=${fact} />`}</li>`)}</ul>
        ${now.length > most && html`<div class="more"><button class="plain" onClick=${() => setMost(most + LISTED)}>Load more</button><span class="origin">newest ${most} of ${number(now.length)}</span></div>`}
        ${found.total > found.facts.length && html`<div class="more origin">the latest ${number(found.facts.length)} of ${number(found.total)} facts</div>`}
      </section>
      ${before.length > 0 && html`<section class="card" aria-labelledby="before"><header><h2 id="before">Before <span class="origin">${number(before.length)}</span></h2></header>
        <ul class="rows">${before.slice(0, most).map((fact) => html`<li key=${fact.id} class=${lane.includes(fact.id) ? "chosen" : ""}><${To} view="memories" params=${{ id: fact.id, replaced: 1 }} class="row dated"><span class="origin">${fact.valid_to && html`to <${Time} at=${fact.valid_to} day />`}</span>
          <span><span class="soft text">${short(fact.text, 300)}</span>${fact.newer && html`<br /><span class="small"><span class="running"><${Icon} name="to" /></span> ${short(fact.newer, 120)}</span>`}</span><//></li>`)}</ul></section>`}
    </div>`;
}

/** The words that a fact comes from, quoted only where they differ, and the ways on. */
function Said({ fact }) {
  const { repo } = useContext(World);
  const state = useLoad((signal) => get("/memory", { repo, id: fact.id }, signal), [fact.id]);
  return html`<div class="under said"><${Loaded} state=${state}>${(memory) => {
    const [source] = memory.sources;
    const isSame = source && source.text.trim() === memory.text.trim();
    return html`${source && !isSame ? html`<${Sources} sources=${memory.sources.slice(0, 2)} />` : html`<p class="origin">${source ? html`in these words by ${source.actor ?? "someone"}, <${Time} at=${source.at} />` : "no source is kept"}</p>
      ${source?.thread_id && html`<${To} view="threads" params=${{ thread: source.thread_id, message: source.message_id }}>Read around it<//> `}`}
      <${To} view="memories" params=${{ id: fact.id }}>Open memory<//>`;
  }}<//></div>`;
}

/** The rarest word that two facts share, or the first words of the older. */
function laneName(old, found) {
  const heir = found.facts.find((fact) => fact.id === old.superseded_by);
  const rarity = new Map(found.neighbours);
  const both = old.names.filter((name) => name !== found.name && (!heir || heir.names.includes(name)));
  return both.toSorted((a, b) => (rarity.get(a) ?? 0) - (rarity.get(b) ?? 0))[0] ?? short(old.text, 16);
}

/** What held when: grey until it was replaced, a dot where, and what holds now in a column of its own. */
function Changed({ changes, found, lane, onLane }) {
  const ended = (fact) => Date.parse(fact.valid_to);
  const shown = changes.toSorted((a, b) => ended(b) - ended(a)).slice(0, LANES);
  const began = (fact) => Date.parse(fact.at ?? fact.valid_to);
  const first = Math.min(...shown.map(began));
  const last = Math.max(...shown.map(ended));
  const x = (time) => `${(62 * (time - first)) / Math.max(1, last - first)}%`;
  const marks = [];
  for (let at = new Date(first); at <= last && marks.length < 40; at = new Date(at.getFullYear(), at.getMonth() + 1, 1)) marks.push(at);
  const step = Math.ceil(marks.length / 5);
  return html`<section class="card lanes" aria-labelledby="changed"><header><h2 id="changed">What changed</h2><span class="origin">grey held before, the dot replaced it</span></header>
    <div class="body"><div class="lane origin" aria-hidden="true"><span></span><span class="track">${marks.filter((_, index) => index % step === 0).map((at) => html`<span class="month" style=${{ left: x(+at) }}>${MONTHS[at.getMonth()]}${at === marks[0] || !at.getMonth() ? ` ${at.getFullYear()}` : ""}</span>`)}<span class="month" style=${{ left: "66%" }}>holds now</span></span></div>
    <ul>${shown.map((old) => {
      const isOn = lane.includes(old.id);
      return html`<li key=${old.id}><button class="lane plain ${isOn ? "chosen" : ""}" aria-pressed=${isOn ? "true" : "false"} onClick=${() => onLane(isOn ? [] : [old.id, old.superseded_by])}>
        <span class="cut-line">${laneName(old, found)}</span><span class="track"><span class="past" style=${{ left: x(began(old)), width: `calc(${x(ended(old))} - ${x(began(old))})` }}>${short(old.text, 80)}</span>
          <span class="line" style=${{ left: x(ended(old)), width: `calc(65.5% - ${x(ended(old))})` }}></span><span class="dot" style=${{ left: x(ended(old)) }}></span>
          <span class="present">${old.newer ? short(old.newer, 120) : html`ended <${Time} at=${old.valid_to} day />`}</span></span></button></li>`;
    })}</ul></div></section>`;
}
