// Memories: is it known, is it right, away with it.

import { call, get, post } from "../api.js";
import { address, begun, Copy, Empty, Failure, Further, html, KINDS, Loaded, Name, NoFacts, number, origin, Place, plural, Search, short, Sources, State, Text, Time, Title, To, useContext, useEffect, useLoad, useRef, useState, useStill, Words, World } from "../parts.js";

const PAGE = 50;
/** Rows that are shown and renewed, and memories that are selected, at most. */
const MOST_SHOWN = 1_000;
/** Drafts that are kept, the last ones. */
const MOST_DRAFTS = 50;

export function Memories({ params }) {
  const [picked, setPicked] = useState(new Map());
  const [erased, setErased] = useState(null);
  const { id, ...rest } = params;
  const isOpen = id || picked.size > 0 || erased;
  const pick = (memory) => {
    const chosen = new Map(picked);
    if (!chosen.delete(memory.id) && chosen.size < MOST_SHOWN) chosen.set(memory.id, memory);
    setPicked(chosen);
  };
  return html`
    <${Title} text="Memories" hidden />
    <div class="sides ${isOpen ? "wide" : ""} ${id ? "open" : ""}">
      <${List} ...${{ params, picked, pick }} onClear=${() => setPicked(new Map())} onErased=${(report) => (setPicked(new Map()), setErased(report))} />
      ${isOpen && html`<div>
        ${erased && html`<${Erased} report=${erased} onClose=${() => setErased(null)} />`}
        ${id && html`<${Details} key=${id} params=${params} rest=${rest} onErased=${setErased} />`}
      </div>`}
    </div>
  `;
}

/** The request of a page; days are of the browser's time zone, and all of *until* counts. */
const asked = ({ words, kind, actor, thread, session, since, until, replaced, order }, limit) => ({
  ...(words && { words: begun(words) }), ...(kind && { types: [kind] }), superseded: replaced === "1", ...(order && { order }),
  ...(actor && { actor }), ...(thread && { thread_id: thread }), ...(session && { session_id: session }),
  ...(since && { since: new Date(`${since}T00:00:00`).toISOString() }),
  ...(until && { until: new Date(`${until}T23:59:59.999`).toISOString() }),
  limit,
});

