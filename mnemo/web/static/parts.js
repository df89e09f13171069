// What the views share: loading, links, and small components. Stored text is always a text node.

import "./vendor/diff.js";
import { createContext, html, useContext, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";

export { html, useContext, useEffect, useLayoutEffect, useRef, useState };

const LONG_TEXT = 1_500;
/** Between two looks at a store that changes. */
export const RELOAD_MS = 400;
/** Events that are kept. */
export const MOST_EVENTS = 500;

/** The repository, the caller's rights, and what happens: {repo, canWrite, tick, events, live, since}. */
export const World = createContext(null);

/** The address of a view. */
export function address(view, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query && `?${query}`}`;
}

/** The view of the address, the first of *views* unless it names another, and its parameters. */
export function useAddress(views) {
  const read = () => {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    return { view: views.includes(path) ? path : views[0], params: Object.fromEntries(new URLSearchParams(query)) };
  };
  const [found, setFound] = useState(read);
  useEffect(() => {
    const changed = () => setFound(read());
    addEventListener("hashchange", changed);
    changed(); // it may have changed between the first rendering and now
    return () => removeEventListener("hashchange", changed);
  }, []);
  return found;
}

/** A link to a view of the same repository. */
export function To({ view, params, children, ...rest }) {
  const { repo } = useContext(World);
  return html`<a href=${address(view, { repo, ...params })} ...${rest}>${children}</a>`;
}

/**
 * Load at once whenever *deps* change, and again after *tick* changed: one load at a time, and a
 * slow service is asked less often. What was loaded stays until the new arrives.
 */
export function useLoad(load, deps, tick = 0) {
  const [state, setState] = useState({ value: null, error: null, at: null });
  const work = useRef({}).current;
  Object.assign(work, { load, wanted: tick });
  useEffect(() => {
    const abort = new AbortController();
    let timer = null;
    work.renew = async () => {
      if (timer || work.seen === work.wanted) return;
      timer = -1;
      work.seen = work.wanted;
      const start = performance.now();
      const found = await work.load(abort.signal).then((value) => ({ value, error: null, at: new Date() }), (error) => ({ error }));
      if (abort.signal.aborted) return;
      setState((old) => ({ ...old, ...found }));
      timer = setTimeout(() => ((timer = null), work.renew()), Math.max(RELOAD_MS, 3 * (performance.now() - start)));
    };
    work.seen = null;
    work.renew();
    return () => (abort.abort(), clearTimeout(timer));
  }, deps);
  useEffect(() => void work.renew(), [tick]);
  return state;
}

/** *items* in the order in which they were first seen, new ones first: a list to click in does not move. */
export function useSteady(items) {
  const places = useRef(new Map()).current;
  const ids = new Set(items.map(({ id }) => id));
  for (const id of places.keys()) if (items.length && !ids.has(id)) places.delete(id);
  let least = Math.min(0, ...places.values());
  for (const { id } of items.toReversed()) if (!places.has(id)) places.set(id, --least);
  return items.toSorted((a, b) => places.get(a.id) - places.get(b.id));
}

/** Render *children* with what was loaded, or say that it is loading or why it failed. */
export function Loaded({ state, children }) {
  const { error, value } = state;
  const isStale = error && !error.status && value !== null; // the banner says that it is not connected
  return html`
    ${error && !isStale && html`<${Failure} error=${error} />`}
    ${value !== null && children(value)}
    ${value === null && !error && html`<p class="empty" role="status">Loading …</p>`}
  `;
}

export function Failure({ error }) {
  return html`<p class="failure" role="alert"><${Icon} name="failed" />${" "}
    <strong>${error.reason ? error.reason.replaceAll("_", " ") : "failed"}:</strong> ${error.message}
  </p>`;
}

export const Empty = ({ children }) => html`<div class="empty" data-empty>${children}</div>`;

/** Why a repository holds no facts: what was said may wait. */
export function NoFacts() {
  const { repo, repositories } = useContext(World);
  const waiting = repositories.find(({ id }) => id === repo)?.waiting;
  return html`<strong>${waiting ? `${plural(waiting, "conversation")} ${waiting === 1 ? "waits" : "wait"}.` : "No facts yet."}</strong> What is said becomes facts once it is extracted.`;
}

/** A stored text; a long one is cut until it is asked for. */
export function Text({ text, cut = LONG_TEXT }) {
  const [whole, setWhole] = useState(false);
  const value = String(text ?? "");
  if (value.length <= cut) return html`<span class="text">${value}</span>`;
  const size = value.length.toLocaleString("en");
  return html`
    <span class="text">${whole ? value : `${value.slice(0, cut)} …`}</span>
    <button class="plain" onClick=${(event) => (event.stopPropagation(), setWhole(!whole))}>
      ${whole ? "Show less" : `Show all ${size} characters`}
    </button>
  `;
}

/** The beginning of a text on one line. */
export function short(text, most = 90) {
  const line = String(text ?? "").slice(0, 4 * most).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const pad = (number) => String(number).padStart(2, "0");
export const clock = (at, seconds = false) => `${pad(at.getHours())}:${pad(at.getMinutes())}${seconds ? `:${pad(at.getSeconds())}` : ""}`;

/** A day as a person says it, the year only when it is another. */
export function dayOf(at) {
  const local = new Date(at);
  return `${local.getDate()} ${MONTHS[local.getMonth()]}${local.getFullYear() === new Date().getFullYear() ? "" : ` ${local.getFullYear()}`}`;
}

/** A time: of today the clock, before it the day; *day*: only the day, *age*: how long ago. The exact one is its title. */
export function Time({ at, day = false, age = false, seconds = false }) {
  const { live } = useContext(World) ?? {};
  if (!at) return html`<span class="soft">–</span>`;
  const local = new Date(at);
  const isToday = local.toDateString() === new Date().toDateString();
  let shown = day || !isToday ? dayOf(at) : clock(local, seconds);
  if (!day && !age && !isToday) shown += `, ${clock(local)}`;
  const passed_s = (Date.now() - local) / 1_000;
  if (age && live && passed_s >= 0) shown = span(passed_s);
  return html`<time datetime=${at} title=${at}>${shown}</time>`;
}

/** Seconds in words. */
export function span(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3_600) return `${Math.round(seconds / 60)} min`;
  return seconds < 86_400 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} d`;
}

