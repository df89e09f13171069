// Graph: what is known and what it is about, clustered by community, at most 400 marks at once.

import cytoscape from "../vendor/cytoscape.js";
import { get } from "../api.js";
import { Empty, html, KINDS, Loaded, plural, Text, Time, To, useContext, useEffect, useLoad, useRef, useState, World } from "../parts.js";

const MOST_MARKS = 400;
const MOST_LISTED = 40;
const SHAPES = { semantic: "ellipse", procedural: "round-rectangle", tag: "diamond", intent: "triangle" };
const SIGNS = { semantic: "●", procedural: "■", tag: "◆", intent: "▲" };
const NAMES = { ...KINDS, tag: "tag: what it is about", intent: "intent of instructions" };
/** Of the largest communities; the others share the last. */
const COLOURS = ["#4878d0", "#d1652a", "#3f9b5c", "#c44e76", "#8a6fc4", "#a8782d", "#2f94a8", "#8b9099"];

export function Graph({ params }) {
  const { repo } = useContext(World);
  const [turn, setTurn] = useState(0);
  const { community, around } = params;
  const state = useLoad(
    (signal) => get("/graph", { repo, limit: MOST_MARKS, community, around }, signal),
    [repo, community, around, turn],
  );
  return html`<${Loaded} state=${state}>
    ${(picture) => (picture.nodes.length
      ? html`<${Picture} key=${`${community} ${around} ${picture.revision}`} ...${{ picture, params }} onAgain=${() => setTurn(turn + 1)} />`
      : html`<${Empty}>No facts, instructions or tags yet: they come with extraction.<//>`)}
  <//>`;
}

function Picture({ picture, params, onAgain }) {
  const [chosen, setChosen] = useState(params.around || null);
  const [at, setAt] = useState(null);
  const mark = picture.nodes.find((node) => node.id === chosen);
  return html`
    <p>${plural(picture.nodes.length, "mark")} of ${picture.total.toLocaleString("en")}, the best connected${params.around ? ", at most two edges from one" : ""}.
      ${" "}${(params.around || params.community) && html`<${To} view="graph">The whole graph<//>`}
      ${" "}<button class="plain" onClick=${onAgain}>Load it again</button></p>
    <${Slider} nodes=${picture.nodes} at=${at} onAt=${setAt} />
    <div class="split graph">
      <div>
        <${Canvas} ...${{ picture, chosen, at }} onChoose=${setChosen} />
        <${Legend} picture=${picture} />
      </div>
      <section class="panel" aria-label="Marks">
        ${mark && html`<${Chosen} mark=${mark} />`}
        <h2>Best connected</h2>
        <ul class="marks">${picture.nodes.slice(0, MOST_LISTED).map((node) => html`<li key=${node.id}>
          <button class="plain" aria-pressed=${node.id === chosen ? "true" : "false"} onClick=${() => setChosen(node.id)}>
            <span aria-hidden="true" style=${{ color: colour(node.community) }}>${SIGNS[node.type]}</span> ${node.text.slice(0, 80)}</button>
        </li>`)}</ul>
      </section>
    </div>`;
}

const colour = (community) => COLOURS[Math.min(community, COLOURS.length - 1)];

/** Whether a mark held at a time, in milliseconds; null is now and before. */
function held(node, at) {
  if (at === null) return true;
  const from = node.valid_from && Date.parse(node.valid_from);
  const to = node.valid_to && Date.parse(node.valid_to);
  return (!from || from <= at) && (!to || to > at);
}

function Slider({ nodes, at, onAt }) {
  const times = nodes.flatMap((node) => [node.valid_from, node.valid_to]).filter(Boolean).map((time) => Date.parse(time));
  const first = Math.min(...times);
  const last = Math.max(...times);
  if (!(last > first)) return null;
  const shown = at === null ? html`any time` : html`<${Time} at=${new Date(at).toISOString()} day />`;
  return html`<div class="query">
    <label class="wide">What held when
      <input type="range" min=${first} max=${last} step=${(last - first) / 100} value=${at ?? last} aria-valuetext=${at === null ? "any time" : new Date(at).toDateString()} onInput=${(event) => onAt(Number(event.target.value))} /></label>
    <span>${shown}</span>
    <button disabled=${at === null} onClick=${() => onAt(null)}>Any time</button>
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
    worker.postMessage({ nodes: ids, edges: picture.edges.map(([a, b]) => [ids[a], ids[b]]) });
    return () => (worker.terminate(), graph.current?.destroy());
  }, []);
  useEffect(() => {
    if (!placed) return;
    const cy = graph.current;
    cy.batch(() => {
      cy.elements().removeClass("chosen near away");
      for (const node of picture.nodes) if (!held(node, at)) cy.getElementById(node.id).addClass("away");
      if (chosen) cy.getElementById(chosen).addClass("chosen").closedNeighborhood().addClass("near");
    });
  }, [placed, chosen, at]);
  return html`<div class="canvas" role="img" aria-label="Drawing of the graph; the list beside it has its marks">
    <div ref=${box} class="fills"></div>
    ${!placed && html`<p class="quiet over" role="status">Placing the marks …</p>`}
  </div>`;
}

