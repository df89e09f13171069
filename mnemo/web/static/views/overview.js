// Overview: what the repository knows, what is not extracted yet, what failed; live.

import { get, post } from "../api.js";
import { Badge, Empty, Failure, html, Loaded, origin, Place, plural, Query, Text, Time, To, useContext, useLoad, useState, World } from "../parts.js";

const NEWEST = 6;
const SHOWN = 20;
const MOST = 1_000;
/** States of what is unfinished, what somebody must look at first. */
const UNFINISHED = {
  failed: "could not be extracted; open it to see why and to retry",
  ready: "is extracted; recall knows the facts when it is committed",
  extracting: "is being extracted",
  collecting: "collects steps; they are extracted when it is closed",
};
const URGENCY = Object.keys(UNFINISHED);
const JOBS = { waiting: "waits for extraction", running: "is being extracted", dead: "was given up" };

export function Overview() {
  const { repo, tick } = useContext(World);
  const state = useLoad(
    async (signal) => {
      const [statistics, newest, sessions, jobs] = await Promise.all([
        get("/statistics", { repo }, signal),
        post("/memories/list", { repo }, { limit: NEWEST }, signal),
        get("/sessions", { repo, unfinished: true, limit: MOST }, signal),
        get("/jobs", { repo }, signal),
      ]);
      return { statistics, newest: newest.items, sessions, jobs };
    },
    [repo],
    tick,
  );
  return html`<div><${Loaded} state=${state}>
    ${({ statistics, newest, sessions, jobs }) => html`
      <div class="halves">
        <${Known} ...${{ statistics, newest }} />
        <${Unextracted} ...${{ sessions, jobs, statistics }} />
      </div>
      <${Recently} />
      <${Sizes} statistics=${statistics} />
    `}
  <//></div>
  <${Repositories} />`;
}

function Known({ statistics, newest }) {
  const { repo } = useContext(World);
  const { semantic = 0, procedural = 0, episodic = 0 } = statistics.nodes;
  return html`<section aria-labelledby="known">
    <h2 id="known">What “${repo}” knows</h2>
    <p class="lead">
      <strong>${plural(semantic, "fact")}</strong> and <strong>${plural(procedural, "instruction")}</strong>; replaced facts count too.${" "}
      ${episodic.toLocaleString("en")} of ${plural(statistics.steps, "step")} ${episodic === 1 ? "is" : "are"} extracted and committed.
      All steps and ${plural(statistics.messages, "message")} are kept as they were said.
    </p>
    ${newest.length
      ? html`<ul class="rows">
          ${newest.map((memory) => html`<li key=${memory.id}>
            <${To} view="memories" params=${{ id: memory.id }}><${Text} text=${memory.text} cut=${200} /><//>
            <span class="quiet">${memory.sources[0]
              ? html`${origin(memory.sources[0])}, <${Time} at=${memory.sources[0].at} day /><${Place} source=${memory.sources[0]} />`
              : "written by hand"}</span>
          </li>`)}
        </ul>
        <p>These are the newest. <${To} view="memories">All memories<//></p>
        <${Query} view="memories">
          <label>Memories with the words <input name="words" type="search" required placeholder="such as Ada" /></label><button>Find</button>
        <//>
        <${Query} view="recall">
          <label class="wide">Ask as an agent would <input name="query" type="search" required placeholder="such as: Where does Ada live?" /></label><button>Recall</button>
        <//>`
      : html`<${Empty}>Nothing yet. What is said becomes facts and instructions when it is extracted.<//>`}
  </section>`;
}

function Unextracted({ sessions, jobs, statistics }) {
  const { repo, canWrite } = useContext(World);
  const [error, setError] = useState(null);
  const sorted = sessions.toSorted((a, b) => URGENCY.indexOf(a.state) - URGENCY.indexOf(b.state));
  const untaken = Math.max(0, statistics.messages - statistics.messages_in_sessions);
  const retry = () => post("/jobs/retry", { repo }, {}).then(() => setError(null), setError);
  return html`<section aria-labelledby="unextracted">
    <h2 id="unextracted">What is not extracted or not committed yet</h2>
    ${!sessions.length && !jobs.length && !untaken && html`<${Empty}>Nothing waits: all that was said is extracted.<//>`}
    <ul class="rows">
      ${jobs.map((job) => html`<li key=${`${job.kind} ${job.subject}`}>
        <span><${Badge} kind=${job.state}>${job.state}<//> ${job.kind === "session"
          ? html`session <${To} view="sessions" params=${{ session: job.subject }}>${job.subject}<//>`
          : html`conversation <${To} view="threads" params=${{ thread: job.subject }}>${job.subject}<//>`} ${JOBS[job.state]}</span>
        <span class="quiet">${job.error ? html`<${Text} text=${job.error} cut=${300} />` : html`due <${Time} at=${job.due_at} />`}</span>
      </li>`)}
      ${sorted.slice(0, SHOWN).map((session) => html`<li key=${session.id}>
        <span><${Badge} kind=${session.state}>${session.state}<//> session${" "}
          <${To} view="sessions" params=${{ session: session.id }}><${Text} text=${session.goal} cut=${120} /><//>${" "}${UNFINISHED[session.state]}</span>
        <span class="quiet">${plural(session.steps, "step")}, <${Time} at=${session.updated_at} /></span>
      </li>`)}
      ${untaken > 0 && html`<li><span><${To} view="threads">${plural(untaken, "message")} of conversations<//> ${untaken === 1 ? "is" : "are"} in no session:
        ${" "}recall finds them as they were said, but no facts are extracted from them. <code>remember</code> and <code>feed</code> hand messages to a session.</span></li>`}
    </ul>
    ${sessions.length > SHOWN && html`<p>${SHOWN} of ${sessions.length.toLocaleString("en")} unfinished sessions are shown. <${To} view="sessions">All sessions<//></p>`}
    ${canWrite && jobs.length > 0 && html`<p><button onClick=${retry}>Extract now</button></p>`}
    ${error && html`<${Failure} error=${error} />`}
  </section>`;
}

/** Numbers of the last minute, and the newest failures. */
function Recently() {
  const { lately } = useContext(World);
  const { messages, steps, memories, erased, recalls, failures } = lately.rates();
  const rates = { "messages stored": messages, "steps stored": steps, "memories written": memories, erased, recalls, failures };
  return html`<section aria-labelledby="lately">
    <h2 id="lately">In the last minute</h2>
    <${Numbers} numbers=${rates} />
    ${lately.failures.length
      ? html`<h3>Failures since the page was opened</h3>
          <ul class="rows">${lately.failures.map((event) => html`<li key=${event.number}>
            <span><${Badge} kind="failed">${event.name}<//> <${Text} text=${event.data.error ?? "the extraction failed"} cut=${300} />
              ${event.data.session_id && html` <${To} view="sessions" params=${{ session: event.data.session_id }}>its session<//>`}</span>
            <span class="quiet"><${Time} at=${event.at} seconds /></span>
          </li>`)}</ul>`
      : html`<p class="quiet">Nothing has failed since the page was opened.</p>`}
  </section>`;
}

function Numbers({ numbers }) {
  return html`<dl class="numbers">
    ${Object.entries(numbers).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value.toLocaleString("en")}</dd></div>`)}
  </dl>`;
}

