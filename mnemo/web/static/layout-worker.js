// Place the nodes of a graph, in a worker: the page stays answerable meanwhile. *ratio* is width to height.

import cytoscape from "./vendor/cytoscape.js";

onmessage = ({ data: { nodes, sizes, edges, ratio } }) => {
  const graph = cytoscape({
    headless: true,
    styleEnabled: true,
    style: [{ selector: "node", style: { width: "data(size)", height: "data(size)" } }],
    elements: {
      nodes: nodes.map((id, number) => ({ data: { id, size: sizes[number] } })),
      edges: edges.map(([source, target], number) => ({ data: { id: `edge ${number}`, source, target } })),
    },
  });
  const isTied = edges.length > 0; // nothing pulls marks without edges together
  const side = (isTied ? 90 : 130) * Math.sqrt((nodes.length + 1) / ratio);
  const layout = graph.layout({
    name: isTied ? "cose" : "grid",
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
