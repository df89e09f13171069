// Graph: communities, then what is known and what it is about, at most 400 marks at once.

import cytoscape from "../vendor/cytoscape.js";
import { get } from "../api.js";
import { address, Empty, html, KINDS, Loaded, plural, Text, Time, To, useContext, useEffect, useLayoutEffect, useLoad, useRef, useState, World } from "../parts.js";

const MOST_MARKS = 400;
const MOST_LISTED = 40;
/** Height of a label on the screen, of that of the page's text. */
const LABEL_SIZE = 0.78;
/** Labels are chosen anew when zooming has paused for so long. */
const NAMED_AFTER_MS = 100;
const SHAPES = { semantic: "ellipse", procedural: "round-rectangle", tag: "diamond", intent: "triangle", community: "ellipse" };
const SIGNS = { semantic: "●", procedural: "■", tag: "◆", intent: "▲", community: "⬤" };
const NAMES = { ...KINDS, tag: "tag: what it is about", intent: "intent of instructions", community: "community: what is tied to each other" };
/** What a line says of the marks at its two ends. */
const LINES = { membership: "a tag and its fact", sibling: "facts that were said together", hierarchical: "an intent and its instruction" };
/** Of the largest communities; the others share the last. */
const COLOURS = ["#4878d0", "#d1652a", "#3f9b5c", "#c44e76", "#8a6fc4", "#a8782d", "#2f94a8", "#8b9099"];

export function Graph({ params }) {
  const { repo } = useContext(World);
  const [turn, setTurn] = useState(0);
  const { community, around } = params;
  const state = useLoad(
    async (signal) => ({ community, around, turn, ...(await get("/graph", { repo, limit: MOST_MARKS, community, around }, signal)) }),
    [repo, community, around, turn],
  );
  return html`<${Loaded} state=${state}>
    ${(picture) => (picture.nodes.length
      ? html`<${Picture} key=${`${picture.community} ${picture.around} ${picture.turn}`} picture=${opened(picture)} onAgain=${() => setTurn(turn + 1)} />`
      : html`<${Empty}>No facts, instructions or tags yet: they come with extraction.<//>`)}
  <//>`;
}

/** A graph that is too large to be drawn at once opens on its communities as marks. */
function opened(picture) {
  const { total, community, around, communities, links } = picture;
  if (total <= MOST_MARKS || community !== undefined || around !== undefined) return picture;
  const nodes = communities.map(({ number, label, nodes: degree }) => ({
    id: `community ${number}`, type: "community", text: label, community: number, degree,
  }));
  return { ...picture, nodes, edges: links.map(([a, b]) => [a, b, "link"]) };
}

