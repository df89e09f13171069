// Place the nodes of a graph, in a worker: the page stays answerable meanwhile. *ratio* is width to height.

import cytoscape from "./vendor/cytoscape.js";

onmessage = ({ data: { nodes, edges, ratio } }) => {
  const graph = cytoscape({
    headless: true,
    styleEnabled: true,
    elements: {
      nodes: nodes.map((id) => ({ data: { id } })),
      edges: edges.map(([source, target], number) => ({ data: { id: `edge ${number}`, source, target } })),
    },
  });
  const side = 90 * Math.sqrt((nodes.length + 1) / ratio);
  const layout = graph.layout({
    name: "cose",
    animate: false,
    numIter: 300,
    fit: false,
    nodeRepulsion: () => 9_000,
    idealEdgeLength: () => 60,
    boundingBox: { x1: 0, y1: 0, w: ratio * side, h: side },
  });
  layout.one("layoutstop", () => {
    postMessage(Object.fromEntries(graph.nodes().map((node) => [node.id(), node.position()])));
    graph.destroy();
  });
  layout.run();
};