export const number = (value) => value.toLocaleString("en");
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export const KINDS = { semantic: "fact", procedural: "instruction", episodic: "step" };

const ICONS = {
  failed: "M5 1.5h6L14.5 5v6L11 14.5H5L1.5 11V5zM6 6l4 4M10 6l-4 4",
  ready: "M8 1.8 14.2 8 8 14.2 1.8 8z",
  waiting: "M8 1.5a6.5 6.5 0 1 0 .01 0M8 4.5V8l2.5 1.5",
  running: "M8 1.8A6.2 6.2 0 1 1 2.2 6",
  done: "M2.5 8.5 6 12l7.5-8",
  warn: "M8 2 14.8 14H1.2zM8 6.5V10M8 11.6v.8",
  none: "M8 1.8a6.2 6.2 0 1 0 .01 0M3.8 12.2l8.4-8.4",
  search: "M7 2.2a4.8 4.8 0 1 0 .01 0M10.5 10.5 14 14",
  in: "M8 2v11M4 9l4 4 4-4",
  out: "M8 14V3M4 7l4-4 4 4",
  to: "M2 8h11M9 4l4 4-4 4",
  overview: "M2 7.5 8 2l6 5.5V14H2z",
  person: "M8 2.2a2.8 2.8 0 1 0 .01 0M2.5 14c.4-3.6 2.6-5 5.5-5s5.100 1.400 5.500 5",
  more: "M3 8h.01M8 8h.01M13 8h.01",
};

export const Icon = ({ name, size = 14 }) =>
  html`<svg class="icon" width=${size} height=${size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width=${name === "more" ? 2.5 : 1.6} stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${ICONS[name]} /></svg>`;

/** A state: shape, word and colour; *kind* names all three unless *word* is given. */
export const State = ({ kind, word = kind, children }) =>
  html`<span class="state ${kind === "ready" ? "waiting" : kind === "done" ? "soft" : kind}"><${Icon} name=${kind} /><span>${word}</span>${children}</span>`;

/** The title of a view, which is its answer; *aside* stands at its right. */
export function Title({ text, hidden = false, children }) {
  const { repo, announce } = useContext(World);
  useEffect(() => {
    document.title = `${text} · ${repo || "mnemo"}`;
    announce(text);
  }, [text, repo]);
  if (hidden) return html`<h1 class="hidden">${text}</h1>`;
  return html`<div class="head"><h1>${text}</h1>${children}</div>`;
}