function List({ params, picked, pick, onClear, onErased }) {
  const { repo, repositories, tick, canWrite } = useContext(World);
  const [words, setWords] = useState(params.words ?? "");
  const still = useStill(words);
  const [shown, setShown] = useState(PAGE);
  const { id, ...rest } = params;
  const filters = JSON.stringify({ ...rest, words: still });
  const first = useRef(true);
  useEffect(() => setWords(params.words ?? ""), [params.words]);
  useEffect(() => {
    if (first.current) first.current = false;
    else if (still !== (params.words ?? "")) history.replaceState(null, "", address("memories", { repo, ...params, words: still }));
    setShown(PAGE);
  }, [filters]);
  // One request for all that is shown: what was loaded by "more" is renewed with the rest, and stays.
  const state = useLoad((signal) => post("/memories/list", { repo }, asked({ ...rest, words: still.trim() }, shown), signal), [repo, filters, shown], tick);
  const { semantic = 0, procedural = 0 } = repositories.find((record) => record.id === repo)?.nodes ?? {};
  const all = semantic + procedural;
  const change = (name) => (event) => (location.hash = address("memories", { repo, ...params, words, [name]: event.target.type === "checkbox" ? (event.target.checked ? "1" : "") : event.target.value }));
  const isFiltered = Object.values({ ...rest, words: still, repo: "", order: "" }).some(Boolean);
  const count = ({ items, next }) => (next ? `${params.order || "newest"} ${number(items.length)}${isFiltered ? " that match" : ` of ${number(all)}`}` : `${plural(items.length, "memory", "memories")}: all ${isFiltered ? "that match" : "there are"}`);
  return html`<section class="card" aria-label="List">
    <div class="body stack"><${Search} label=${`Words, looked for in all ${number(all)}`} value=${words} onInput=${setWords} large />
      <div class="chips">
        <label class="chip ${params.kind ? "on" : ""}">kind <select onChange=${change("kind")}>${[["", "any"], ["semantic", "facts"], ["procedural", "instructions"]].map(([value, label]) => html`<option value=${value} selected=${value === (params.kind || "")}>${label}</option>`)}</select></label>
        <label class="chip ${params.actor ? "on" : ""}">said by <input placeholder="anyone" value=${params.actor} onChange=${change("actor")} /></label>
        <label class="chip ${params.replaced ? "on" : ""}"><input type="checkbox" checked=${params.replaced === "1"} onChange=${change("replaced")} /> replaced ones too</label>
        <${Further} isOn=${params.since || params.until || params.order}>
          <label class="chip ${params.since ? "on" : ""}">since <input type="date" value=${params.since} onChange=${change("since")} /></label>
          <label class="chip ${params.until ? "on" : ""}">until <input type="date" value=${params.until} onChange=${change("until")} /></label>
          <label class="chip ${params.order ? "on" : ""}">order <select onChange=${change("order")}>${[["", "newest first"], ["oldest", "oldest first"]].map(([value, label]) => html`<option value=${value} selected=${value === (params.order || "")}>${label}</option>`)}</select></label>
        <//>
        ${["thread", "session"].map((name) => params[name] && html`<span class="chip on">${name} <strong>${short(params[name], 24)}</strong> <button class="plain" aria-label=${`any ${name}`} onClick=${() => (location.hash = address("memories", { repo, ...params, [name]: "" }))}>×</button></span>`)}
        <span class="origin count" role="status">${state.value && count(state.value)}</span></div></div>
    ${picked.size > 0 && html`<${Picked} ...${{ picked, onClear, onErased, canWrite }} />`}
    <${Loaded} state=${state}>${({ items, next }) => html`
      ${items.length > 0 && html`<ul class="rows">${items.map((memory) => html`<li key=${memory.id} class=${`picks ${memory.id === id ? "chosen" : ""}`}>
        <input type="checkbox" aria-label=${`Select: ${short(memory.text, 80)}`} checked=${picked.has(memory.id)} onChange=${() => pick(memory)} />
        <${To} view="memories" class="row" params=${{ ...params, words, id: memory.id }} aria-current=${memory.id === id ? "true" : undefined}>
          <span><${Line} memory=${memory} /></span><span class="origin"><${From} memory=${memory} /></span><//>
      </li>`)}</ul>`}
      ${!items.length && html`<${Empty}>${isFiltered || next
        ? html`<strong>No memory matches.</strong> ${still && html`What was said may: <${To} view="recall" params=${{ query: still }}>ask Recall for “${short(still, 40)}”<//>`}`
        : html`<${NoFacts} /><br /><code>mnemo remember "I live in Lund." --actor Ada</code>`}<//>`}
      ${next && html`<div class="more">${shown < MOST_SHOWN ? html`<button class="plain" onClick=${() => setShown(shown + PAGE)}>Load more</button>` : html`<span class="origin">More than ${number(MOST_SHOWN)} are found by words, a name or days.</span>`}</div>`}`}
    <//></section>`;
}

function Line({ memory }) {
  const text = short(memory.text, 300);
  return html`${memory.superseded_by || memory.valid_to ? html`<s>${text}</s>` : text}${memory.version > 1 && html` <span class="tag">v${memory.version}</span>`}${memory.type === "procedural" && html` <span class="tag">instruction</span>`}`;
}

function From({ memory }) {
  if (memory.valid_to || memory.superseded_by) return html`${memory.superseded_by ? "replaced" : "ended"} <${Time} at=${memory.valid_to} day />`;
  const [source] = memory.sources;
  return html`${source ? `${origin(source)}, ` : ""}<${Time} at=${source?.at ?? memory.valid_from ?? memory.created_at} />`;
}