/** The beginning of a text on one line. */
function short(text) {
  const line = text.replace(/\s+/g, " ");
  return line.length > 28 ? `${line.slice(0, 27)}…` : line;
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
      size: 12 + 5 * Math.sqrt(node.degree),
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
      { selector: "node.named, node.chosen", style: { label: "data(label)", color: ink("ink"), "font-size": 13, "text-outline-color": ink("card"), "text-outline-width": 2, "text-valign": "bottom", "text-margin-y": 3 } },
      { selector: "edge", style: { width: 1, "line-color": ink("line"), "curve-style": "haystack" } },
      { selector: "edge.near", style: { width: 2.5, "line-color": ink("accent") } },
      { selector: "node.chosen", style: { "border-width": 5, "border-color": ink("accent"), "border-style": "solid" } },
      { selector: ".away", style: { opacity: 0.12 } },
    ],
  });
  name(cy, picture);
  cy.fit(undefined, 20);
  return cy;
}

/** Label marks, the best connected first, where the label covers no other. */
function name(cy, picture) {
  const taken = [];
  for (const { id } of picture.nodes) {
    const node = cy.getElementById(id).addClass("named");
    const box = node.boundingBox({ includeNodes: false, includeEdges: false, includeLabels: true });
    const covers = taken.some((other) => box.x1 < other.x2 && other.x1 < box.x2 && box.y1 < other.y2 && other.y1 < box.y2);
    if (covers) node.removeClass("named");
    else taken.push(box);
  }
}

function Legend({ picture }) {
  const kinds = [...new Set(picture.nodes.map((node) => node.type))];
  const shown = picture.communities.slice(0, COLOURS.length - 1);
  return html`<div class="legend">
    <p>${kinds.map((kind) => html`<span key=${kind}><span aria-hidden="true">${SIGNS[kind]}</span> ${NAMES[kind] || kind}</span>`)}
      <span>hollow, dashed: replaced or ended</span> <span>larger: more edges</span></p>
    <p>Colour, by community: ${shown.map((one) => html`<${To} key=${one.number} view="graph" params=${{ community: one.number }}>
      <span aria-hidden="true" style=${{ color: colour(one.number) }}>●</span> ${one.label.slice(0, 30)} (${one.nodes})<//>`)}
      ${picture.communities.length > shown.length && html`<span><span aria-hidden="true" style=${{ color: COLOURS.at(-1) }}>●</span> all others</span>`}</p>
  </div>`;
}

function Chosen({ mark }) {
  return html`<h2>Chosen</h2>
    <p class="lead"><${Text} text=${mark.text} /></p>
    <p class="quiet">${NAMES[mark.type] || mark.type}, ${plural(mark.degree, "edge")}${mark.valid_from && html`, since <${Time} at=${mark.valid_from} day />`}${mark.valid_to && html`, until <${Time} at=${mark.valid_to} day />`}</p>
    <p><${To} view="graph" params=${{ around: mark.id }}>Its neighbourhood<//>
      ${mark.type in KINDS && html` · <${To} view="memories" params=${{ id: mark.id }}>Its sources and history<//>`}</p>`;
}
