// Memories: facts and instructions with filters; one of them with sources, history, edit, forget.

import { call, get, post } from "../api.js";
import { address, Badge, Empty, Failure, html, KINDS, Loaded, origin, Place, plural, Query, Sources, Text, Time, To, useContext, useEffect, useLoad, useRef, useState, World } from "../parts.js";

const PAGE = 200;

export function Memories({ params }) {
  return html`
    <${Filters} params=${params} />
    <div class=${params.id ? "split" : ""}>
      <${List} params=${params} />
      ${params.id && html`<${Details} key=${params.id} params=${params} />`}
    </div>
  `;
}

function Filters({ params }) {
  const { id, ...rest } = params;
  return html`<${Query} view="memories" params=${rest} keep=${{ id }}>
    <label>Words <input name="words" type="search" defaultValue=${params.words} placeholder="such as Ada" /></label>
    <label>Kind <select name="kind">
      ${[["", "all"], ["semantic", "facts"], ["procedural", "instructions"]].map(([value, label]) => html`<option value=${value} defaultSelected=${value === (params.kind || "")}>${label}</option>`)}
    </select></label>
    <label>Said by <input name="actor" defaultValue=${params.actor} /></label>
    <label>Conversation <input name="thread" defaultValue=${params.thread} /></label>
    <label>Session <input name="session" defaultValue=${params.session} /></label>
    <span class="pair">
      <label>Said since <input name="since" type="date" defaultValue=${params.since} /></label>
      <label>until <input name="until" type="date" defaultValue=${params.until} /></label>
    </span>
    <label class="check"><input name="replaced" type="checkbox" value="1" defaultChecked=${params.replaced === "1"} /> replaced ones too</label>
    <button>Filter</button>
  <//>`;
}

/** The request of a page; days are of the browser's time zone, and all of *until* counts. */
const asked = (params, after) => ({
  types: params.kind ? [params.kind] : undefined,
  superseded: params.replaced === "1",
  actor: params.actor || undefined,
  thread_id: params.thread || undefined,
  session_id: params.session || undefined,
  since: params.since ? new Date(`${params.since}T00:00:00`).toISOString() : undefined,
  until: params.until ? new Date(`${params.until}T23:59:59.999`).toISOString() : undefined,
  limit: PAGE,
  after,
});

/** Load pages until one shown memory has the words, or there are no more. */
async function pages(repo, params, after, signal) {
  const words = (params.words || "").toLowerCase().split(/\s+/).filter(Boolean);
  const has = ({ text }) => words.every((word) => text.toLowerCase().includes(word));
  const found = { items: [], looked: 0, next: after };
  do {
    const page = await post("/memories/list", { repo }, asked(params, found.next), signal);
    found.items.push(...page.items.filter(has));
    found.looked += page.items.length;
    found.next = page.next;
  } while (found.next && !found.items.length);
  return found;
}

function List({ params }) {
  const { repo, tick } = useContext(World);
  const [more, setMore] = useState({ items: [], looked: 0, next: null, error: null });
  const { words, kind, actor, thread, session, since, until, replaced } = params;
  const state = useLoad(
    async (signal) => {
      const first = await pages(repo, params, undefined, signal);
      setMore({ items: [], looked: 0, next: first.next, error: null });
      return first;
    },
    [repo, words, kind, actor, thread, session, since, until, replaced],
    tick,
  );
  const load = async () => {
    try {
      const page = await pages(repo, params, more.next);
      setMore({ items: [...more.items, ...page.items], looked: more.looked + page.looked, next: page.next, error: null });
    } catch (error) {
      setMore({ ...more, error });
    }
  };
  return html`<section aria-label="List"><${Loaded} state=${state}>
    ${(first) => {
      const items = [...first.items, ...more.items];
      const looked = first.looked + more.looked;
      return html`
        ${items.length
          ? html`<${Table} items=${items} params=${params} />`
          : html`<${Empty}>${looked || words || kind || actor || thread || session || since || until
              ? "No memory matches these filters."
              : "No facts or instructions yet. What was said becomes some when it is extracted; the overview shows what waits."}<//>`}
        <p class="quiet" role="status">${plural(items.length, "memory", "memories")} shown, newest first${more.next ? `, of the newest ${looked.toLocaleString("en")}. “Load more” looks through older ones` : ": all that match"}.</p>
        ${more.next && html`<button onClick=${load}>Load more</button>`}
        ${more.error && html`<${Failure} error=${more.error} />`}
      `;
    }}
  <//></section>`;
}

