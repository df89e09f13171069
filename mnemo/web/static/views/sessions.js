// Sessions: where each stands in its state machine, its steps, and what waits for a commit.

import { get, post } from "../api.js";
import { Badge, Empty, Failure, html, KINDS, Loaded, plural, Text, Time, To, useContext, useEffect, useLoad, useRef, useState, useSteady, World } from "../parts.js";

const PAGE = 100;

/** The states, what each means, and the transitions out of it. */
const MACHINE = {
  idle: ["no episode is open; nothing waits for extraction", [["start_episode", "collecting"]]],
  collecting: ["steps are appended, not extracted yet", [["append", "collecting"], ["close", "extracting"]]],
  extracting: ["facts and instructions are being found", [["extracted", "ready"], ["auto_committed", "idle"], ["auto_commit_failed", "ready"], ["extraction_failed", "failed"]]],
  ready: ["facts are extracted and wait for a commit", [["commit", "idle"], ["commit_failed", "ready"], ["discard", "idle"]]],
  failed: ["extraction failed; the steps are kept for a retry", [["commit", "extracting"], ["discard", "idle"]]],
};
const UNFINISHED_NOTE = {
  collecting: "These steps are not extracted yet: the episode is still open.",
  extracting: "These steps are being extracted now.",
  ready: "These steps are extracted, but not committed: recall does not know the facts below yet.",
  failed: "These steps could not be extracted. Retry, or discard the episode.",
};

export function Sessions({ params }) {
  const { repo, tick } = useContext(World);
  const state = useLoad((signal) => get("/sessions", { repo, limit: 1_000 }, signal), [repo], tick);
  return html`<div class=${params.session ? "split" : ""}>
    <section aria-label="List"><${Loaded} state=${state}>
      ${(sessions) => (sessions.length ? html`<${Table} ...${{ sessions, params }} />` : html`<${Empty}>No sessions yet. A session collects an agent's steps; remembering a text makes one too.<//>`)}
    <//></section>
    ${params.session && html`<${Details} key=${params.session} id=${params.session} />`}
  </div>`;
}

function Table({ sessions, params }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Sessions"><table>
    <thead><tr><th scope="col">Goal</th><th scope="col">State</th><th scope="col" class="second">Steps</th><th scope="col" class="third">Conversation</th><th scope="col" class="second">Last change</th></tr></thead>
    <tbody>${useSteady(sessions).map((session) => html`<tr key=${session.id} class=${session.id === params.session ? "chosen" : ""}>
      <th scope="row"><${To} view="sessions" params=${{ session: session.id }}><${Text} text=${session.goal || session.id} cut=${160} /><//></th>
      <td><${Badge} kind=${session.state}>${session.state}<//></td>
      <td class="second">${session.steps}</td>
      <td class="third">${session.thread_id ? html`<${To} view="threads" params=${{ thread: session.thread_id }}>${session.thread_id}<//>` : html`<span class="quiet">–</span>`}</td>
      <td class="second"><${Time} at=${session.updated_at} /></td>
    </tr>`)}</tbody>
  </table></div>
  <dl class="facts states">${Object.entries(MACHINE).map(([name, [meaning]]) => sessions.some(({ state }) => state === name) && html`<div key=${name}><dt><${Badge} kind=${name}>${name}<//></dt> <dd>${meaning}</dd></div>`)}</dl>`;
}

function Details({ id }) {
  const { repo, tick } = useContext(World);
  const [shown, setShown] = useState(PAGE);
  const [turn, setTurn] = useState(0);
  const heading = useRef(null);
  useEffect(() => heading.current?.focus(), [id]);
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
  return html`<section class="panel" aria-labelledby="details">
    <div class="head"><h2 id="details" tabindex="-1" ref=${heading}>One session</h2><${To} view="sessions">Close<//></div>
    <${Loaded} state=${state}>
      ${({ session, episode }) => html`
        <p class="lead"><${Text} text=${session.goal} /></p>
        <p class="origin">last change <${Time} at=${session.updated_at} />${session.thread_id && html`, <${To} view="threads" params=${{ thread: session.thread_id }}>conversation ${session.thread_id}<//>`}</p>
        <h3>State: ${session.state}</h3>
        <${Machine} state=${session.state} />
        <p class="quiet">Lines with an arrow: an operation or outcome, and the state that it leads to.</p>
        ${session.error && html`<p class="failure"><strong>extraction failed:</strong> <${Text} text=${session.error} /></p>`}
        <${Acts} session=${session} onDone=${() => setTurn(turn + 1)} />
        <h3>Steps of the present episode</h3>
        ${UNFINISHED_NOTE[session.state] && html`<p>${UNFINISHED_NOTE[session.state]}</p>`}
        <${Steps} ...${{ session, episode }} />
        ${episode.steps.length === shown && html`<button onClick=${() => setShown(shown + PAGE)}>Show more steps</button>`}
        ${episode.nodes && html`<${Waiting} nodes=${episode.nodes} />`}
        <p><${To} view="memories" params=${{ session: id }}>Memories from this session<//></p>
        ${session.statistics && html`<${Work} statistics=${session.statistics} />`}
        <p class="quiet id">${session.id}</p>
      `}
    <//>
  </section>`;
}

