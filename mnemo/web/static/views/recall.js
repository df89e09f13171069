// Recall: a question, its candidates with the reasons for their scores, sources, and the trace.

import { get, post } from "../api.js";
import { Badge, Bar, Empty, html, KINDS, Loaded, plural, Query, Sources, Text, Time, To, useContext, useLoad, useState, World } from "../parts.js";

const MODES = { "": "chosen by the question", semantic: "facts", procedural: "instructions", episodic: "steps", mixed: "mixed" };
const CHOOSERS = { caller: "you", embedded: "the built-in rules", model: "the model" };
const PHASES = { initial: "found directly", multi_hop: "over the graph, hop", refinement: "by another look" };
/** Signals by their names in the library, grouped as there: what the bar says, and what it means. */
const SIGNALS = {
  words: {
    words: ["shared words", "words of the question that it has (BM25); rare ones count more"],
    joined: ["words, step before", "the same for it together with the step before"],
    session: ["words, session", "the same for the whole piece of talk"],
  },
  meaning: {
    cosine: ["meaning", "how near its embedding is to that of the question (cosine)"],
    window: ["meaning, steps around", "the same with half of the step before and of the step after it"],
    restated: ["extracted fact", "a fact that was extracted from it matches better than it does itself"],
    attribute: ["attribute", "it tells the attribute that the question asks for: a job, a home, a rent"],
  },
  who: {
    speaker: ["speaker", "the question names who says it"],
    "not the agent": ["not the agent", "somebody else than the agent wrote it"],
    "first person": ["first person", "it says “I”, “my” or “we”"],
    asks: ["asks", "it is a question itself"],
    name: ["name", "the question asks who, and it has a name"],
    another: ["another person", "it begins with somebody whom the question does not ask about"],
  },
  "when and where": {
    date: ["date", "it names a day, month, year or time"],
    "where: place": ["where: place", "the question asks where, and it names a place"],
    "how long: number": ["how long: number", "the question asks how long, and it has a number or a time"],
    length: ["length", "how long it is"],
    value: ["kind of value", "it has an amount, a number, a day or a time, as the question asks for"],
  },
};
const MEANINGS = Object.fromEntries(Object.values(SIGNALS).flatMap(Object.entries));
const GROUP_WORDS = {
  words: "what its words add", meaning: "what its meaning adds",
  who: "what its speaker adds", "when and where": "what its time, place and form add",
};
/** The other parts of a score, and what each means. */
const FACTORS = {
  relevance: "sum of the reasons, on the scale that facts, instructions and steps share",
  recency: "how new it is",
  frequency: "how often it was recalled",
  reward: "how well the step behind it served its goal",
  penalty: "what validation found wrong with it; it lowers the score",
  "weight of its kind": "how much the kind of memory that is wanted favours its kind",
};
const KIND_WORDS = { step: "raw text, as it was said or seen", fact: "extracted from steps", instruction: "how to act, extracted from steps" };
const TIMES = {
  read: "read what is new in the store", plan: "ask the model what to look for", items: "look through keyed items", embed: "make the embedding of the question",
  score: "compare with every text", load: "load the best", expand: "follow the graph", refine: "ask the model for another look",
  sources: "find the sources", reason: "put it into words; nothing without a model",
};

