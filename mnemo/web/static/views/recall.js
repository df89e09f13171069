// Recall: what does the model read, why, what is missing?

import { get, post } from "../api.js";
import { address, begun, Copy, Empty, Failure, Further, html, Icon, KINDS, Loaded, number, plural, Search, short, Sources, Text, Time, Title, To, useContext, useLoad, useMedia, useState, useStill, World } from "../parts.js";

const MODES = { "": "any kind", semantic: "facts", procedural: "instructions", episodic: "steps", mixed: "mixed" };
const CHOOSERS = { caller: "you", embedded: "the built-in rules", model: "the model" };
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
  "who, when": {
    speaker: ["speaker", "the question names who says it"],
    "not the agent": ["not the agent", "somebody else than the agent wrote it"],
    "first person": ["first person", "it says “I”, “my” or “we”"],
    asks: ["asks", "it is a question itself"],
    name: ["name", "the question asks who, and it has a name"],
    another: ["another person", "it begins with somebody whom the question does not ask about"],
    date: ["date", "it names a day, month, year or time"],
    "where: place": ["where: place", "the question asks where, and it names a place"],
    "how long: number": ["how long: number", "the question asks how long, and it has a number or a time"],
    length: ["length", "how long it is"],
    value: ["kind of value", "it has an amount, a number, a day or a time, as the question asks for"],
  },
};
const MEANINGS = Object.fromEntries(Object.values(SIGNALS).flatMap(Object.entries));
const GROUPS = { words: "Words", meaning: "Meaning", "who, when": "Who, when" };
/** The other parts of a score. */
const FACTORS = { relevance: "sum of the reasons, on one scale for all kinds", recency: "how new it is", frequency: "how often it was recalled", reward: "how well the step behind it served its goal", penalty: "what validation found wrong with it", mode_weight: "how much the wanted kind favours its kind" };

export function Recall({ params }) {
  const { repo } = useContext(World);
  const sent = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    location.hash = address("recall", { repo, ...given, k: given.k === "10" ? "" : given.k });
  };
  const entered = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && (event.preventDefault(), event.target.form.requestSubmit());
  const again = (event) => params.query && event.target.form.requestSubmit();
  return html`
    <${Title} text=${params.query ? `Recall: ${short(params.query, 60)}` : "Recall"} hidden />
    <form key=${JSON.stringify(params)} class="ask" onSubmit=${sent}>
      <label class="search large"><${Icon} name="search" /><span class="hidden">Question</span>
        <textarea name="query" data-search required rows="1" placeholder="Question" defaultValue=${params.query} onKeyDown=${entered}></textarea><kbd aria-hidden="true">/</kbd></label>
      <button class="first">Recall</button>
      <div class="chips">
        <label class="chip">at most <input name="k" type="number" min="1" max="100" defaultValue=${params.k || 10} onChange=${again} /></label>
        <label class="chip ${params.actor ? "on" : ""}">said by <input name="actor" placeholder="anyone" defaultValue=${params.actor} onChange=${again} /></label>
        <label class="chip ${params.thread ? "on" : ""}">thread <input name="thread" placeholder="any" defaultValue=${params.thread} onChange=${again} /></label>
        <${Further} isOn=${params.mode || params.until}>
          <label class="chip ${params.mode ? "on" : ""}">prefer <select name="mode" onChange=${again}>${Object.entries(MODES).map(([value, label]) => html`<option value=${value} selected=${value === (params.mode || "")}>${label}</option>`)}</select></label>
          <label class="chip ${params.until ? "on" : ""}">said until <input name="until" type="date" defaultValue=${params.until} onChange=${again} /></label>
        <//>
      </div>
    </form>
    ${params.query
      ? html`<${Answer} key=${JSON.stringify(params)} params=${params} />`
      : html`<div class="sides wide"><section class="card"><${Empty}><strong>Ask what an agent would ask.</strong> The page shows the lines that its model reads, why each was found, and who said it.<//></section><${Past} /></div>`}
  `;
}

const asked = ({ query, k, mode, actor, thread, until }) => ({
  query, k: Number(k || 10), explain: true,
  ...(mode && { mode }), ...(actor && { actor }), ...(thread && { thread_id: thread }),
  ...(until && { until: new Date(`${until}T23:59:59.999`).toISOString() }),
});

function Answer({ params }) {
  const { repo } = useContext(World);
  const state = useLoad((signal) => post("/recall", { repo }, asked(params), signal), []);
  return html`<${Loaded} state=${state}>${(found) => html`<${Found} ...${{ found, params }} />`}<//>`;
}