/** What is selected: take it out, or away. */
function Picked({ picked, onClear, onErased, canWrite }) {
  const { repo } = useContext(World);
  const [asks, setAsks] = useState(false);
  const ids = [...picked.keys()];
  const save = () => {
    const lines = [...picked.values()].map((memory) => JSON.stringify(memory)).join("\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines], { type: "application/jsonl" }));
    link.download = "memories.jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return html`<section class="picked" aria-label="Selection"><strong>${picked.size} selected</strong><span class="acts">
    <button onClick=${save}>Export</button><${Copy} label="Copy as curl" text=${() => ids.map((id) => curl(repo, id)).join("\n")} />
    ${canWrite && html`<button class="danger" aria-expanded=${asks ? "true" : "false"} onClick=${() => setAsks(!asks)}>Forget …</button>`}<button class="quiet" data-close onClick=${onClear}>None</button></span>
    ${asks && html`<${Forget} key=${ids.join()} ids=${ids} own=${[...picked.values()]} onKeep=${() => setAsks(false)} onErased=${onErased} />`}</section>`;
}

const curl = (repo, id) => `curl -H "authorization: Bearer $MNEMO_TOKEN" '${location.origin}/v1/memory?${new URLSearchParams({ repo, id })}'`;

const PARTS = { nodes: ["fact or instruction", "facts and instructions"], messages: ["message"], steps: ["step"], notes: ["note"], snapshots: ["snapshot"] };
const counted = (report, ids) => {
  const facts = Math.max(ids, 0);
  return [facts && plural(facts, "fact"), ...["messages", "steps", "notes", "snapshots"].map((name) => report[name] && plural(report[name], PARTS[name][0]))].filter(Boolean).join(", ");
};

/** What goes, in words and texts; only then can it be erased, and then it says that it is done. */
function Forget({ ids, own, onKeep, onErased, onBusy = () => {} }) {
  const { repo } = useContext(World);
  const [sources, setSources] = useState(true);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const ask = (dry_run, signal) => post("/forget", { repo }, { memory_ids: ids, sources, dry_run }, signal);
  const state = useLoad((signal) => ask(true, signal), [repo, sources]);
  const erase = () => {
    setBusy(true);
    onBusy(true);
    ask(false).then((report) => onErased({ ...report, facts: ids.length, at: new Date().toISOString() }), (problem) => (setBusy(false), onBusy(false), setError(problem)));
  };
  return html`<section class="card forget" aria-label="Forget"><header class="doomed"><h2>Forget ${plural(ids.length, "fact")} for good?</h2></header>
    <div class="body"><label><input type="checkbox" checked=${sources} disabled=${busy} onChange=${() => setSources(!sources)} /> with the messages and steps that ${ids.length === 1 ? "it comes" : "they come"} from</label>
    <${Loaded} state=${state}>${(report) => html`<${Goes} report=${report} own=${own} />
      <p class="acts"><button class="danger" disabled=${busy} onClick=${erase}>${busy ? "Erasing …" : "Erase for good"}</button><button class="quiet" disabled=${busy} onClick=${onKeep}>Keep ${ids.length === 1 ? "it" : "them"}</button></p>`}<//>
    ${error && html`<${Failure} error=${error} />`}</div></section>`;
}

/** The report of a dry run: what else goes first, then all texts, the same ones once. */
function Goes({ report, own }) {
  const texts = [...new Set(report.texts)];
  const known = new Set(own.flatMap((memory) => [memory.text, ...memory.sources.map((source) => source.text)]));
  const others = texts.filter((text) => !known.has(text));
  const quote = (text) => html`<li key=${text}><span class="erased failed" aria-hidden="true"> </span> “<${Text} text=${text} cut=${240} />”</li>`;
  return html`<p>${counted(report, 0) ? `${counted(report, 0)} ${report.messages + report.steps === 1 ? "goes" : "go"} too` : "Nothing else goes"}${others.length ? ", and with that" : "."}</p>
    <ul>${others.slice(0, 5).map(quote)}</ul>
    <details open=${!others.length}><summary>All that goes, in full</summary><ul>${texts.map(quote)}</ul></details>
    <p class="origin">${report.mixed_notes?.length ? `Notes may quote it: ${report.mixed_notes.join(", ")}.` : "No note rests on it."}${report.facts_restored ? ` ${plural(report.facts_restored, "fact")} will hold again.` : ""}</p>`;
}

function Erased({ report, onClose }) {
  return html`<section class="card banner" role="status"><${State} kind="ok" word="" /><p><span class="ok strong">Erased: ${counted(report, report.facts)}.</span> <span class="origin"><${Time} at=${report.at} seconds />${report.scrubbed ? "" : "; the bytes leave the files later"}</span></p><button class="quiet" onClick=${onClose}>Close</button></section>`;
}

/** Drafts by memory: what is typed stays when another version comes, and when another view was looked at. */
const DRAFTS = new Map();

function Details({ params, rest, onErased }) {
  const { repo, tick, canWrite } = useContext(World);
  const [turn, setTurn] = useState(0);
  const [asks, setAsks] = useState(false);
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
  useEffect(() => heading.current?.focus({ preventScroll: true }), [params.id]);
  const gone = (report) => (onErased(report), (location.hash = address("memories", { repo, ...rest })));
  return html`<section aria-labelledby="details">
    <${To} view="memories" params=${rest} class="back">‹ All memories<//>
    <div class="card"><header><h2 id="details" tabindex="-1" ref=${heading}>One memory</h2><span class="chips"><${Copy} label="copy id" text=${() => params.id} /><${Copy} label="curl" text=${() => curl(repo, params.id)} /><${To} view="memories" params=${rest} data-close>Close<//></span></header>
    <${Loaded} state=${state}>
      ${({ memory, history }) => html`
        <div class="body"><p class="origin">${KINDS[memory.type]}, version ${memory.version}${memory.confidence != null && memory.confidence < 1 ? `, confidence ${memory.confidence.toFixed(2)}` : ""}</p>
          <${Wording} ...${{ memory, history, params }} /></div>
        <div class="body"><h3 class="hidden">Where it comes from</h3><${Sources} sources=${memory.sources} />
          ${Object.keys(memory.metadata).length > 0 && html`<details><summary>Metadata</summary><pre><${Text} text=${JSON.stringify(memory.metadata, null, 1)} /></pre></details>`}</div>
        ${canWrite && html`<div class="body"><${Edit} memory=${memory} onDone=${() => setTurn(turn + 1)} /></div>`}
        <p class="body origin mono">${memory.id}</p>`}
    <//></div>
    ${canWrite && state.value && (asks
      ? html`<${Forget} ids=${[params.id]} own=${[state.value.memory]} onKeep=${() => setAsks(false)} onErased=${gone} onBusy=${(is) => (erasing.current = is)} />`
      : html`<button class="danger" onClick=${() => setAsks(true)}>Forget …</button>`)}
  </section>`;
}

/** The text with what the last version changed, and below it the wordings before. */
function Wording({ memory, history, params }) {
  const own = history.filter((version) => version.memory_id === memory.id);
  const old = own.at(-2);
  const others = history.filter((version) => version.memory_id !== memory.id);
  const by = ({ by, at, reason }) => html`by ${by === "hand" ? "hand" : by}, <${Time} at=${at} />${reason && html`: “<${Text} text=${reason} />”`}`;
  return html`<p class="lead wording">${old ? html`<${Words} old=${old.text} now=${memory.text} />` : html`<${Text} text=${memory.text} />`}</p>
    ${memory.valid_to ? html`<p class="origin">${memory.superseded_by ? "replaced" : "ended"} <${Time} at=${memory.valid_to} day /></p>` : memory.valid_from && html`<p class="origin">holds since <${Time} at=${memory.valid_from} day /></p>`}
    <h3 class="hidden">History</h3>
    <ol class="history">${own.toReversed().map((version, index) => html`<li key=${version.version} class="origin">${index ? html`<strong>${version.version}</strong> <${Text} text=${version.text} cut=${300} /> ` : ""}${by(version)}</li>`)}
      ${others.map((version) => html`<li key=${`${version.memory_id} ${version.version}`}><${To} view="memories" params=${{ ...params, id: version.memory_id }}>${version.until && version.superseded_by ? html`<s>${short(version.text, 200)}</s>` : short(version.text, 200)}<//> <span class="origin">${by(version)}${version.until && html`; ${version.superseded_by ? "replaced" : "until"} <${Time} at=${version.until} day />`}</span></li>`)}</ol>`;
}

/** Correct a wording. When another version comes meanwhile, both are shown, and what was typed stays. */
function Edit({ memory, onDone }) {
  const { repo } = useContext(World);
  const key = `${repo} ${memory.id}`;
  const [draft, setState] = useState(DRAFTS.get(key) ?? null);
  const [error, setError] = useState(null);
  const setDraft = (value) => {
    DRAFTS.delete(key);
    if (value) DRAFTS.set(key, value);
    for (const old of [...DRAFTS.keys()].slice(0, -MOST_DRAFTS)) DRAFTS.delete(old);
    setState(value);
  };
  if (!draft) return html`<button onClick=${() => setDraft({ text: memory.text, reason: "", version: memory.version })}>Correct</button>`;
  const isBehind = draft.version !== memory.version && draft.text !== memory.text;
  const save = (event) => {
    event.preventDefault();
    const body = { text: draft.text, reason: draft.reason || null, expected_version: memory.version };
    call("PATCH", "/memory", { params: { repo, id: memory.id }, body }).then(() => (setDraft(null), setError(null), onDone()), (problem) => (setError(problem), onDone()));
  };
  return html`<form class="stack" onSubmit=${save}>
    ${isBehind && html`<p role="status"><strong>It changed while you wrote.</strong> Now: “<${Text} text=${memory.text} />”</p>`}
    <label>New wording <textarea name="text" rows="3" required value=${draft.text} onInput=${(event) => setDraft({ ...draft, text: event.target.value })}></textarea></label>
    <label>Reason <input name="reason" value=${draft.reason} onInput=${(event) => setDraft({ ...draft, reason: event.target.value })} /></label>
    <p class="acts"><button class="first">${isBehind ? `Save mine as version ${memory.version + 1}` : "Save"}</button><button type="button" class="quiet" onClick=${() => setDraft(null)}>${isBehind ? "Keep theirs" : "Cancel"}</button></p>
    ${error && html`<${Failure} error=${error} />`}
  </form>`;
}