function Table({ items, params }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Memories"><table class="memories">
    <thead><tr><th scope="col">What it says</th><th scope="col" class="second">Kind</th><th scope="col">Holds</th><th scope="col" class="second">Comes from</th></tr></thead>
    <tbody>${items.map((memory) => html`<tr key=${memory.id} class=${memory.id === params.id ? "chosen" : ""}>
      <th scope="row"><${To} view="memories" params=${{ ...params, id: memory.id }} aria-current=${memory.id === params.id ? "true" : undefined}><${Text} text=${memory.text} cut=${300} /><//></th>
      <td class="second">${KINDS[memory.type]}</td>
      <td><${Holds} memory=${memory} /></td>
      <td class="second from">${memory.sources[0] ? html`${origin(memory.sources[0])}<${Place} source=${memory.sources[0]} />` : html`<span class="quiet">–</span>`}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

/** Since when a memory holds, and whether another replaced it. */
function Holds({ memory }) {
  if (memory.superseded_by) return html`<${Badge} kind="gone">replaced<//> <${Time} at=${memory.valid_to} day />`;
  if (memory.valid_to) return html`<${Badge} kind="gone">ended<//> <${Time} at=${memory.valid_to} day />`;
  return memory.valid_from ? html`since <${Time} at=${memory.valid_from} day />` : html`<span class="quiet">undated</span>`;
}

function Details({ params }) {
  const { repo, tick, canWrite } = useContext(World);
  const [turn, setTurn] = useState(0);
  const erasing = useRef(false);
  const state = useLoad(
    async (signal) => {
      if (erasing.current) return state.value; // it would be looked for in vain
      const [memory, history] = await Promise.all([
        get("/memory", { repo, id: params.id }, signal),
        get("/memory/history", { repo, id: params.id }, signal),
      ]);
      return { memory, history };
    },
    [repo, params.id, turn],
    tick,
  );
  const heading = useRef(null);
  useEffect(() => heading.current?.focus(), [params.id]);
  const { id, ...rest } = params;
  return html`<section class="panel" aria-labelledby="details">
    <div class="head"><h2 id="details" tabindex="-1" ref=${heading}>One memory</h2><${To} view="memories" params=${rest}>Close<//></div>
    <${Loaded} state=${state}>
      ${({ memory, history }) => html`
        <p class="lead"><${Text} text=${memory.text} /></p>
        <p><${Badge}>${KINDS[memory.type]}<//> <${Holds} memory=${memory} />
          ${memory.confidence != null && html`<span class="quiet">; confidence of the extraction ${memory.confidence.toFixed(2)}</span>`}</p>
        <h3>Where it comes from</h3>
        <${Sources} sources=${memory.sources} />
        ${Object.keys(memory.metadata).length > 0 && html`<h3>Metadata</h3><pre><${Text} text=${JSON.stringify(memory.metadata, null, 1)} /></pre>`}
        <h3>History</h3>
        <${History} ...${{ history, memory, params }} />
        ${canWrite && html`<${Edit} key=${memory.version} memory=${memory} onDone=${() => setTurn(turn + 1)} />
          <${Forget} ...${{ memory, rest, erasing }} />`}
        <p class="quiet id">${memory.id}</p>
      `}
    <//>
  </section>`;
}

function History({ history, memory, params }) {
  return html`<ol class="history">
    ${history.map((version) => html`<li key=${`${version.memory_id} ${version.version}`} class=${version.until ? "past" : ""}>
      ${version.memory_id === memory.id
        ? html`<${Text} text=${version.text} />`
        : html`<${To} view="memories" params=${{ ...params, id: version.memory_id }}><${Text} text=${version.text} cut=${300} /><//>`}
      <p class="origin">written by ${version.by}, <${Time} at=${version.at} />
        ${version.until && html`; ${version.superseded_by ? "replaced" : "until"} <${Time} at=${version.until} />`}
        ${version.reason && html`; <${Text} text=${version.reason} />`}</p>
    </li>`)}
  </ol>`;
}

function Edit({ memory, onDone }) {
  const { repo } = useContext(World);
  const [open, setOpen] = useState(false);
  const [error, setError] = useState(null);
  const sent = (event) => {
    event.preventDefault();
    const { text, reason } = Object.fromEntries(new FormData(event.target));
    const body = { text, reason: reason || null, expected_version: memory.version };
    call("PATCH", "/memory", { params: { repo, id: memory.id }, body }).then(onDone, setError);
  };
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>Correct it</summary>
    ${open && html`<form class="stack" onSubmit=${sent}>
      <label>New wording <textarea name="text" rows="3" required>${memory.text}</textarea></label>
      <label>Reason <input name="reason" /></label>
      <button>Save</button>
    </form>`}
    ${error && html`<${Failure} error=${error} />`}
  </details>`;
}

const counted = (report) =>
  Object.entries(report)
    .filter(([, value]) => typeof value === "number" && value > 0)
    .map(([name, value]) => `${value} ${name.replaceAll("_", " ")}`)
    .join(", ");

/** Erase in two steps: a dry run says what would go; only then can it be erased. */
function Forget({ memory, rest, erasing }) {
  const { repo } = useContext(World);
  const [sources, setSources] = useState(true);
  const [report, setReport] = useState(null);
  const [error, setError] = useState(null);
  const ask = (dry_run) => post("/forget", { repo }, { memory_ids: [memory.id], sources, dry_run });
  const look = () => ask(true).then((found) => (setReport(found), setError(null)), setError);
  const erase = () => {
    erasing.current = true;
    const failed = (problem) => ((erasing.current = false), setError(problem));
    ask(false).then(() => (location.hash = address("memories", { repo, ...rest })), failed);
  };
  return html`<details><summary>Forget it</summary>
    <div class="stack">
      <label class="check"><input type="checkbox" checked=${sources} onChange=${() => (setSources(!sources), setReport(null))} /> with the messages and steps that it comes from</label>
      <button onClick=${look}>Show what would go</button>
      ${report && html`<p role="status">This would erase for good: ${counted(report) || "nothing"}.</p>
        <button class="danger" onClick=${erase}>Erase for good</button>`}
    </div>
    ${error && html`<${Failure} error=${error} />`}
  </details>`;
}
