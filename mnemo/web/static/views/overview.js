// Overview: is the service well; what failed, came in, went out, waits? All repositories at once.

import { follow, get, getAll, post } from "../api.js";
import { address, clock, Empty, Failure, html, Icon, Loaded, number, plural, Search, short, span, State, Time, Title, To, useContext, useEffect, useLoad, useRef, useSorted, useState, World } from "../parts.js";
import { Curves } from "./curves.js";

/** Repositories and failed sessions that are looked into, at most. */
const MOST_LOOKED = 20;
/** Repositories whose last words stand under "Just now". */
const MOST_HEARD = 3;
const MOST_NEWS = 8;
/** Repositories that are listed. */
const LISTED = 200;

export function Overview() {
  const { repositories, tick, live, since, loadedAt } = useContext(World);
  const troubled = repositories.filter((record) => record.failed || record.ready);
  const state = useLoad(async (signal) => (await Promise.all(troubled.slice(0, MOST_LOOKED).map((record) => troubles(record.id, signal)))).flat(), [troubled.map((record) => record.id).join("\n")], tick);
  const sum = (name) => repositories.reduce((whole, record) => whole + record[name], 0);
  const text = titled(sum("failed"), sum("ready"), !live && since);
  // Each card in an element of its own: one that comes late must not be put behind one that came early.
  return html`
    <${Title} text=${text}><span class="origin">all repositories${loadedAt && html` · as of ${clock(loadedAt, true)}`}</span><//>
    <div><${Loaded} state=${state}>${(found) => html`<${Troubles} found=${found} />`}<//></div>
    <div><${Backlog} /></div>
    <div><${Curves} /></div>
    <div class="overview"><${Repositories} /><${News} /></div>`;
}

function titled(failed, ready, since) {
  if (since && !failed && !ready) return `All was well at ${clock(since)}.`;
  if (!failed && !ready) return "All is well.";
  const parts = [failed && `${plural(failed, "session")} failed`, ready && `${plural(ready, "session")} to commit`].filter(Boolean);
  return `${parts.join(", ")}. The rest is well.`;
}

/** What failed or waits for a hand in one repository: sessions with their errors, jobs whose last try failed. */
async function troubles(repo, signal) {
  const [sessions, jobs] = await Promise.all([
    get("/sessions", { repo, unfinished: true, limit: 1_000 }, signal),
    get("/jobs", { repo }, signal),
  ]);
  const open = sessions.filter(({ state }) => state === "failed" || state === "ready").slice(0, MOST_LOOKED);
  const looks = await Promise.all(open.map((session) => (session.state === "failed" ? get("/session", { repo, session: session.id }, signal) : session)));
  const broken = jobs.filter((job) => job.error && job.kind !== "embed").slice(0, MOST_LOOKED);
  return [
    ...looks.map((session) => ({ repo, id: session.id, kind: session.state, title: session.goal || session.id, error: session.error, steps: session.steps, at: session.updated_at })),
    ...broken.map((job) => ({ repo, id: job.subject, kind: job.state === "dead" ? "dead" : "again", title: `${job.kind === "extract" ? "Conversation" : job.kind} ${job.subject}`, error: job.error, job, at: job.due_at })),
  ];
}

/** An error without what differs from session to session. */
export const causeOf = (error) => String(error ?? "unknown").replace(/^extraction of \w+ \S+ failed: /, "").replace(/\s*\(.*\)$/, "");

function Troubles({ found }) {
  if (!found.length) return null;
  const causes = Map.groupBy(found.filter(({ kind }) => kind !== "ready"), ({ error }) => causeOf(error));
  return html`<section class="card" aria-label="What failed and what waits">
    ${[...causes].toSorted(([, a], [, b]) => b.length - a.length).map(([cause, all]) => html`${all.length > 1 && html`<${Cause} key=${cause} ...${{ cause, all }} />`}
      ${all.map((one) => html`<${Trouble} key=${`${one.repo} ${one.id}`} one=${one} isAlone=${all.length === 1} />`)}`)}
    ${found.filter(({ kind }) => kind === "ready").map((one) => html`<${Trouble} key=${`${one.repo} ${one.id}`} one=${one} />`)}
  </section>`;
}

const ACTS = { failed: ["retry", "Retry"], dead: ["retry", "Retry"], again: ["retry", "Retry"], ready: ["commit", "Commit"] };

const act = (one) =>
  one.job
    ? post("/jobs/retry", { repo: one.repo }, one.job.kind === "extract" ? { thread_ids: [one.id] } : {})
    : post(`/session/${ACTS[one.kind][0]}`, { repo: one.repo, session: one.id });

/** Do *work* by a button that says that it runs, and what went wrong. */
function Act({ label, work, first = false }) {
  const [state, setState] = useState({ busy: false, error: null });
  const run = async () => {
    setState({ busy: true, error: null });
    await work().then(() => setState({ busy: false, error: null }), (error) => setState({ busy: false, error }));
  };
  return html`${state.error && html`<${Failure} error=${state.error} />`}<button class=${first ? "first" : ""} disabled=${state.busy} onClick=${run}>${label}${state.busy ? " …" : ""}</button>`;
}