const said = (node) =>
  node.proposition ?? [node.condition, node.instruction, node.observation, node.action].filter(Boolean).join("\n");
const sum = (numbers) => numbers.reduce((whole, one) => whole + one, 0);
const at = ({ sources, node }) => sources[0]?.at ?? node.created_at;

/** What each group of reasons adds. */
const grouped = (why) => Object.fromEntries(Object.entries(SIGNALS).map(([group, names]) => [group, sum(Object.keys(names).map((name) => why?.signals[name] ?? 0))]));

function Found({ found, params }) {
  const { candidates, trace } = found;
  const [chosen, setChosen] = useState(0);
  const [byTime, setByTime] = useState(false);
  const ends = candidates.map((_, index) => sum(trace.tokens.slice(0, index + 1)));
  const [lines, setLines] = useState(candidates.length);
  const most = Math.max(1e-6, ...candidates.flatMap(({ why }) => Object.values(grouped(why)).map(Math.abs)));
  const places = new Map(candidates.map(({ node }, index) => [node.id, index + 1]));
  const order = candidates.map((_, index) => index);
  const timed = (index) => Date.parse(at(candidates[index]) ?? 0);
  const kept = order.slice(0, lines);
  const shown = byTime ? [...kept.toSorted((a, b) => timed(a) - timed(b)), ...order.slice(lines)] : order;
  const seconds = sum(Object.values(trace.seconds));
  const looked = sum(Object.entries(trace.found).filter(([phase]) => phase.startsWith("initial")).map(([, count]) => count));
  return html`
    <p class="origin facts-line">${`${(1_000 * seconds).toFixed(0)} ms`} · ${number(looked)} looked at · ${trace.model_calls ? plural(trace.model_calls, "model call") : "no model asked"}${trace.degraded.length ? html` · <span class="failed">done without ${trace.degraded.join(", ")}</span>` : ""}</p>
    <div class="sides wide">
      <section class="card" aria-labelledby="prompt">
        <header><h2 id="prompt">Prompt text <span class="origin">as the model reads it</span></h2>
          ${candidates.length > 0 && html`<div class="chips"><span class="switch"><button aria-pressed=${byTime ? "false" : "true"} onClick=${() => setByTime(false)}>Best first</button><button aria-pressed=${byTime ? "true" : "false"} onClick=${() => setByTime(true)}>By time</button></span>
            <${Copy} text=${() => shown.slice(0, lines).map((index) => lineOf(candidates[index], index)).join("\n")} /></div>`}</header>
        ${["semantic", "procedural", "episodic"].map((kind) => found.answer?.[kind] && html`<p class="body lead" key=${kind}><${Text} text=${found.answer[kind]} /></p>`)}
        ${!candidates.length && html`<${Empty}><span class="waiting state"><${Icon} name="none" /> <strong>Nothing found.</strong></span> ${trace.abstained
          ? "The question reads as no language, and no stored text has a word of it, so nothing is offered."
          : "No memory matches."}<//>`}
        ${candidates.length > 0 && html`<${Budget} ...${{ ends, lines }} onLines=${setLines} />
          <div class="line origin heads" aria-hidden="true"><span></span><span>Line</span>${Object.values(GROUPS).map((name) => html`<span class="second">${name}</span>`)}<span class="num">Tokens</span></div>
          <ol class="rows lines">${shown.map((index, place) => html`
            ${place === lines && html`<li key="cut" class="cut origin">Cut at ${number(ends[lines - 1] ?? 0)} tokens. The ${candidates.length - lines === 1 ? "line" : `${candidates.length - lines} lines`} below ${candidates.length - lines === 1 ? "is" : "are"} not sent.</li>`}
            <li key=${candidates[index].node.id} class=${place >= lines ? "unsent" : ""}><${Line} candidate=${candidates[index]} ...${{ index, most, places, tokens: trace.tokens[index] }} isChosen=${index === chosen} onChoose=${() => setChosen(index)} /></li>`)}</ol>`}
      </section>
      <div>
        ${candidates[chosen] && html`<${Why} key=${chosen} candidate=${candidates[chosen]} ...${{ index: chosen, most, places, candidates }} />`}
        <${WhereIs} params=${params} />
        <${Past} query=${params.query} />
        <${How} found=${found} />
      </div>
    </div>`;
}

const lineOf = (candidate, index) => {
  const when = at(candidate)?.slice(0, 10);
  return `[${index + 1}] ${said(candidate.node)} (${[when, candidate.sources[0]?.actor].filter(Boolean).join(", ")})`;
};

/** The slider snaps to line ends. */
function Budget({ ends, lines, onLines }) {
  const all = ends.at(-1);
  const tokens = ends[lines - 1] ?? 0;
  const snap = (value) => onLines(Math.max(1, ends.filter((end) => end <= value).length));
  const pressed = (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    onLines(Math.min(ends.length, Math.max(1, lines + by)));
  };
  return html`<div class="body budget"><label for="budget" class="strong">Budget</label>
    <span class="slide"><svg width="100%" height="8" aria-hidden="true">${ends.map((end) => html`<rect class="tick" x=${`${(100 * end) / all}%`} width="1" height="8" />`)}</svg>
    <input id="budget" type="range" min="0" max=${all} value=${tokens} aria-valuetext=${`${tokens} of ${all} tokens, ${lines} of ${ends.length} lines`} onInput=${(event) => snap(Number(event.target.value))} onKeyDown=${pressed} /></span>
    <span><strong>${number(tokens)}</strong> <span class="soft">of ${number(all)} tokens · ${lines} of ${plural(ends.length, "line")}</span></span></div>`;
}

/** A bar on the scale of all candidates; what is negative goes left, grey. */
function Bar({ value, most, width = 38 }) {
  const zero = width * 0.25;
  const length = (Math.abs(value) / most) * (value < 0 ? zero : width - zero);
  return html`<svg class="bars" width=${width} height="8" aria-hidden="true"><rect class="track" x=${zero} width=${width - zero} height="8" rx="1" /><rect class=${value < 0 ? "bar less" : "bar"} x=${value < 0 ? zero - length : zero} width=${Math.max(value ? 1 : 0, length)} height="8" rx="1" /></svg>`;
}

function Line({ candidate, index, most, places, tokens, isChosen, onChoose }) {
  const isWide = useMedia("(min-width: 900px)");
  const groups = grouped(candidate.why);
  const text = html`<${Text} text=${said(candidate.node)} cut=${700} />`;
  const newer = places.get(candidate.outdated_by);
  return html`<div class="line ${isChosen ? "chosen" : ""}">
    <button class="plain soft pick" aria-pressed=${isChosen ? "true" : "false"} aria-label=${`Why line ${index + 1}`} onClick=${onChoose}>[${index + 1}]</button>
    <div onClick=${onChoose}>${candidate.outdated_by ? html`<s>${text}</s>` : text}
      ${" "}<span class="soft">(<${Time} at=${at(candidate)} day />${candidate.valid_to && html`, until <${Time} at=${candidate.valid_to} day />`}${candidate.sources[0]?.actor && candidate.sources[0].actor !== "hand" && html`, ${candidate.sources[0].actor}`}${newer ? `; see [${newer}]` : ""})</span>
      ${isChosen && !isWide && html`<${Reasons} ...${{ groups, most }} />`}</div>
    ${isWide && Object.keys(GROUPS).map((group) => html`<span title=${groups[group].toFixed(2)}><${Bar} value=${groups[group]} most=${most} /><span class="hidden">${GROUPS[group]} ${groups[group].toFixed(2)}</span></span>`)}
    <span class="soft num">${tokens}</span></div>`;
}

const Reasons = ({ groups, most }) => html`<dl class="reasons">${Object.entries(GROUPS).map(([group, name]) => html`<dt>${name}</dt><dd><${Bar} value=${groups[group]} most=${most} width=${150} /></dd><dd class="num">${groups[group].toFixed(2)}</dd>`)}</dl>`;

function Why({ candidate, index, most, places, candidates }) {
  const { node, why, sources } = candidate;
  const isMemory = node.type === "semantic" || node.type === "procedural";
  const signals = Object.entries(why?.signals ?? {});
  const newer = places.get(candidate.outdated_by);
  const replaced = candidates.findIndex((one) => one.outdated_by === node.id);
  return html`<section class="card" aria-labelledby="why"><header><h2 id="why">Why line ${index + 1}</h2><span class="origin">${KINDS[node.type] ?? node.type}, score ${candidate.score.toFixed(2)}</span></header>
    ${why && html`<div class="body"><${Reasons} groups=${grouped(why)} most=${most} />
      <details><summary class="origin">${plural(signals.length, "single signal")}</summary><dl class="signals origin">
        ${signals.map(([name, value]) => html`<dt title=${MEANINGS[name]?.[1]}>${MEANINGS[name]?.[0] ?? name}</dt><dd class="num">${value.toFixed(2)}</dd><dd class="means">${MEANINGS[name]?.[1]}</dd>`)}
        ${Object.entries(FACTORS).map(([name, meaning]) => html`<dt>${name.replace("_", " ")}</dt><dd class="num">${(name === "relevance" ? candidate.relevance : why[name]).toFixed(2)}</dd><dd class="means">${meaning}</dd>`)}
      </dl></details></div>`}
    <div class="body"><${Sources} sources=${sources.slice(0, 3)} />
      ${newer && html`<p><span class="running"><${Icon} name="to" /></span> replaced by [${newer}]</p>`}
      ${replaced >= 0 && html`<p><span class="running"><${Icon} name="to" /></span> replaced [${replaced + 1}], “${short(said(candidates[replaced].node), 60)}”</p>`}
      ${why?.via && html`<p class="soft">Found through ${why.via}${candidate.hop ? `, hop ${candidate.hop}` : ""}.</p>`}
      ${isMemory && html`<${To} view="memories" params=${{ id: node.id }}>Open memory<//>`}</div></section>`;
}

/** What left an expected memory out, in words. */
const LEFT_OUT = {
  unknown: "nothing that recall finds has this id", abstained: "the question reads as no language", type: "its kind is not asked for", superseded: "it was replaced",
  filter: "a filter leaves it out", context: "it is a step of the session that asks", not_gathered: "others are nearer", top_k: "below the best of its kind",
  max_candidates: "below the most that are weighed", min_score: "below the lowest score", cut: "below the cut", k: "below “at most”", min_confidence: "below the lowest confidence",
};

/** Where a memory is that was expected: its rank and score, or what left it out. */
function WhereIs({ params }) {
  const { repo } = useContext(World);
  const [words, setWords] = useState("");
  const [chosen, setChosen] = useState(null);
  const still = useStill(words.trim());
  const hits = useLoad(async (signal) => (still && !chosen ? (await post("/memories/list", { repo }, { words: begun(still), limit: 5, superseded: true }, signal)).items : []), [still, chosen?.id]);
  const state = useLoad(async (signal) => (chosen ? (await post("/recall", { repo }, { ...asked(params), expect: chosen.id }, signal)).expected : null), [chosen?.id]);
  return html`<section class="card" aria-label="Where is"><div class="body">
    <${Search} label="Where is … (its words)" value=${chosen ? chosen.text : words} onInput=${(value) => (setChosen(null), setWords(value))} />
    ${!chosen && hits.value?.length > 0 && html`<ul>${hits.value.map((memory) => html`<li key=${memory.id}><button class="plain" onClick=${() => setChosen(memory)}>${short(memory.text, 80)}</button></li>`)}</ul>`}
    ${!chosen && still && hits.value?.length === 0 && html`<p class="soft">No memory has these words.</p>`}
    ${state.error && html`<${Failure} error=${state.error} />`}
    ${chosen && state.value && html`<${Standing} expected=${state.value} />`}</div></section>`;
}

function Standing({ expected: { rank, score, place, left_out_by, detail } }) {
  return html`<p role="status"><strong>${rank !== null ? `Rank ${rank}` : place !== null ? `Place ${place}` : "Not found"}</strong>${score !== null && `, score ${score.toFixed(2)}`}${left_out_by && `: ${LEFT_OUT[left_out_by] ?? left_out_by}`}.</p>
    ${detail && html`<p class="origin">${detail}</p>`}`;
}

/** The log of past recalls, where the service keeps one; each opens again against today. */
function Past({ query }) {
  const { repo, tick } = useContext(World);
  const state = useLoad((signal) => get("/recalls", { repo, limit: 20 }, signal), [repo], tick);
  const items = state.value?.items ?? [];
  return html`<section class="card" aria-labelledby="past"><header><h2 id="past">Past recalls</h2>${state.value?.next && html`<span class="origin">the last 20</span>`}</header>
    <${Loaded} state=${state}>${() => (items.length
      ? html`<ul class="rows">${items.map((one) => html`<li key=${`${one.at} ${one.query}`}><${To} view="recall" params=${again(one)} class="row ${one.query === query ? "chosen" : ""}"><span class="cut-line">${short(one.query, 80)}</span><span class="origin"><${Time} at=${one.at} /></span>
          <span class="origin under">${one.candidates.length ? `${one.caller ? `${one.caller} · ` : ""}${plural(one.candidates.length, "line")} · ${Math.round(one.milliseconds)} ms` : html`<span class="waiting state"><${Icon} name="none" /> nothing found</span>`}</span><//></li>`)}</ul>`
      : html`<${Empty}>None yet, or none is kept: the setting <code>recall.keep_last</code> says how many are.<//>`)}<//></section>`;
}

const again = ({ query, arguments: { k, mode, actor, thread_id } }) => ({ query, k, mode, actor, thread: thread_id });

/** How it was found: its phases on one line, and what was chosen by whom. */
function How({ found: { trace, confidence } }) {
  return html`<section class="card" aria-label="How it was found"><details class="body"><summary>How it was found</summary>
    <p class="origin">${Object.entries(trace.seconds).map(([name, seconds]) => `${name} ${(1_000 * seconds).toFixed(1)} ms`).join(" → ")}</p>
    <p class="origin">kind wanted: ${MODES[trace.mode] ?? trace.mode}, chosen by ${CHOOSERS[trace.mode_chosen_by] ?? trace.mode_chosen_by}; ${Object.entries(trace.found).map(([phase, count]) => `${phase.replaceAll("_", " ")} ${number(count)}`).join(", ") || "no candidates"}; ${(100 * confidence).toFixed(0)} % sure that the answer is among them${trace.tags.length ? `; looked for ${trace.tags.join(", ")}` : ""}</p></details></section>`;
}
