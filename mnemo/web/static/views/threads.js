// Threads: does something leave the window, and what? The messages as they were said, and as they are sent.

import { get, getAll, post } from "../api.js";
import { address, Empty, Failure, html, Icon, Loaded, Name, number, plural, Search, short, Text, Time, dayOf, Title, To, useContext, useEffect, useLoad, useRef, useState, World } from "../parts.js";

const PAGE = 100;
/** Threads that are listed, the last ones written to. */
const LISTED = 200;
const ZONES = { eviction: "leave next", middle: "stay for now", recent: "stay longest" };

export function Threads({ params }) {
  const { repo, tick } = useContext(World);
  const [words, setWords] = useState("");
  const state = useLoad((signal) => getAll("/conversations", "thread_id", { repo }, signal), [repo], tick);
  const threads = (state.value ?? []).toSorted((a, b) => Date.parse(b.last_at ?? 0) - Date.parse(a.last_at ?? 0));
  const chosen = params.thread ?? (threads.length === 1 && !params.list ? threads[0].thread_id : undefined);
  if (chosen) return html`<${Conversation} key=${chosen} thread=${chosen} params=${params} count=${threads.length} record=${threads.find((one) => one.thread_id === chosen)} />`;
  const found = threads.filter((one) => one.thread_id.toLowerCase().includes(words.toLowerCase()));
  return html`<${Title} text=${threads.length ? plural(threads.length, "thread") : "Threads"} />
    <section class="card" aria-label="List">${threads.length > 1 && html`<header><${Search} large label="Thread" value=${words} onInput=${setWords} /></header>`}<${Loaded} state=${state}>${() => (threads.length
      ? html`<ul class="rows">${found.slice(0, LISTED).map((thread) => html`<li key=${thread.thread_id}><${To} view="threads" params=${{ thread: thread.thread_id }} class="row"><span class="strong text">${thread.thread_id}</span><span class="origin"><${Time} at=${thread.last_at} /></span><span class="origin under">${plural(thread.messages, "message")}, ${plural(thread.tokens, "token")}</span><//></li>`)}</ul>
        ${!found.length && html`<${Empty}>No thread has these letters.<//>`}
        ${found.length > LISTED && html`<p class="more origin">the last ${number(LISTED)} of ${number(found.length)}; others are found by their name</p>`}`
      : html`<${Empty}><strong>No conversations yet.</strong> A thread is what was said in one, in order.<br /><code>mnemo remember "I live in Lund." --actor Ada</code><//>`)}<//></section>`;
}

function Conversation({ thread, params, count, record }) {
  const { repo, tick } = useContext(World);
  const where = { repo, thread };
  const isSent = params.as === "sent";
  const state = useLoad(
    async (signal) => {
      const [window, derived] = await Promise.all([get("/conversation/window", where, signal), get("/conversation/derived", where, signal)]);
      return { window, derived };
    },
    [repo, thread],
    tick,
  );
  const to = (as) => address("threads", { repo, thread, as });
  return html`<${Title} text=${thread}><span class="soft">${record && `${plural(record.messages, "message")}${record.last_at ? `, the last ${dayOf(record.last_at)}` : ""}`}</span>
      <span class="chips">${count > 1 && html`<${To} view="threads" params=${{ list: 1 }} data-close>All ${plural(count, "thread")}<//>`}<nav class="switch" aria-label="Messages"><a class="button" href=${to()} aria-current=${isSent ? undefined : "page"}>As said</a><a class="button" href=${to("sent")} aria-current=${isSent ? "page" : undefined}>As sent</a></nav></span><//>
    <${Loaded} state=${state}>${({ window, derived }) => html`<${Window} window=${window} /><${Derived} ...${derived} />
      ${isSent ? html`<${Sent} window=${window} />` : html`<${Messages} window=${window} params=${{ ...params, thread }} />`}`}<//>`;
}

const tokensOf = (messages) => messages.reduce((sum, message) => sum + (message.token_count || 0), 0);