function Cause({ cause, all }) {
  const { canWrite } = useContext(World);
  const retry = async () => {
    const done = await Promise.allSettled(all.map(act));
    const failed = done.find(({ status }) => status === "rejected");
    if (failed) throw failed.reason;
  };
  return html`<div class="cause"><span class="failed state"><${Icon} name="failed" /></span><span>One cause: ${short(cause, 160)}</span>
    ${canWrite && html`<${Act} first label=${all.length === 2 ? "Retry both" : `Retry all ${all.length}`} work=${retry} />`}</div>`;
}

function Trouble({ one, isAlone }) {
  const { canWrite } = useContext(World);
  const kept = one.job ? (one.kind === "dead" ? "given up" : "is tried again by itself") : `${plural(one.steps, "step")} ${one.steps === 1 ? "is" : "are"} kept`;
  const told = one.kind === "ready" ? "extracted; recall knows it once it is committed" : [isAlone && short(causeOf(one.error), 160), kept].filter(Boolean).join(" · ");
  const view = one.job?.kind === "extract" ? ["threads", { thread: one.id }] : ["sessions", { session: one.id }];
  return html`<div class="trouble"><${State} ...${one.kind === "ready" ? { kind: "ready", word: "to commit" } : { kind: "failed" }} />
    <${To} view=${view[0]} params=${{ repo: one.repo, ...view[1] }}><span class="strong">${short(one.title, 120)}</span><br /><span class="origin">${told}<span class="where"> · ${one.repo}, <${Time} at=${one.at} age /></span></span><//>
    <span class="soft cut-line">${one.repo}</span><span class="soft num"><${Time} at=${one.at} age /></span>
    <span>${canWrite && html`<${Act} label=${ACTS[one.kind][1]} work=${() => act(one)} first=${isAlone} />`}</span></div>`;
}

/** Messages whose extraction waits, in all repositories, the oldest, and how long it will take. */
function Backlog() {
  const { repositories, tick } = useContext(World);
  const busy = repositories.filter((record) => record.waiting).slice(0, MOST_LOOKED).map((record) => record.id);
  const state = useLoad(async (signal) => {
    const looks = await Promise.all(busy.map((repo) => Promise.all([get("/jobs", { repo }, signal), get("/statistics", { repo }, signal)])));
    const due = looks.flatMap(([jobs]) => jobs.filter((job) => job.kind !== "embed" && job.state !== "dead" && !job.error).map((job) => Date.parse(job.due_at)));
    const levels = looks.map(([, { jobs }]) => jobs);
    const sum = (name) => levels.reduce((whole, one) => whole + (one[name] ?? 0), 0);
    const oldest = Math.min(...levels.filter((one) => one.oldest_at).map((one) => Date.parse(one.oldest_at)));
    return { jobs: due.length, waiting: sum("messages"), per_s: sum("per_s"), isLate: Math.min(...due) < Date.now() - 1_000, oldest };
  }, [busy.join("\n")], tick);
  const seen = useRef([]);
  const found = state.value;
  if (!found?.jobs || !found.waiting || !busy.length) return null;
  seen.current = [...seen.current.filter(({ at }) => at > Date.now() - 60_000), { at: Date.now(), waiting: found.waiting }];
  const [first] = seen.current;
  // Of several workers, the one that answers may not be the one that extracts.
  const rate = found.per_s || (first.waiting - found.waiting) / Math.max(1, (Date.now() - first.at) / 1_000);
  const told = [[rate, "second"], [60 * rate, "minute"], [3_600 * rate, "hour"]].find(([value]) => value >= 1);
  const when = found.isLate ? `, the oldest for ${span((Date.now() - found.oldest) / 1_000)}` : ", until nothing more is said for a moment";
  return html`<section class="card banner" aria-label="Backlog"><${State} kind="waiting" word="" />
    <p><strong>${plural(found.waiting, "message")} ${found.waiting === 1 ? "waits" : "wait"}</strong>${when}${told ? `; ${number(Math.round(told[0] * 10) / 10)} a ${told[1]}, done in about ${span(found.waiting / rate)}` : ""}.</p></section>`;
}

const COLUMNS = {
  id: (record) => record.id, failed: (record) => record.failed, ready: (record) => record.ready, waiting: (record) => record.waiting,
  facts: (record) => record.nodes.semantic ?? 0, changed: (record) => Date.parse(record.changed_at ?? 0),
};

