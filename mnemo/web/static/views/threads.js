// Threads: the messages of a conversation, the zones of its window, and what is kept beside it.

import { get } from "../api.js";
import { Empty, Failure, html, Loaded, plural, Text, Time, To, useContext, useEffect, useLoad, useRef, useState, World } from "../parts.js";

const PAGE = 100;
const ZONES = {
  recent: ["Recent zone", "stays in the window longest"],
  middle: ["Middle zone", "stays for now"],
  eviction: ["Eviction zone", "leaves the window next, replaced by a snapshot"],
};
const KEPT = {
  Goals: "Aims of the conversation; a message that is pinned to one stays in view until it is completed.",
  Pins: "Messages that stay in view for a goal.",
  Snapshots: "Texts that stand for messages which have left the window.",
};

export function Threads({ params }) {
  const { repo, tick } = useContext(World);
  const state = useLoad((signal) => get("/conversations", { repo }, signal), [repo], tick);
  return html`<div class=${params.thread ? "split talks" : ""}>
    <section aria-label="List"><${Loaded} state=${state}>
      ${(threads) => (threads.length ? html`<${Table} ...${{ threads, params }} />` : html`<${Empty}>No conversations yet.<//>`)}
    <//></section>
    ${params.thread && html`<${Conversation} key=${params.thread} params=${params} />`}
  </div>`;
}

function Table({ threads, params }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Conversations"><table>
    <thead><tr><th scope="col">Conversation</th><th scope="col">Messages</th><th scope="col" class="third">Tokens</th><th scope="col" class="third">Last message</th></tr></thead>
    <tbody>${threads.map((thread) => html`<tr key=${thread.thread_id} class=${thread.thread_id === params.thread ? "chosen" : ""}>
      <th scope="row"><${To} view="threads" params=${{ thread: thread.thread_id }}>${thread.thread_id}<//></th>
      <td>${thread.messages.toLocaleString("en")}</td><td class="third">${thread.tokens.toLocaleString("en")}</td><td class="third"><${Time} at=${thread.last_at} /></td>
    </tr>`)}</tbody>
  </table></div>`;
}

function Conversation({ params }) {
  const { repo, tick } = useContext(World);
  const where = { repo, thread: params.thread };
  const heading = useRef(null);
  useEffect(() => heading.current?.focus(), []);
  const state = useLoad(
    async (signal) => {
      const [window, derived] = await Promise.all([
        get("/conversation/window", where, signal),
        get("/conversation/derived", where, signal),
      ]);
      return { window, derived };
    },
    [repo, params.thread],
    tick,
  );
  return html`<section class="panel" aria-labelledby="details">
    <div class="head"><h2 id="details" tabindex="-1" ref=${heading}>Conversation ${params.thread}</h2><${To} view="threads">Close<//></div>
    <${Loaded} state=${state}>
      ${({ window, derived }) => html`<${Window} window=${window} /><${Derived} ...${derived} />
        <${Messages} window=${window} params=${params} />`}
    <//>
  </section>`;
}

const seqs = (messages) => new Set(messages.map((message) => message.seq));
const tokens = (messages) => messages.reduce((sum, message) => sum + (message.token_count || 0), 0);

function Window({ window }) {
  const { budget, zones } = window;
  return html`<h3>The window: what an agent reads</h3>
    <p>${plural(window.messages, "message")} with ${window.tokens.toLocaleString("en")} of ${budget.window.toLocaleString("en")} tokens.
      ${window.is_due
        ? " The messages of the eviction zone leave next."
        : ` No message leaves it below ${budget.trigger.toLocaleString("en")} tokens.`}</p>
    <ul class="zones">
      ${Object.entries(ZONES).map(([zone, [name, meaning]]) => html`<li key=${zone} class="zone ${zone}">
        <strong>${name}</strong> ${plural(zones[zone].length, "message")}, ${tokens(zones[zone]).toLocaleString("en")} tokens <span class="quiet">${meaning}</span>
      </li>`)}
    </ul>`;
}

function Derived({ goals, pins, snapshots }) {
  const kept = { Goals: goals, Pins: pins, Snapshots: snapshots };
  return html`<div>${Object.entries(kept).map(([name, items]) => items.length > 0 && html`<h3>${name}</h3>
    <p class="quiet">${KEPT[name]}</p>
    <ul class="rows">${items.map((item) => html`<li key=${item.id ?? item.seq}><${Text} text=${item.text ?? item.description ?? item.excerpt} cut=${400} />
      <span class="quiet">${item.status ?? (item.excerpt && `message ${item.seq}`)}</span></li>`)}</ul>`)}</div>`;
}

/** Messages from where the link points, or the newest; earlier and later ones on demand. */
function Messages({ window, params }) {
  const { repo, tick } = useContext(World);
  const [range, setRange] = useState(null);
  const [error, setError] = useState(null);
  const last = Math.max(window.from_seq, ...Object.values(window.zones).flatMap((zone) => (Array.isArray(zone) ? zone.map((one) => one.seq) : [])));
  useEffect(() => {
    const start = async () => {
      if (!params.message) return Math.max(0, last - PAGE + 1);
      const found = await get("/view", { repo, id: params.message, session_id: params.thread, before: 0, after: 0 });
      return Math.max(0, found.target.seq - 5);
    };
    start().then((from) => setRange({ from, limit: PAGE }), setError);
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
  const zoneOf = Object.fromEntries(Object.keys(ZONES).flatMap((zone) => [...seqs(window.zones[zone])].map((seq) => [seq, zone])));
  return html`<h3>Messages</h3>
    ${range.from > 0 && html`<button onClick=${() => setRange({ from: Math.max(0, range.from - PAGE), limit: Math.min(1_000, range.limit + Math.min(PAGE, range.from)) })}>Show earlier ones</button>`}
    <${Loaded} state=${state}>
      ${(found) => html`<ol class="talk">
        ${found.items.map((message) => html`<li key=${message.id} class="zone ${zoneOf[message.seq] || "out"} ${message.id === params.message ? "chosen" : ""}" ref=${message.id === params.message ? ref : undefined}>
          <span class="who">${message.actor || message.name || message.role}</span> <${Text} text=${words(message)} cut=${1_200} />
          <p class="origin">message ${message.seq}, <${Time} at=${message.at} />${zoneOf[message.seq] ? `, ${zoneOf[message.seq]} zone` : ", not in the window"}</p>
        </li>`)}
      </ol>
      ${!found.items.length && html`<${Empty}>No messages here.<//>`}
      ${found.next !== null && html`<button onClick=${() => setRange({ from: range.limit < 1_000 ? range.from : found.next, limit: Math.min(1_000, range.limit + PAGE) })}>Show later ones</button>`}`}
    <//>`;
}

const words = (message) =>
  [message.content, ...message.tool_calls.map((call) => `calls ${call.name} ${JSON.stringify(call.arguments ?? {})}`)]
    .filter(Boolean)
    .map((part) => (typeof part === "string" ? part : JSON.stringify(part)))
    .join("\n");
