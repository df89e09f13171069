// What a name is tied to, in columns: the name, its neighbours, those of the opened one; no physics.

import { get } from "../api.js";
import { address, Empty, html, number, plural, Text, Time, To, useContext, useLoad, useMedia, World } from "../parts.js";

const MOST_NEIGHBOURS = 8;
const STEP = 55;
const WIDTH = 608;
const BOX = 30;

export function Columns({ found, params }) {
  const { repo } = useContext(World);
  const isWide = useMedia("(min-width: 900px)");
  const most = Number(params.most || MOST_NEIGHBOURS);
  const opened = params.and ?? found.neighbours[0]?.[0];
  const next = useLoad(async (signal) => (opened ? get("/name", { repo, name: opened }, signal) : null), [repo, opened]);
  const go = (name, and, more) => address("people", { repo, name, as: "graph", and, most: more });
  if (!found.neighbours.length) return html`<section class="card"><${Empty}>No other name stands in a fact with it${found.total ? "" : ": no fact names it"}.<//></section>`;
  const first = found.neighbours.slice(0, most);
  const beyond = (next.value?.neighbours ?? []).filter(([name]) => name !== found.name);
  const both = found.facts.filter((fact) => fact.names.includes(opened)).toReversed();
  const count = found.neighbours.find(([name]) => name === opened)?.[1] ?? both.length;
  const pressed = (event) => {
    const at = first.findIndex(([name]) => name === opened);
    const to = { ArrowDown: first[at + 1], ArrowUp: first[at - 1] }[event.key];
    if (to) location.hash = go(found.name, to[0]);
    else if (event.key === "ArrowRight") location.hash = go(opened);
    else if (event.key === "ArrowLeft") history.back();
    else return;
    event.preventDefault();
  };
  const more = found.neighbours.length - first.length;
  return html`<div class="sides wide">
    <section class="card" aria-label="What it is tied to">
      <header><span>${found.name} ▸ <strong>${opened}</strong></span>${isWide && html`<span class="origin">numbers: facts that name both <kbd>→</kbd> open <kbd>←</kbd> close</span>`}</header>
      ${isWide
        ? html`<div class="body" tabindex="0" role="group" aria-label="Columns; arrows choose, open and close" onKeyDown=${pressed}><${Drawing} ...${{ found, first, opened, more, beyond, go }} /></div>`
        : html`<ul class="rows">${first.map(([name, both_]) => html`<li key=${name}><a class="row ${name === opened ? "chosen" : ""}" aria-current=${name === opened ? "true" : undefined} href=${go(found.name, name)}><span>${name}</span>
            <span class="state"><svg width="90" height="8" aria-hidden="true"><rect class="accent" width=${Math.max(4, (86 * both_) / found.neighbours[0][1])} height="6" y="1" rx="1" /></svg><span class="num tally">${both_}</span></span></a></li>`)}</ul>`}
      ${!isWide && more > 0 && html`<a class="row" href=${go(found.name, opened, most + 20)}>+ ${number(more)} more</a>`}
    </section>
    <section class="card" aria-labelledby="both"><header><h2 id="both">${found.name} and ${opened} <span class="origin">${plural(count, "fact")} ${count === 1 ? "names" : "name"} both</span></h2></header>
      <ul class="rows">${both.slice(0, 100).map((fact) => html`<li key=${fact.id}><${To} view="memories" params=${{ id: fact.id }} class="row dated"><span class="origin"><${Time} at=${fact.at} day /></span><span><${Text} text=${fact.text} cut=${400} /></span><//></li>`)}</ul></section>
  </div>`;
}

/** The picture: the same at each visit. The lists beside and the links in it say the same to a reader. */
function Drawing({ found, first, opened, more, beyond, go }) {
  const second = beyond.slice(0, MOST_NEIGHBOURS);
  const rest = beyond.length - second.length;
  const rows = Math.max(first.length + (more > 0 ? 1 : 0), second.length + (rest > 0 ? 1 : 0), 3);
  const height = rows * STEP + 10;
  const y = (index) => 12 + index * STEP;
  const middle = height / 2 - BOX / 2;
  const chosen = first.findIndex(([name]) => name === opened);
  const width = (count) => Math.max(1, Math.min(6, Math.sqrt(count) * 1.3));
  const curve = (x1, y1, x2, y2) => `M${x1} ${y1 + BOX / 2}C${x1 + 40} ${y1 + BOX / 2} ${x2 - 40} ${y2 + BOX / 2} ${x2} ${y2 + BOX / 2}`;
  return html`<svg class="columns" viewBox=${`0 0 ${WIDTH} ${height}`} width="100%" role="group" aria-label=${`${found.name} is tied to ${first.map(([name, count]) => `${name} (${count})`).join(", ")}`}>
    ${first.map(([name, count], index) => html`<path key=${`a ${name}`} class=${name === opened ? "tie on" : "tie"} d=${curve(124, middle, 200, y(index))} stroke-width=${width(count)} />`)}
    ${more > 0 && html`<path class="tie" d=${curve(124, middle, 200, y(first.length))} stroke-width="1" />`}
    ${chosen >= 0 && second.map(([name, count], index) => html`<path key=${`b ${name}`} class="tie" d=${curve(354, y(chosen), 440, y(index))} stroke-width=${width(count)} />`)}
    <${Box} x=${2} y=${middle} width=${122} name=${found.name} count=${found.total} kind="root" href=${go(found.name)} />
    ${first.map(([name, count], index) => html`<${Box} key=${name} x=${200} y=${y(index)} width=${154} ...${{ name, count }} kind=${name === opened ? "on" : ""} href=${go(found.name, name)} />`)}
    ${more > 0 && html`<${Box} x=${200} y=${y(first.length)} width=${154} name=${`+ ${more} more`} kind="rest" href=${go(found.name, opened, first.length + 20)} />`}
    ${second.map(([name, count], index) => html`<${Box} key=${name} x=${440} y=${y(index)} width=${154} ...${{ name, count }} href=${go(opened, name)} />`)}
    ${rest > 0 && html`<${Box} x=${440} y=${y(second.length)} width=${154} name=${`+ ${rest} more`} kind="rest" href=${go(opened)} />`}
  </svg>`;
}

function Box({ x, y, width, name, count, kind, href }) {
  const most = Math.floor((width - 50) / 6.6);
  const inside = html`<rect x=${x} y=${y} width=${width} height=${BOX} rx="5" /><text x=${x + 10} y=${y + 19}>${name.length > most ? `${name.slice(0, most - 1)}…` : name}</text>
    ${count != null && html`<text class="tally" x=${x + width - 10} y=${y + 19} text-anchor="end">${count}</text>`}`;
  return href ? html`<a class="box ${kind}" href=${href} aria-label=${count == null ? name : `${name}, ${plural(count, "fact")}`}>${inside}</a>` : html`<g class="box ${kind}">${inside}</g>`;
}
