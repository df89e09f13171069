// Sessions: which failed, why, and again; what each collected, and what came of it.

import { get, post } from "../api.js";
import { address, Empty, Failure, html, Icon, KINDS, Loaded, Name, number, plural, Search, short, State, Text, Time, Title, To, useContext, useEffect, useLoad, useRef, useState, useSteady, World } from "../parts.js";
import { causeOf } from "./overview.js";

const PAGE = 100;
const LISTED = 50;

/** The states, what each means, and the transitions out of it. */
const MACHINE = {
  idle: ["no episode is open; nothing waits for extraction", [["start_episode", "collecting"]]],
  collecting: ["steps are appended, not extracted yet", [["append", "collecting"], ["close", "extracting"]]],
  extracting: ["facts and instructions are being found", [["extracted", "ready"], ["auto_committed", "idle"], ["auto_commit_failed", "ready"], ["extraction_failed", "failed"]]],
  ready: ["facts are extracted and wait for a commit", [["commit", "idle"], ["commit_failed", "ready"], ["discard", "idle"]]],
  failed: ["extraction failed; the steps are kept for a retry", [["commit", "extracting"], ["discard", "idle"]]],
};
/** Groups of the list, what needs a hand first: the icon and the word. */
const GROUPS = { failed: ["failed", "Failed"], ready: ["ready", "To commit"], extracting: ["running", "Extracting"], collecting: ["running", "Collecting"], idle: ["done", "Done"] };
const REMEMBERED = "Remember what was said.";

export function Sessions({ params }) {
  const { repo, tick } = useContext(World);
  const state = useLoad((signal) => get("/sessions", { repo, limit: 1_000 }, signal), [repo], tick);
  const sessions = state.value ?? [];
  const count = (name) => sessions.filter((session) => session.state === name).length;
  const text = [count("failed") && `${plural(count("failed"), "session")} failed`, count("ready") && `${count("ready")} ${count("ready") === 1 ? "waits" : "wait"} for a commit`].filter(Boolean).join(", ");
  const chosen = params.session ?? (params.list ? undefined : sessions.find((session) => session.state === "failed")?.id ?? sessions.find((session) => session.state === "ready")?.id);
  return html`
    <${Title} text=${state.value ? text || (sessions.length ? "All sessions are well" : "No sessions yet") : "Sessions"}>${state.value && html`<span class="origin">${number(sessions.length)}${sessions.length === 1_000 ? ", the newest" : ""} in all</span>`}<//>
    <div class="sides ${chosen ? "open" : ""}">
      <${Loaded} state=${state}>${() => html`<${List} ...${{ sessions, chosen }} />`}<//>
      ${chosen && html`<${Details} key=${chosen} id=${chosen} isAsked=${Boolean(params.session)} count=${sessions.length} />`}
    </div>`;
}

/** First words of remembered sessions, by id, the last of them. */
const FIRST_WORDS = new Map();
const MOST_NAMED = 500;
/** Steps that are shown of an episode, at most. */
const MOST_STEPS = 1_000;

/** The first words of the sessions that were remembered, as far as they are shown. */
function useFirstWords(sessions) {
  const { repo } = useContext(World);
  const wanted = sessions.filter(({ id, goal }) => goal === REMEMBERED && !FIRST_WORDS.has(id)).slice(0, 30).map(({ id }) => id);
  useLoad(async (signal) => {
    await Promise.all(wanted.map(async (id) => {
      const page = await post("/memories/list", { repo }, { session_id: id, limit: 1, order: "oldest" }, signal);
      FIRST_WORDS.set(id, page.items[0]?.sources.at(-1)?.text ?? "");
    }));
    for (const id of [...FIRST_WORDS.keys()].slice(0, -MOST_NAMED)) FIRST_WORDS.delete(id);
    return wanted.length;
  }, [wanted.join("\n")]);
  return ({ id, goal, thread_id }) => (goal === REMEMBERED ? FIRST_WORDS.get(id) || `Remembered from ${thread_id}` : goal || id);
}