function Machine({ state }) {
  return html`<ol class="machine" aria-label="State machine">
    ${Object.entries(MACHINE).map(([name, [meaning, ways]]) => html`<li key=${name} class=${name === state ? "now" : ""} aria-current=${name === state ? "step" : undefined}>
      <strong>${name}</strong>${name === state && html` <span class="quiet">now</span>`}
      <p>${meaning}</p>
      <ul>${ways.map(([trigger, to]) => html`<li key=${trigger}>${trigger} → ${to}</li>`)}</ul>
    </li>`)}
  </ol>`;
}

const LEGAL = { collecting: ["close"], ready: ["commit", "discard"], failed: ["retry", "discard"] };
const LABELS = { close: "Close and extract", commit: "Commit", retry: "Retry the extraction", discard: "Discard" };

function Acts({ session, onDone }) {
  const { repo, canWrite } = useContext(World);
  const [running, setRunning] = useState("");
  const [sure, setSure] = useState(false);
  const [error, setError] = useState(null);
  const act = async (operation) => {
    if (operation === "discard" && !sure) return setSure(true);
    setRunning(operation);
    try {
      await post(`/session/${operation}`, { repo, session: session.id });
      setError(null);
    } catch (problem) {
      setError(problem);
    }
    setSure(false);
    setRunning("");
    onDone();
    return undefined;
  };
  if (!canWrite || !LEGAL[session.state]) return null;
  return html`<div><p class="acts">
      ${LEGAL[session.state].map((operation) => html`<button key=${operation} class=${operation === "discard" ? "danger" : ""} disabled=${Boolean(running)} onClick=${() => act(operation)}>
        ${operation === "discard" && sure ? "Discard for good?" : LABELS[operation]}${running === operation ? " …" : ""}
      </button>`)}
    </p>
    ${error && html`<${Failure} error=${error} />`}</div>`;
}

function Steps({ session, episode }) {
  if (!episode.steps.length) {
    return html`<${Empty}>None is open: ${session.steps ? `all ${plural(session.steps, "step")} of earlier episodes are committed or discarded.` : "nothing was appended."}<//>`;
  }
  return html`<ol class="steps">
    ${episode.steps.map((step) => html`<li key=${step.index} class=${step.annotation?.boundary ? "boundary" : ""}>
      ${step.annotation?.boundary && html`<p class="cut">a new trajectory begins here</p>`}
      <p><span class="who">Step ${step.index}, ${step.actor}:</span> <${Text} text=${step.observation} cut=${600} /></p>
      ${step.action && html`<p>→ <${Text} text=${step.action} cut=${600} /></p>`}
      <p class="origin"><${Time} at=${step.at} />
        ${step.annotation?.subgoal && html`; subgoal: <${Text} text=${step.annotation.subgoal} cut=${120} />`}
        ${step.annotation?.reward != null && html`; reward ${step.annotation.reward.toFixed(2)}`}
        ; ${episode.committed.includes(step.index) ? "committed" : "not committed yet"}</p>
    </li>`)}
  </ol>`;
}

function Waiting({ nodes }) {
  const found = nodes.filter((node) => node.type in KINDS && node.type !== "episodic");
  return html`<h3>What a commit would add</h3>
    ${found.length
      ? html`<ul class="rows">${found.map((node) => html`<li key=${node.id}><span><${Badge}>${KINDS[node.type]}<//> <${Text} text=${node.proposition ?? [node.condition, node.instruction].filter(Boolean).join("\n")} cut=${300} /></span></li>`)}</ul>`
      : html`<${Empty}>No fact and no instruction, only the steps themselves.<//>`}`;
}

function Work({ statistics }) {
  const shown = {
    "queued operations": statistics.pending_operations,
    "steps to annotate": statistics.append_backlog,
    "running workers": statistics.running_workers,
    "model calls": statistics.model_calls,
    "input tokens": statistics.input_tokens,
    "output tokens": statistics.output_tokens,
  };
  return html`<h3>Work in this service</h3>
    <p>Queue: ${statistics.queue.length ? statistics.queue.map((name) => name.replaceAll("_", " ")).join(" → ") : "no operation waits"}.</p>
    <dl class="numbers">
    ${Object.entries(shown).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value.toLocaleString("en")}</dd></div>`)}
  </dl>`;
}