/** *words* as the beginnings of what is looked for: while they are typed, too. */
export const begun = (words) => words.trim().split(/\s+/).map((word) => (/[\p{L}\p{N}]{2}$/u.test(word) ? `${word}*` : word)).join(" ");

/** A field to search in, which `/` leads to. */
export function Search({ label, value, onInput, large = false, ...rest }) {
  return html`<label class="search ${large ? "large" : ""}"><${Icon} name="search" /><span class="hidden">${label}</span>
    <input type="search" data-search placeholder=${label} value=${value} onInput=${onInput && ((event) => onInput(event.target.value))} ...${rest} />${large && html`<kbd aria-hidden="true">/</kbd>`}</label>`;
}

/** Filters that are seldom set: shown where one is, or when they are asked for. */
export function Further({ isOn, children }) {
  const [isOpen, setOpen] = useState(false);
  return isOpen || isOn ? children : html`<button type="button" class="chip" onClick=${() => setOpen(true)}>+ filter</button>`;
}

/** Who a source is of: what was corrected or added by hand has the actor "hand". */
export const origin = ({ actor, session_id }) =>
  actor === "hand" ? "by hand" : actor || (session_id ? "someone" : "a program");

/** Where a source stands: the way to its conversation or its session; nothing if it was written by hand. */
export function Place({ source }) {
  if (source.thread_id) return html`<${To} view="threads" params=${{ thread: source.thread_id, message: source.message_id }}>Read around it<//>`;
  return source.session_id && source.actor !== "hand" && html`<${To} view="sessions" params=${{ session: source.session_id }}>Open its session<//>`;
}

/** A name that leads to what is known of it. */
export const Name = ({ name }) => html`<${To} view="people" params=${{ name }} class="name">${name}<//>`;

/** The raw steps that a memory comes from. */
export function Sources({ sources }) {
  if (!sources.length) return html`<p class="soft">No source is kept: it was written by hand, or its source was forgotten.</p>`;
  return html`<ul class="sources">
    ${sources.map((source) => html`<li key=${source.key || source.session_id + source.step_index}>
      <blockquote><${Text} text=${source.text} cut=${600} /></blockquote>
      <p class="origin">${source.actor && source.actor !== "hand" ? html`said by <${Name} name=${source.actor} />` : origin(source)}, <${Time} at=${source.at} /> <${Place} source=${source} /></p>
    </li>`)}
  </ul>`;
}

const MARKS = { added: "added", removed: "gone" };

/** What one text has that another has not, word by word. */
export function Words({ old, now }) {
  const parts = globalThis.Diff.diffWordsWithSpace(old, now, { timeout: 200 });
  if (!parts) return html`<span class="text">${now}</span>`;
  return html`<span class="text">${parts.map((part) => {
    const kind = Object.keys(MARKS).find((name) => part[name]);
    return kind ? html`<span class=${MARKS[kind]}>${part.value}</span>` : part.value;
  })}</span>`;
}

/** Sort a table's rows by the column whose head was chosen; *by*: key → value of a row. */
export function useSorted(rows, by, first, down = true) {
  const [order, setOrder] = useState({ key: first, down });
  const sorted = rows.toSorted((a, b) => {
    const [x, y] = [by[order.key](a), by[order.key](b)];
    return (order.down ? -1 : 1) * (x < y ? -1 : x > y ? 1 : 0);
  });
  const head = (key, label, kind = "") => html`<th scope="col" class=${kind} aria-sort=${key === order.key ? (order.down ? "descending" : "ascending") : undefined}>
    <button class="plain" onClick=${() => setOrder({ key, down: key === order.key ? !order.down : true })}>${label}${key === order.key ? (order.down ? " ↓" : " ↑") : ""}</button></th>`;
  return [sorted, head];
}

/** Keep *value* until it was still for a moment: what is typed is not looked for letter by letter. */
export function useStill(value, pause_ms = 250) {
  const [still, setStill] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setStill(value), pause_ms);
    return () => clearTimeout(timer);
  }, [value]);
  return still;
}

/** Whether the window is as wide as *query* asks. */
export function useMedia(query) {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const changed = () => setMatches(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [query]);
  return matches;
}

/** Put a text on the clipboard; the button says when it is there. */
export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = () => navigator.clipboard.writeText(text()).then(() => setDone(true), () => setDone(false));
  return html`<button class="quiet" onClick=${copy}>${done ? html`<${State} kind="done" word="copied" />` : label}</button>`;
}