/** One bar of tokens, with the mark where leaving begins. */
function Window({ window }) {
  const { budget, zones, is_due } = window;
  const parts = Object.keys(ZONES).map((zone) => [zone, zones[zone].length, tokensOf(zones[zone])]);
  const most = Math.max(budget.window, window.tokens);
  let passed = 0;
  const x = (tokens) => `${(100 * tokens) / most}%`;
  const title = is_due ? `The window is full: ${plural(zones.eviction.length, "message")} ${zones.eviction.length === 1 ? "leaves" : "leave"} next` : `Nothing leaves below ${number(budget.trigger)} tokens`;
  return html`<section class="card" aria-labelledby="window"><header><h2 id="window">${title}</h2><span class="origin">${number(window.tokens)} of ${number(budget.window)} tokens</span></header>
    <div class="body"><svg class="window" width="100%" height="28" role="img" aria-label=${title}><defs><pattern id="leaves" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch" width="3" height="6" /></pattern></defs>
      <rect class="track" y="4" width="100%" height="20" />${parts.map(([zone, , tokens]) => {
        const start = passed;
        passed += tokens;
        return html`<rect key=${zone} class="seg ${is_due ? zone : "middle"}" x=${x(start)} y="4" width=${x(tokens)} height="20" />`;
      })}<rect class="mark" x=${x(budget.trigger)} width="2" height="28" /></svg>
      <ul class="chips origin">${is_due && parts.map(([zone, messages, tokens]) => messages > 0 && html`<li key=${zone}><svg width="12" height="12" aria-hidden="true"><rect class="seg ${zone}" width="12" height="12" /></svg> ${ZONES[zone]} <strong>${number(messages)}</strong> ${number(tokens)} tokens</li>`)}<li><svg width="12" height="12" aria-hidden="true"><rect class="mark" x="5" width="2" height="12" /></svg> leaving begins at ${number(budget.trigger)}</li></ul></div></section>`;
}

function Derived({ goals, pins, snapshots }) {
  const kept = { Goals: goals, Pins: pins, Snapshots: snapshots };
  if (!Object.values(kept).some((items) => items.length)) return null;
  return html`<section class="card" aria-label="Kept beside it">${Object.entries(kept).map(([name, items]) => items.length > 0 && html`<div class="body" key=${name}><h3>${name}</h3>
    <ul>${items.map((item) => html`<li key=${item.id ?? item.seq}><${Text} text=${item.text ?? item.description ?? item.excerpt} cut=${400} />
      ${" "}<span class="origin">${item.status ?? (item.excerpt && `message ${item.seq}`)}</span></li>`)}</ul></div>`)}</section>`;
}

/** The window as a model reads it: summaries in place of what has left. */
function Sent({ window }) {
  const { repo, tick } = useContext(World);
  const state = useLoad((signal) => post("/conversation/load", { repo, thread: window.thread_id }, { budget_tokens: window.budget.window }, signal), [repo], tick);
  return html`<section class="card" aria-label="Messages as sent"><${Loaded} state=${state}>${(messages) => (messages.length
    ? html`<ol class="rows talk">${messages.map((message, index) => html`<li key=${message.id ?? index}><div class="said-row"><span class="origin num">${message.seq ?? ""}</span><strong>${message.actor || message.name || message.role}</strong><span><${Text} text=${wordsOf(message)} cut=${1_200} /></span><span class="origin num">${message.token_count ?? ""}</span></div></li>`)}</ol>`
    : html`<${Empty}>Nothing is sent.<//>`)}<//></section>`;
}