function Sizes({ statistics }) {
  const sizes = {
    messages: statistics.messages,
    steps: statistics.steps,
    notes: statistics.notes.notes,
    "embeddings (vectors)": statistics.vectors,
    "changes of the graph (revision)": statistics.revision,
    ...(statistics.checkpoints && { "checkpoints of graphs": statistics.checkpoints }),
    ...(statistics.items && { "keyed items": statistics.items }),
    "sessions open in this service": statistics.open_sessions,
    "operations queued in them": statistics.pending_operations,
    "extraction jobs waiting": statistics.jobs.waiting,
    "extraction jobs given up": statistics.jobs.dead,
    "texts without embedding yet": statistics.index.waiting,
  };
  return html`<section aria-labelledby="sizes">
    <h2 id="sizes">Sizes and queues</h2>
    <${Numbers} numbers=${sizes} />
    ${statistics.index.failing && html`<p class="failure"><strong>index:</strong> ${statistics.index.failing}</p>`}
    ${statistics.index.advice && html`<p><strong>embedder:</strong> ${statistics.index.advice}</p>`}
  </section>`;
}

function Repositories() {
  const { tick } = useContext(World);
  const state = useLoad((signal) => get("/repositories", {}, signal), [], tick);
  return html`<section aria-labelledby="repositories">
    <h2 id="repositories">Repositories</h2>
    <${Loaded} state=${state}>
      ${(records) => html`<div class="scroll" tabindex="0" role="region" aria-labelledby="repositories"><table>
        <thead><tr><th scope="col">Name</th><th scope="col">Facts</th><th scope="col" class="second">Instructions</th><th scope="col" class="second">Conversations</th><th scope="col" class="second">Sessions</th><th scope="col">Changed</th></tr></thead>
        <tbody>${records.map((record) => html`<tr key=${record.id}>
          <th scope="row"><${To} view="overview" params=${{ repo: record.id }}>${record.id}<//></th>
          ${[record.nodes.semantic || 0, record.nodes.procedural || 0, record.threads, record.sessions].map((count, column) => html`<td class=${column ? "second" : ""}>${count.toLocaleString("en")}</td>`)}<td><${Time} at=${record.changed_at} /></td>
        </tr>`)}</tbody>
      </table></div>`}
    <//>
  </section>`;
}