export function Recall({ params }) {
  return html`
    <${Query} view="recall" params=${params}>
      <label class="wide">Question <input name="query" type="search" required defaultValue=${params.query} placeholder="such as: Where does Ada live?" /></label>
      <label>Prefer <select name="mode">
        ${Object.entries(MODES).map(([value, label]) => html`<option value=${value} defaultSelected=${value === (params.mode || "")}>${label}</option>`)}
      </select></label>
      <label>At most <input name="k" type="number" min="1" max="100" defaultValue=${params.k || 10} /></label>
      <label>Said by <input name="actor" defaultValue=${params.actor} /></label>
      <label>Conversation <input name="thread" defaultValue=${params.thread} /></label>
      <button>Recall</button>
    <//>
    ${params.query
      ? html`<${Answer} key=${JSON.stringify(params)} params=${params} />`
      : html`<${Empty}>Ask what an agent would ask: the page shows what is found, why it is found, and who said it.<//>`}
  `;
}

function Answer({ params }) {
  const { repo } = useContext(World);
  const body = {
    query: params.query,
    k: Number(params.k || 10),
    mode: params.mode || undefined,
    actor: params.actor || undefined,
    thread_id: params.thread || undefined,
    explain: true,
  };
  const state = useLoad((signal) => post("/recall", { repo }, body, signal), []);
  return html`<${Loaded} state=${state}>
    ${(found) => html`
      <div class="split answer">
        <section aria-labelledby="found">
          <h2 id="found">${found.candidates.length ? `Found: ${found.candidates.length}` : "Nothing found"}</h2>
          ${found.candidates.length > 0 && html`<p class="quiet">${tokens(sum(found.trace.tokens))} as lines for a prompt. A smaller budget keeps the best.</p>`}
          ${["semantic", "procedural", "episodic"].map((kind) => found.answer?.[kind] && html`<p class="lead" key=${kind}><${Text} text=${found.answer[kind]} /></p>`)}
          ${!found.candidates.length && html`<${Empty}>${found.trace.abstained
            ? "The question reads as no language, and no stored text has a word of it, so nothing is offered."
            : "No memory matches."}<//>`}
          <ol class="candidates">
            ${found.candidates.map((candidate, index) => html`<${Candidate} key=${candidate.node.id} ...${{ candidate, index, costs: found.trace.tokens, most: strongest(found.candidates), numbers: numbered(found.candidates) }} />`)}
          </ol>
        </section>
        <${Trace} found=${found} />
      </div>
    `}
  <//>`;
}

const said = (node) =>
  node.proposition ?? [node.condition, node.instruction, node.observation, node.action].filter(Boolean).join("\n");

const numbered = (candidates) => new Map(candidates.map(({ node }, index) => [node.id, index + 1]));
const sum = (numbers) => numbers.reduce((whole, number) => whole + number, 0);
const tokens = (count) => plural(count, "token");

/** The strongest group of reasons of all candidates: what every bar is drawn beside. */
const strongest = (candidates) =>
  Math.max(1e-6, ...candidates.flatMap(({ why }) => grouped(why).map(([, , value]) => Math.abs(value))));

/** Groups of reasons that count: the name, the signals in it, and their sum. */
const grouped = (why) =>
  Object.entries(SIGNALS)
    .map(([group, names]) => [group, Object.keys(names).filter((name) => why?.signals[name])])
    .filter(([, names]) => names.length)
    .map(([group, names]) => [group, names, sum(names.map((name) => why.signals[name]))]);

function Candidate({ candidate, index, costs, most, numbers }) {
  const { node, why, sources } = candidate;
  const messages = new Map(sources.filter((source) => source.message_id).map((source) => [source.message_id, source]));
  const isMemory = node.type === "semantic" || node.type === "procedural";
  const newer = numbers.get(candidate.outdated_by);
  const shown = html`<${Text} text=${said(node)} />`;
  const text = candidate.outdated_by ? html`<s>${shown}</s>` : shown;
  return html`<li class="panel">
    <p class="lead">${index + 1}. ${isMemory ? html`<${To} view="memories" params=${{ id: node.id }}>${text}<//>` : text}</p>
    <p><${Badge} kind=${node.type}>${KINDS[node.type] || node.type}<//>
      ${candidate.valid_to && html` <${Badge} kind="gone">ended<//> <${Time} at=${candidate.valid_to} day />${newer ? `, see ${newer}` : ""}`}
      <span class="quiet"> ${candidate.hop ? `found over the graph, hop ${candidate.hop}` : "found directly"}; ${tokens(costs[index])}${index ? `, ${tokens(sum(costs.slice(0, index + 1)))} with those above` : ""}</span></p>
    <${Bar} label="score" value=${candidate.score} />
    ${why && html`<details open=${index === 0}><summary>Why this score</summary>
      <${Bar} label="relevance" value=${candidate.relevance} />
      ${grouped(why).map(([group, names, value]) => html`
        <${Bar} key=${group} label=${group} value=${value} most=${most} />
        ${names.map((name) => html`<${Bar} key=${name} label=${`· ${MEANINGS[name][0]}`} value=${why.signals[name]} most=${most} />`)}`)}
      <${Bar} label="recency" value=${why.recency} />
      <${Bar} label="frequency" value=${why.frequency} />
      <${Bar} label="reward" value=${why.reward} />
      <${Bar} label="penalty" value=${why.penalty} />
      <${Bar} label="weight of its kind" value=${why.mode_weight} />
      <p class="quiet">Reasons are drawn beside the strongest of all candidates, and their parts (·) below them. They add up to the relevance; the other bars turn it into the score. “What the words mean” has each.</p>
      ${why.via && html`<p class="quiet">Found through ${why.via}.</p>`}
    </details>`}
    <details open=${index === 0}><summary>Where it comes from (${sources.length})</summary>
      <${Sources} sources=${sources} />
      ${[...messages.values()].slice(0, 3).map((source) => html`<${Around} key=${source.message_id} source=${source} />`)}
    </details>
  </li>`;
}

/** The messages before and after a source, in their conversation. */
function Around({ source }) {
  const [open, setOpen] = useState(false);
  if (!open) return html`<p><button class="plain" onClick=${() => setOpen(true)}>Show what was said around it</button></p>`;
  return html`<${Messages} source=${source} />`;
}

function Messages({ source }) {
  const { repo } = useContext(World);
  const where = { repo, id: source.message_id, session_id: source.thread_id, before: 3, after: 3 };
  const state = useLoad((signal) => get("/view", where, signal), []);
  return html`<${Loaded} state=${state}>
    ${(view) => html`<ol class="talk">
      ${[...view.before, view.target, ...view.after].map((message) => html`<li key=${message.message_id} class=${message === view.target ? "chosen" : ""}>
        <span class="who">${message.actor || message.kind}</span> <${Text} text=${message.text} cut=${600} />
      </li>`)}
    </ol>`}
  <//>`;
}

function Trace({ found }) {
  const { trace } = found;
  const phases = Object.entries(trace.seconds);
  const total = sum(phases.map(([, seconds]) => seconds));
  let passed = 0;
  const rows = phases.map(([name, seconds]) => {
    const left = total ? (100 * passed) / total : 0;
    passed += seconds;
    return { name, seconds, left, width: total ? Math.max(0.5, (100 * seconds) / total) : 0 };
  });
  return html`<section class="panel" aria-labelledby="trace">
    <h2 id="trace">How it was found</h2>
    <dl class="facts">
      <dt>Kind of memory wanted</dt><dd>${MODES[trace.mode] || trace.mode}, chosen by ${CHOOSERS[trace.mode_chosen_by] || trace.mode_chosen_by}</dd>
      <dt>Tags of the chat model</dt><dd>${trace.tags.join(", ") || "none"}</dd>
      <dt>Candidates</dt><dd>${Object.entries(trace.found).map(([phase, count]) => `${count.toLocaleString("en")} ${phase.replace(/^\w+/, (name) => PHASES[name] ?? name)}`).join(", ") || "none"}</dd>
      <dt>Confidence</dt><dd>${(100 * found.confidence).toFixed(0)} % that the answer is among them</dd>
      <dt>Model calls</dt><dd>${trace.model_calls}</dd>
      ${trace.degraded.length > 0 && html`<dt>Done without</dt><dd class="failure">${trace.degraded.join(", ")}</dd>`}
    </dl>
    <h3>Time: ${(1_000 * total).toFixed(1)} ms</h3>
    <div class="waterfall">
      ${rows.map((row) => html`<div class="bar" key=${row.name}>
        <span>${row.name}</span>
        <span class="track" aria-hidden="true"><span class="fill" style=${{ marginLeft: `${Math.min(99.5, row.left)}%`, width: `${row.width}%` }} /></span>
        <span class="number">${(1_000 * row.seconds).toFixed(1)} ms</span>
      </div>`)}
    </div>
    <h2>What the words mean</h2>
    <dl class="facts terms">${terms(found).map(([term, meaning]) => html`<div key=${term}><dt>${term}</dt> <dd>${meaning}</dd></div>`)}</dl>
  </section>`;
}

/** What is shown under a name that is not plain: kinds, reasons, factors and phases, with their meanings. */
function terms({ candidates, trace }) {
  const kinds = new Set(candidates.map(({ node }) => KINDS[node.type]));
  const groups = new Set(candidates.flatMap(({ why }) => grouped(why).map(([group]) => group)));
  const signals = new Set(candidates.flatMap(({ why }) => Object.keys(why?.signals ?? {})));
  return [
    ...Object.entries(KIND_WORDS).filter(([kind]) => kinds.has(kind)),
    ...Object.entries(GROUP_WORDS).filter(([group]) => groups.has(group)),
    ...Object.entries(MEANINGS).filter(([name]) => signals.has(name)).map(([, [label, meaning]]) => [`· ${label}`, meaning]),
    ...Object.entries(FACTORS).filter(() => candidates.length),
    ...Object.entries(TIMES).filter(([phase]) => phase in trace.seconds),
  ];
}