/** Messages from where the link points, or at the border, or the newest; earlier and later ones on demand. */
function Messages({ window, params }) {
  const { repo, tick } = useContext(World);
  const [range, setRange] = useState(null);
  const [error, setError] = useState(null);
  const [words, setWords] = useState("");
  const all = Object.keys(ZONES).flatMap((zone) => window.zones[zone].map((message) => [message.seq, zone]));
  const zoneOf = new Map(all);
  const last = Math.max(window.from_seq, ...zoneOf.keys());
  const border = window.is_due && window.zones.eviction.length ? window.zones.eviction.at(-1).seq + 1 : null;
  const newest = Math.max(0, last - PAGE + 1);
  const go = (from) => setRange({ from, limit: PAGE });
  useEffect(() => {
    const start = async () => {
      if (!params.message) return border === null ? newest : Math.max(0, border - 7);
      const found = await get("/view", { repo, id: params.message, session_id: params.thread, before: 0, after: 0 });
      return Math.max(0, found.target.seq - 5);
    };
    start().then(go, setError);
  }, [params.message]);
  const state = useLoad(
    async (signal) => range && get("/conversation/messages", { repo, thread: params.thread, from_seq: range.from, limit: range.limit }, signal),
    [repo, params.thread, range],
    tick,
  );
  const ref = useRef(null);
  const loaded = Boolean(state.value);
  useEffect(() => ref.current?.scrollIntoView({ block: "center" }), [loaded]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!range) return html`<${Loaded} state=${state} />`;
  const has = (message) => words.toLowerCase().split(/\s+/).every((word) => `${message.actor ?? ""} ${wordsOf(message)}`.toLowerCase().includes(word));
  return html`<section class="card" aria-labelledby="messages"><header><h2 id="messages">Messages</h2>
      <span class="chips"><button class="plain" onClick=${() => go(0)}>Oldest</button>${border !== null && html`<button class="plain" onClick=${() => go(Math.max(0, border - 7))}>Border</button>`}<button class="plain" onClick=${() => go(newest)}>Newest</button><${Search} label="Words in it" value=${words} onInput=${setWords} /></span></header>
    ${range.from > 0 && html`<div class="more"><button class="plain" onClick=${() => setRange({ from: Math.max(0, range.from - PAGE), limit: Math.min(1_000, range.limit + Math.min(PAGE, range.from)) })}>Show earlier ones</button></div>`}
    <${Loaded} state=${state}>
      ${(found) => html`<ol class="rows talk">
        ${found.items.filter(has).map((message, index, all) => html`
          ${message.seq === border && html`<li key="border" class="border"><${Icon} name="in" /> <strong>${plural(window.zones.eviction.length, "message")} above ${window.zones.eviction.length === 1 ? "leaves" : "leave"} next.</strong> One snapshot will stand for them; all stay findable.</li>`}
          <li key=${message.id} class="zone ${window.is_due ? zoneOf.get(message.seq) || "out" : ""} ${message.id === params.message ? "chosen" : ""}" ref=${message.id === params.message ? ref : undefined}>
          <div class="said-row"><span class="origin num" title=${message.at}>${message.seq}</span><span>${message.actor ? html`<${Name} name=${message.actor} />` : html`<strong>${message.name || message.role}</strong>`}</span>
            <span><${Text} text=${wordsOf(message)} cut=${1_200} /><span class="origin"> ${minute(all[index - 1]) !== minute(message) && html`<${Time} at=${message.at} />`}${zoneOf.has(message.seq) ? "" : ", not in the window"}</span></span><span class="origin num">${message.token_count ?? ""}</span></div>
        </li>`)}
      </ol>
      ${!found.items.some(has) && html`<${Empty}>${words ? "No message of these has the words." : "No messages here."}<//>`}
      ${found.next !== null && html`<div class="more"><button class="plain" onClick=${() => setRange({ from: range.limit < 1_000 ? range.from : found.next, limit: Math.min(1_000, range.limit + PAGE) })}>Show later ones</button></div>`}`}
    <//></section>`;
}

/** When it was said, for what is the same in neighbours is not said again. */
const minute = (message) => message?.at?.slice(0, 16);

const wordsOf = (message) =>
  [message.content, ...(message.tool_calls ?? []).map((call) => `calls ${call.name} ${JSON.stringify(call.arguments ?? {})}`)]
    .filter(Boolean)
    .map((part) => (typeof part === "string" ? part : JSON.stringify(part)))
    .join("\n");