function Repositories() {
  const { repositories } = useContext(World);
  const [words, setWords] = useState("");
  const found = repositories.filter((record) => record.id.toLowerCase().includes(words.toLowerCase())).toSorted((a, b) => b.ready - a.ready || Date.parse(b.changed_at ?? 0) - Date.parse(a.changed_at ?? 0));
  const [sorted, head] = useSorted(found, COLUMNS, "failed");
  return html`<section class="card" aria-labelledby="repositories">
    <header><h2 id="repositories">Repositories <span class="origin">${repositories.length}</span></h2><${Search} label="Filter" value=${words} onInput=${setWords} /></header>
    <table><thead><tr>${head("id", "Name")}${head("failed", "Failed", "num")}${head("ready", "To commit", "num")}${head("waiting", "Waiting", "num second")}${head("facts", "Facts", "num second")}${head("changed", "Last write", "num")}</tr></thead>
      <tbody>${sorted.slice(0, LISTED).map((record) => html`<tr key=${record.id}>
        <th scope="row"><a class="row-link" href=${address("sessions", { repo: record.id })}>${record.id}</a></th>
        <td class="num">${record.failed ? html`<${State} kind="failed" word=${record.failed} />` : html`<span class="soft">0</span>`}</td>
        <td class="num">${record.ready ? html`<${State} kind="ready" word=${record.ready} />` : html`<span class="soft">0</span>`}</td>
        <td class="num second">${record.waiting ? html`<${State} kind="waiting" word=${record.waiting} />` : html`<span class="soft">0</span>`}</td>
        <td class="num second">${number(COLUMNS.facts(record))}</td><td class="num soft"><${Time} at=${record.changed_at} age /></td>
      </tr>`)}</tbody></table>
    ${!sorted.length && html`<${Empty}>${repositories.length ? "No repository has this in its name." : "No repository holds anything yet."}<//>`}
    ${sorted.length > LISTED && html`<p class="more origin">the first ${number(LISTED)} of ${number(sorted.length)}; others are found by their name</p>`}
  </section>`;
}

/** The last words of the repositories that changed last, and recalls of all since the page was opened. */
function News() {
  const { repositories, tick, live, since } = useContext(World);
  const [recalls, setRecalls] = useState([]);
  const heard = repositories.filter((record) => record.threads).toSorted((a, b) => Date.parse(b.changed_at ?? 0) - Date.parse(a.changed_at ?? 0)).slice(0, MOST_HEARD).map((record) => record.id);
  useEffect(() => {
    const abort = new AbortController();
    const happened = ({ name, data }) => {
      if (name.startsWith("Recall")) setRecalls((old) => [{ ...data, isOut: true }, ...old].slice(0, MOST_NEWS));
    };
    follow(null, abort.signal, happened, () => {}).catch(() => {});
    return () => abort.abort();
  }, []);
  const state = useLoad(async (signal) => (await Promise.all(heard.map((repo) => lastSaid(repo, signal)))).flat(), [heard.join("\n")], tick);
  const news = [...recalls, ...(state.value ?? [])].toSorted((a, b) => Date.parse(b.at) - Date.parse(a.at)).slice(0, MOST_NEWS);
  return html`<section class="card" aria-labelledby="news">
    <header><h2 id="news">${live || !since ? "Just now" : "Last seen"}</h2><span class="origin state"><${Icon} name="in" /> in <span class="running state"><${Icon} name="out" /></span> out</span></header>
    ${news.length ? html`<ul class="rows">${news.map((one) => html`<li key=${`${one.repo_id} ${one.at} ${one.seq ?? one.query}`}>
      <${To} view=${one.isOut ? "recall" : "threads"} class="row" params=${one.isOut ? { repo: one.repo_id, query: one.query } : { repo: one.repo_id, thread: one.thread_id, message: one.id }}>
        <span class="cut-line"><span class=${one.isOut ? "running" : "soft"}><${Icon} name=${one.isOut ? "out" : "in"} /></span> <span class="hidden">${one.isOut ? "out" : "in"} </span>${short(one.isOut ? one.query : one.content, 70)}</span>
        <span class="origin"><${Time} at=${one.at} age /></span>
        <span class="origin under">${one.isOut ? outcome(one) : one.actor || one.role} · ${one.repo_id}</span><//></li>`)}</ul>`
      : html`<${Empty}>Nothing came in or went out yet.<//>`}
  </section>`;
}

function outcome({ error, result_count, duration_s }) {
  if (error) return html`<${State} kind="failed" word=${short(error, 60)} />`;
  return result_count ? `${plural(result_count, "line")}, ${Math.round(1_000 * duration_s)} ms` : html`<span class="waiting state"><${Icon} name="none" /> nothing found</span>`;
}

/** The newest messages of the thread that was written to last. */
async function lastSaid(repo, signal) {
  const threads = await getAll("/conversations", "thread_id", { repo }, signal);
  const [last] = threads.filter((thread) => thread.messages).toSorted((a, b) => Date.parse(b.last_at ?? 0) - Date.parse(a.last_at ?? 0));
  if (!last) return [];
  const from_seq = Math.max(0, last.next_seq - 4);
  const { items } = await get("/conversation/messages", { repo, thread: last.thread_id, from_seq, limit: 4 }, signal);
  return items.map((message) => ({ ...message, repo_id: repo, at: message.recorded_at, content: typeof message.content === "string" ? message.content : JSON.stringify(message.content) }));
}
