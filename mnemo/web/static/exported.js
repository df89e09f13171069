// The graph view on a page of its own, over a picture that is stored in the page.

import { render } from "./vendor/preact.js";
import { html, useAddress, World } from "./parts.js";
import { Graph } from "./views/graph.js";

const { repo, picture } = JSON.parse(document.getElementById("data").textContent);

/** The part of the picture that the service would have answered with. */
async function part({ community, around, limit }) {
  const { nodes, edges } = picture;
  let chosen = nodes.map((_, place) => place);
  if (community !== undefined) chosen = chosen.filter((place) => String(nodes[place].community) === community);
  if (around !== undefined) chosen = near(nodes.findIndex(({ id }) => id === around));
  const shown = new Map(chosen.slice(0, limit).map((place, number) => [place, number]));
  return {
    ...picture,
    nodes: [...shown.keys()].map((place) => nodes[place]),
    edges: edges.filter(([a, b]) => shown.has(a) && shown.has(b)).map(([a, b, kind]) => [shown.get(a), shown.get(b), kind]),
  };
}

/** The places of a node and of all that is at most two edges away. */
function near(place) {
  const found = new Set([place]);
  for (const _ of [1, 2]) {
    const inside = new Set(found);
    for (const [a, b] of picture.edges) {
      if (inside.has(a)) found.add(b);
      if (inside.has(b)) found.add(a);
    }
  }
  return [...found];
}

function App() {
  const { params } = useAddress(["graph"]);
  return html`<${World.Provider} value=${{ repo, exported: true }}>
    <main class="alone"><h1>Graph of ${repo}</h1>
      <p class="quiet">Revision ${picture.revision.toLocaleString("en")}: ${picture.nodes.length.toLocaleString("en")} of ${picture.total.toLocaleString("en")} nodes are in this file.</p>
      <${Graph} params=${params} load=${part} /></main>
  <//>`;
}

render(html`<${App} />`, document.getElementById("app"));