function List({ sessions, chosen }) {
  const [words, setWords] = useState("");
  const [most, setMost] = useState(LISTED);
  const steady = useSteady(sessions);
  const shown = steady.slice(0, most);
  const named = useFirstWords(shown);
  const has = (session) => words.toLowerCase().split(/\s+/).every((word) => `${named(session)} ${session.id} ${session.thread_id ?? ""}`.toLowerCase().includes(word));
  const found = words ? steady.filter(has) : steady;
  if (!sessions.length) return html`<section class="card" aria-label="List"><${Empty}><strong>No sessions yet.</strong> A session collects an agent's steps; remembering a text makes one too.<br /><code>mnemo remember "I live in Lund." --actor Ada</code><//></section>`;
  return html`<section class="card" aria-label="List">
    <header><${Search} large label="Goal or first words" value=${words} onInput=${setWords} /></header>
    ${Object.entries(GROUPS).map(([name, [icon, word]]) => {
      const all = found.filter((session) => session.state === name);
      return all.length > 0 && html`<details key=${name} open class="indent"><summary class="group"><${State} kind=${icon} word=${word} /><span class="soft">${number(all.length)}</span></summary>
        <ul class="rows">${all.slice(0, most).map((session) => html`<li key=${session.id}>
          <${To} view="sessions" params=${{ session: session.id }} class="row ${session.id === chosen ? "chosen" : ""}" aria-current=${session.id === chosen ? "true" : undefined}>
            <span class="cut-line">${short(named(session), 160)}</span><span class="origin"><${Time} at=${session.updated_at} age /></span>
            <span class="origin under">${[session.goal === REMEMBERED && session.thread_id, plural(session.steps, "step"), name === "ready" && "extracted"].filter(Boolean).join(", ")}</span><//>
        </li>`)}</ul></details>`;
    })}
    ${!found.length && html`<${Empty}>No session has these words.<//>`}
    ${found.length > most && html`<div class="more"><button class="plain" onClick=${() => setMost(most + LISTED)}>Load more</button></div>`}
  </section>`;
}

function Details({ id, isAsked, count }) {
  const { repo, tick } = useContext(World);
  const [shown, setShown] = useState(PAGE);
  const [turn, setTurn] = useState(0);
  const heading = useRef(null);
  useEffect(() => void (isAsked && heading.current?.focus({ preventScroll: true })), [id]);
  const state = useLoad(
    async (signal) => {
      const where = { repo, session: id };
      const [session, episode] = await Promise.all([
        get("/session", where, signal),
        get("/session/steps", { ...where, limit: shown }, signal),
      ]);
      return { session, episode };
    },
    [repo, id, turn, shown],
    tick,
  );
  return html`<section aria-labelledby="details">
    <${To} view="sessions" class="back" params=${{ list: 1 }} data-close=${isAsked || undefined}>‹ All ${plural(count, "session")}<//>
    <${Loaded} state=${state}>
      ${({ session, episode }) => html`
        ${session.is_partial && html`<p class="card body"><${State} kind="waiting" word="as stored" /> A worker that may have this session open does not answer.</p>`}
        <${Verdict} ...${{ session, episode }} onDone=${() => setTurn(turn + 1)} />
        <div class="card">
          <header><h2 id="details" tabindex="-1" ref=${heading}><${Text} text=${session.goal === REMEMBERED ? `Remembered from ${session.thread_id}` : session.goal || session.id} cut=${200} /></h2>
            <span class="origin">${plural(session.steps, "step")}, <${Time} at=${session.updated_at} /></span></header>
          <${Steps} ...${{ session, episode }} />
          ${episode.steps.length === shown && html`<div class="more">${shown < MOST_STEPS ? html`<button class="plain" onClick=${() => setShown(shown + PAGE)}>Show more steps</button>` : html`<span class="origin">the first ${number(MOST_STEPS)} steps</span>`}</div>`}
        </div>
        ${episode.nodes && html`<${Waiting} nodes=${episode.nodes} />`}
        <${Brought} id=${id} />
        <div class="card">
          ${session.error && html`<div class="body"><details open><summary>The error in full</summary><pre><${Text} text=${session.error} /></pre></details></div>`}
          <div class="body"><${Machine} state=${session.state} /></div>
          ${session.statistics && html`<div class="body"><${Work} statistics=${session.statistics} /></div>`}
          <p class="body origin mono">${session.thread_id && html`<${To} view="threads" params=${{ thread: session.thread_id }}>conversation ${session.thread_id}<//> · `}${session.id}</p>
        </div>
      `}
    <//>
  </section>`;
}

const UNFINISHED = {
  collecting: "It still collects: its steps are not extracted yet.",
  extracting: "Its steps are being extracted now.",
  ready: "Extracted. Recall does not know the facts below until you commit.",
};
const ACTS = { collecting: ["close"], ready: ["commit", "discard"], failed: ["retry", "without", "discard"] };
const LABELS = { close: "Close and extract", commit: "Commit", retry: "Retry", without: "Retry without the model", discard: "Discard …" };

/** What is the matter, and what can be done, before anything else. */
function Verdict({ session, episode, onDone }) {
  const { repo, canWrite } = useContext(World);
  const [running, setRunning] = useState("");
  const [sure, setSure] = useState(false);
  const [error, setError] = useState(null);
  const act = async (operation) => {
    if (operation === "discard" && !sure) return setSure(true);
    setRunning(operation);
    const [path, how] = operation === "without" ? ["retry", { use_model: false }] : [operation];
    await post(`/session/${path}`, { repo, session: session.id, ...how }).then(() => setError(null), setError);
    setSure(false);
    setRunning("");
    return onDone();
  };
  const isFailed = session.state === "failed";
  if (!isFailed && !UNFINISHED[session.state]) return null;
  const cause = causeOf(session.error);
  const [first] = ACTS[session.state] ?? [];
  return html`<section class="card ${isFailed ? "bad failure-card" : ""}" aria-label="State"><div class="body">
    <p class=${isFailed ? "lead strong" : ""}><${State} kind=${GROUPS[session.state][0]} word=${GROUPS[session.state][1]} /> ${isFailed ? html`<${Text} text=${cause[0].toUpperCase() + cause.slice(1)} cut=${160} />` : UNFINISHED[session.state]}</p>
    ${isFailed && html`<p class="soft">Last tried <${Time} at=${session.updated_at} seconds />. ${plural(episode.steps.length, "step")} ${episode.steps.length === 1 ? "is" : "are"} kept; nothing was written.</p>`}
    ${canWrite && ACTS[session.state] && html`<p class="acts">${ACTS[session.state].map((operation) => html`<button key=${operation} class=${operation === first ? "first" : operation === "discard" ? (sure ? "danger" : "quiet") : ""} disabled=${Boolean(running)} onClick=${() => act(operation)}>
      ${operation === "discard" && sure ? "Discard for good?" : LABELS[operation]}${running === operation ? " …" : ""}</button>`)}</p>`}
    ${error && html`<${Failure} error=${error} />`}</div></section>`;
}

function Machine({ state }) {
  return html`<details><summary>State: <strong>${state}</strong></summary><ol class="machine" aria-label="State machine">
    ${Object.entries(MACHINE).map(([name, [meaning, ways]]) => html`<li key=${name} class=${name === state ? "now" : ""} aria-current=${name === state ? "step" : undefined}>
      <strong>${name}</strong>${name === state && html` <span class="soft">now</span>`} <span class="soft">${meaning}</span>
      <ul class="origin">${ways.map(([trigger, to]) => html`<li key=${trigger}>${trigger} → ${to}</li>`)}</ul>
    </li>`)}
  </ol></details>`;
}

function Steps({ session, episode }) {
  if (!episode.steps.length) {
    return html`<${Empty}>None is open: ${session.steps ? `all ${plural(session.steps, "step")} of earlier episodes are committed or discarded.` : "nothing was appended."}<//>`;
  }
  // What is the same in all steps, or as in the one before, is not said again.
  const rewards = new Set(episode.steps.map((step) => step.annotation?.reward));
  const isNew = (index, of) => of(episode.steps[index]) !== (index ? of(episode.steps[index - 1]) : session.goal);
  return html`<ol class="steps">
    ${episode.steps.map((step, index) => html`<li key=${step.index}>
      ${step.annotation?.boundary && html`<p class="boundary">a new trajectory begins here</p>`}
      <span class="soft num">${step.index + 1}</span><div>
      <p>${step.actor && html`<${Name} name=${step.actor} /> `}<${Text} text=${step.observation} cut=${600} /></p>
      ${step.action && html`<p class="soft"><${Icon} name="to" /> <${Text} text=${step.action} cut=${600} /></p>`}
      <p class="origin">${isNew(index, (one) => one.at?.slice(0, 16)) && html`<${Time} at=${step.at} />`}
        ${step.annotation?.subgoal && isNew(index, (one) => one.annotation?.subgoal) && html`; subgoal: <${Text} text=${step.annotation.subgoal} cut=${120} />`}
        ${step.annotation?.reward != null && rewards.size > 1 && html`; reward ${step.annotation.reward.toFixed(2)}`}${episode.committed.includes(step.index) ? "; committed" : ""}</p></div>
    </li>`)}
  </ol>`;
}

function Waiting({ nodes }) {
  const found = nodes.filter((node) => node.type in KINDS && node.type !== "episodic");
  return html`<section class="card" aria-labelledby="adds"><header><h2 id="adds">What a commit would add <span class="origin">${found.length}</span></h2></header>
    ${found.length
      ? html`<ul class="rows">${found.map((node) => html`<li key=${node.id} class="row"><span><${Text} text=${node.proposition ?? [node.condition, node.instruction].filter(Boolean).join("\n")} cut=${300} /></span><span class="origin">${KINDS[node.type]}</span></li>`)}</ul>`
      : html`<${Empty}>No fact and no instruction, only the steps themselves.<//>`}</section>`;
}

/** The facts that came of a session. */
function Brought({ id }) {
  const { repo, tick } = useContext(World);
  const state = useLoad((signal) => post("/memories/list", { repo }, { session_id: id, limit: 10, order: "oldest" }, signal), [repo, id], tick);
  if (!state.value?.items.length) return null;
  return html`<section class="card" aria-labelledby="brought"><header><h2 id="brought">What came of it</h2><a href=${address("memories", { repo, session: id })}>Memories from this session</a></header>
    <ul class="rows">${state.value.items.map((memory) => html`<li key=${memory.id}><${To} view="memories" params=${{ id: memory.id }} class="row"><span><${Text} text=${memory.text} cut=${300} /></span><//></li>`)}</ul></section>`;
}

function Work({ statistics }) {
  const { queue, append_backlog, model_calls, input_tokens, output_tokens } = statistics;
  return html`<p>Queue: ${queue.length ? queue.map((name) => name.replaceAll("_", " ")).join(" → ") : "no operation waits"}.</p>
    ${(append_backlog || model_calls) > 0 && html`<p class="origin">${append_backlog ? `${plural(append_backlog, "step")} to annotate, ` : ""}${plural(model_calls, "model call")}, ${number(input_tokens)} tokens in, ${number(output_tokens)} out</p>`}`;
}