function Picture({ picture, onAgain }) {
  const { repo } = useContext(World);
  const [chosen, setChosen] = useState(picture.around || null);
  const [at, setAt] = useState(null);
  const [words, setWords] = useState("");
  const mark = picture.nodes.find((node) => node.id === chosen);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const listed = picture.nodes.filter((node) => wanted.every((word) => node.text.toLowerCase().includes(word)));
  const choose = (id) => {
    const found = picture.nodes.find((node) => node.id === id);
    if (found.type === "community") location.hash = address("graph", { repo, community: found.community });
    else setChosen(id);
  };
  useLayoutEffect(() => scrollTo(0, 0), []); // what leads to another picture stands below
  const times = ends(picture.nodes);
  const isPart = picture.around !== undefined || picture.community !== undefined;
  const areCommunities = picture.nodes[0].type === "community";
  return html`
    <p>${areCommunities
      ? `${plural(picture.nodes.length, "community", "communities")} of ${picture.total.toLocaleString("en")} facts, instructions and tags: choose one to open it.`
      : `${picture.nodes.length === picture.total ? `All ${plural(picture.total, "mark")}` : `${plural(picture.nodes.length, "mark")} of ${picture.total.toLocaleString("en")}, the best connected`}${picture.around ? ", at most two edges from one" : ""}${picture.community ? ` of the community “${picture.communities[picture.community]?.label}”` : ""}.`}
      ${" "}${isPart && html`<${To} view="graph">The whole graph<//>`}
      ${" "}<button class="plain" onClick=${onAgain}>Draw it anew</button></p>
    <${Slider} ...${{ times, at }} onAt=${setAt} />
    <div class="split graph">
      <div>
        <${Canvas} ...${{ picture, chosen, at }} onChoose=${choose} />
        <${Legend} ...${{ picture, isTimed: times.length > 1 }} />
      </div>
      <section class="panel" aria-label="Marks">
        ${mark && html`<${Chosen} mark=${mark} isFirst=${chosen === picture.around} />`}
        <h2>${areCommunities ? "Largest communities" : "Best connected"}</h2>
        <label>Find among the marks <input type="search" value=${words} onInput=${(event) => setWords(event.target.value)} /></label>
        <ul class="marks">${listed.slice(0, MOST_LISTED).map((node) => html`<li key=${node.id}>
          <button class="plain" aria-pressed=${node.id === chosen ? "true" : "false"} onClick=${() => choose(node.id)}>
            <span aria-hidden="true" style=${{ color: colour(node.community) }}>${SIGNS[node.type]}</span> ${short(node.text, 80)}${areCommunities && ` (${node.degree.toLocaleString("en")})`}</button>
        </li>`)}</ul>
        ${!listed.length && html`<${Empty}>No mark has these words.<//>`}
      </section>
    </div>`;
}

const size = ({ degree }) => Math.min(70, 12 + 5 * Math.sqrt(degree));

const colour = (community) => COLOURS[Math.min(community, COLOURS.length - 1)];

/** Whether a mark held at a time, in milliseconds; null is now and before. */
function held(node, at) {
  if (at === null) return true;
  const from = node.valid_from && Date.parse(node.valid_from);
  const to = node.valid_to && Date.parse(node.valid_to);
  return (!from || from <= at) && (!to || to > at);
}

/** The first and the last time at which something began or ended to hold; none if that is one. */
function ends(nodes) {
  const times = nodes.flatMap((node) => [node.valid_from, node.valid_to]).filter(Boolean).map((time) => Date.parse(time));
  const found = [Math.min(...times), Math.max(...times)];
  return found[1] > found[0] ? found : [];
}

function Slider({ times: [first, last], at, onAt }) {
  if (first === undefined) return null;
  const shown = at === null ? html`any time` : html`<${Time} at=${new Date(at).toISOString()} day />`;
  return html`<div class="query">
    <label class="wide">What held when
      <input type="range" min=${first} max=${last} step=${(last - first) / 100} value=${at ?? last} aria-valuetext=${at === null ? "any time" : new Date(at).toDateString()} onInput=${(event) => onAt(Number(event.target.value))} /></label>
    <span>${shown}</span>
    ${at !== null && html`<button onClick=${() => onAt(null)}>Any time</button>`}
  </div>`;
}

function Canvas({ picture, chosen, at, onChoose }) {
  const box = useRef(null);
  const graph = useRef(null);
  const [placed, setPlaced] = useState(false);
  useEffect(() => {
    const worker = new Worker("layout-worker.js", { type: "module" });
    worker.onmessage = ({ data: positions }) => {
      graph.current = drawn(box.current, picture, positions);
      graph.current.on("tap", "node", (event) => onChoose(event.target.id()));
      setPlaced(true);
    };
    const ids = picture.nodes.map((node) => node.id);
    const ratio = box.current.clientWidth / box.current.clientHeight;
    worker.postMessage({ nodes: ids, sizes: picture.nodes.map(size), edges: picture.edges.map(([a, b]) => [ids[a], ids[b]]), ratio });
    return () => (worker.terminate(), graph.current?.destroy());
  }, []);
  useEffect(() => {
    if (!placed) return;
    const cy = graph.current;
    cy.batch(() => {
      for (const node of picture.nodes) cy.getElementById(node.id).toggleClass("away", !held(node, at));
    });
  }, [placed, at]);
  useEffect(() => {
    if (!placed || !chosen) return undefined;
    const mark = graph.current.getElementById(chosen);
    const near = mark.connectedEdges();
    mark.addClass("chosen");
    near.addClass("near");
    return () => graph.current.batch(() => (mark.removeClass("chosen"), near.removeClass("near")));
  }, [placed, chosen]);
  return html`<div class="canvas" role="img" aria-label="Drawing of the graph; the list beside it has its marks">
    <div ref=${box} class="fills"></div>
    ${!placed && html`<p class="quiet over" role="status">Placing the marks …</p>`}
  </div>`;
}

/** The beginning of a text on one line. */
function short(text, most = 28) {
  const line = text.replace(/\s+/g, " ");
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** The value of a colour of the style sheet in the present scheme. */
function ink(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function drawn(container, picture, positions) {
  const nodes = picture.nodes.map((node) => ({
    data: {
      id: node.id,
      label: short(node.text),
      shape: SHAPES[node.type],
      colour: colour(node.community),
      size: size(node),
      edge: node.superseded_by || node.valid_to ? "dashed" : "solid",
      fill: node.superseded_by || node.valid_to ? 0.15 : 1,
    },
    position: positions[node.id],
  }));
  const edges = picture.edges.map(([a, b], number) => ({
    data: { id: `edge ${number}`, source: picture.nodes[a].id, target: picture.nodes[b].id },
  }));
  const cy = cytoscape({
    container,
    elements: { nodes, edges },
    layout: { name: "preset", padding: 20 },
    minZoom: 0.05,
    maxZoom: 4,
    style: [
      { selector: "node", style: { shape: "data(shape)", width: "data(size)", height: "data(size)", "background-color": "data(colour)", "background-opacity": "data(fill)", "border-width": 2, "border-style": "data(edge)", "border-color": "data(colour)" } },
      { selector: "node.named, node.chosen", style: { label: "data(label)", color: ink("ink"), "text-outline-color": ink("card"), "text-valign": "bottom" } },
      { selector: "edge", style: { width: 1, "line-color": ink("soft"), "line-opacity": 0.4, "curve-style": "haystack" } },
      { selector: "edge.near", style: { width: 2.5, "line-color": ink("accent"), "line-opacity": 1 } },
      { selector: "node.chosen", style: { "border-width": 5, "border-color": ink("accent"), "border-style": "solid" } },
      { selector: ".away", style: { opacity: 0.12 } },
    ],
  });
  cy.fit(undefined, 20);
  name(cy, picture);
  cy.fit(undefined, 20);
  let timer = null;
  cy.on("zoom", () => (clearTimeout(timer), (timer = setTimeout(() => name(cy, picture), NAMED_AFTER_MS))));
  cy.on("destroy", () => clearTimeout(timer));
  return cy;
}

const covers = (a, b) => a.x1 < b.x2 && b.x1 < a.x2 && a.y1 < b.y2 && b.y1 < a.y2;

/** Label marks, the best connected first, where the label covers neither a label nor a mark. */
function name(cy, picture) {
  const pixel = 1 / cy.zoom();
  const height = LABEL_SIZE * parseFloat(getComputedStyle(document.documentElement).fontSize);
  cy.nodes().style({ "font-size": height * pixel, "text-outline-width": 2 * pixel, "text-margin-y": 3 * pixel });
  const marks = picture.nodes.map(({ id }) => cy.getElementById(id).addClass("named"));
  const bodies = marks.map((mark) => mark.boundingBox({ includeLabels: false }));
  const taken = [];
  marks.forEach((mark, own) => {
    const box = mark.boundingBox({ includeNodes: false, includeEdges: false, includeLabels: true });
    const free = !taken.some((other) => covers(box, other)) && !bodies.some((body, n) => n !== own && covers(box, body));
    if (free) taken.push(box);
    else mark.removeClass("named");
  });
}

const lines = (edges) => [...new Set(edges.map(([, , kind]) => kind))].map((kind) => (LINES[kind] ? `${LINES[kind]} (${kind})` : kind)).join("; ");

function Legend({ picture, isTimed }) {
  const kinds = [...new Set(picture.nodes.map((node) => node.type))];
  const shown = picture.communities.slice(0, COLOURS.length - 1);
  return html`<div class="legend">
    <p>${kinds.map((kind) => html`<span key=${kind}><span aria-hidden="true">${SIGNS[kind]}</span> ${NAMES[kind] || kind}</span>`)}
      ${picture.edges.length > 0 && html`<span>— line: ${kinds.includes("community") ? "edges between two communities" : lines(picture.edges)}</span>`}
      <span>larger: ${kinds.includes("community") ? "more nodes" : "more edges"}</span>
      <span>hollow, dashed: replaced or ended</span> <span>thick border: chosen, with its edges</span> ${isTimed && html`<span>faint: did not hold at the time of the slider</span>`}</p>
    <p>Colour: community, marks that are tied to each other more than to others, named after the best connected, with their number: ${shown.map((one) => html`<${To} key=${one.number} view="graph" params=${{ community: one.number }}>
      <span aria-hidden="true" style=${{ color: colour(one.number) }}>●</span> ${short(one.label)} (${one.nodes})<//>`)}
      ${picture.communities.length > shown.length && html`<span><span aria-hidden="true" style=${{ color: COLOURS.at(-1) }}>●</span> all others</span>`}</p>
  </div>`;
}

function Chosen({ mark, isFirst }) {
  const heading = useRef(null);
  useEffect(() => void (isFirst || heading.current.focus()), [mark.id]);
  return html`<h2 tabindex="-1" ref=${heading}>Chosen</h2>
    <p class="lead"><${Text} text=${mark.text} /></p>
    <p class="quiet">${NAMES[mark.type] || mark.type}, ${plural(mark.degree, "edge")}${mark.valid_from && html`, since <${Time} at=${mark.valid_from} day />`}${mark.valid_to && html`, until <${Time} at=${mark.valid_to} day />`}</p>
    <p><${To} view="graph" params=${{ around: mark.id }}>Its neighbourhood<//>
      ${mark.type in KINDS && html` · <${To} view="memories" params=${{ id: mark.id }}>Its sources and history<//>`}</p>`;
}
