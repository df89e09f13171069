// What the views share: loading, links, and small components. Stored text is always a text node.

import { createContext, html, useContext, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";

export { html, useContext, useEffect, useLayoutEffect, useRef, useState };

const LONG_TEXT = 1_500;
/** Between two looks at a store that changes. */
export const RELOAD_MS = 400;

/** The repository, the caller's rights, and what happens: {repo, canWrite, tick, events, lately, live}. */
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
  const [state, setState] = useState({ value: null, error: null });
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
      const found = await work.load(abort.signal).then((value) => ({ value, error: null }), (error) => ({ error }));
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
  for (const { id } of items.toReversed()) if (!places.has(id)) places.set(id, -places.size);
  return items.toSorted((a, b) => places.get(a.id) - places.get(b.id));
}

/** Render *children* with what was loaded, or say that it is loading or why it failed. */
export function Loaded({ state, children }) {
  return html`
    ${state.error && html`<${Failure} error=${state.error} />`}
    ${state.value !== null && children(state.value)}
    ${state.value === null && !state.error && html`<p class="quiet" role="status">Loading …</p>`}
  `;
}

export function Failure({ error }) {
  return html`<p class="failure" role="alert">
    <strong>${error.reason ? error.reason.replaceAll("_", " ") : "failed"}:</strong> ${error.message}
  </p>`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

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

/** A time as a person reads it, of a day or to the second; the exact one is its title. */
export function Time({ at, day = false, seconds = false }) {
  if (!at) return html`<span class="quiet">–</span>`;
  const local = new Date(at);
  const pad = (number) => String(number).padStart(2, "0");
  const date = `${local.getFullYear()}-${pad(local.getMonth() + 1)}-${pad(local.getDate())}`;
  const time = `${pad(local.getHours())}:${pad(local.getMinutes())}${seconds ? `:${pad(local.getSeconds())}` : ""}`;
  return html`<time datetime=${at} title=${at}><span>${date}</span>${!day && html` <span>${time}</span>`}</time>`;
}

export const Badge = ({ kind, children }) => html`<span class="badge ${kind}">${children}</span>`;

/** A bar from 0 to *most* with its number. */
export function Bar({ label, value, most = 1 }) {
  const width = Math.min(1, Math.abs(value) / most) * 100;
  return html`<div class="bar">
    <span>${label}</span>
    <span class="track" aria-hidden="true"><span class=${value < 0 ? "fill less" : "fill"} style=${{ width: `${width}%` }} /></span>
    <span class="number">${value.toFixed(2)}</span>
  </div>`;
}

export const plural = (count, one, many = `${one}s`) =>
  `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

export const KINDS = { semantic: "fact", procedural: "instruction", episodic: "step" };

/** Who a source is of: what was corrected or added by hand has the actor "hand". */
export const origin = ({ actor, session_id }) =>
  actor === "hand" ? "written by hand" : actor || session_id ? `from ${actor || "someone"}` : "given by a program, without steps";

/** Where a source stands: a link to its conversation or its session; nothing if it was written by hand. */
export function Place({ source }) {
  if (source.thread_id) return html`, <${To} view="threads" params=${{ thread: source.thread_id, message: source.message_id }}>conversation ${source.thread_id}<//>`;
  return source.session_id && source.actor !== "hand" && html`, <${To} view="sessions" params=${{ session: source.session_id }}>session ${source.session_id}<//>`;
}

/** The raw steps that a memory comes from, with the way to the conversation or session. */
export function Sources({ sources }) {
  if (!sources.length) return html`<${Empty}>No source is kept: it was written by hand, or its source was forgotten.<//>`;
  return html`<ul class="sources">
    ${sources.map((source) => html`<li key=${source.key || source.session_id + source.step_index}>
      <blockquote><${Text} text=${source.text} /></blockquote>
      <p class="origin">
        ${origin(source)}, <${Time} at=${source.at} /><${Place} source=${source} />
      </p>
    </li>`)}
  </ul>`;
}

/**
 * A form whose fields become the address's parameters. *params* are what its fields begin with, as
 * defaults: what is being typed stays while the page renews, until they change.
 */
export function Query({ view, children, params = {}, keep = {} }) {
  const { repo } = useContext(World);
  const form = useRef(null);
  useLayoutEffect(() => form.current.reset(), [JSON.stringify(params)]);
  const sent = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    location.hash = address(view, { repo, ...keep, ...given });
  };
  return html`<form class="query" ref=${form} onSubmit=${sent}>${children}</form>`;
}
