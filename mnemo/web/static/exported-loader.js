// Start the modules of an exported page: each becomes a blob, by whose address the later ones import it.

const { modules } = JSON.parse(document.getElementById("data").textContent);
const sources = Object.fromEntries(modules);
const urls = {};

/** A worker of a page that is a file may be no module: what it imports is put into it. */
const whole = (source) =>
  source.replace(/^import (\w+) from "[./\w-]*?([\w-]+\.js)";$/gm, (_, name, file) =>
    sources[file].replace(/export\{(\w+) as default\};?\s*$/, (_, own) => `const ${name} = ${own};`));

const linked = (source) =>
  source.replace(/"[./\w-]*?([\w-]+\.js)"/g, (path, file) => (file in urls ? `"${urls[file]}"` : path));

for (const [name, source] of modules) {
  const text = name.endsWith("worker.js") ? whole(source) : linked(source);
  urls[name] = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
}
import(urls["exported.js"]);
