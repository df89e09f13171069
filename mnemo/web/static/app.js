// The page: choose repository and view by the address, follow events, and show the view.

import { render } from "./vendor/preact.js";
import { follow, get, getAll, hasToken, setToken, takeToken, tryNow } from "./api.js";
import { address, clock, Empty, Failure, html, Icon, MOST_EVENTS, RELOAD_MS, State, Title, To, useAddress, useEffect, useLayoutEffect, useLoad, useMedia, useRef, useState, World } from "./parts.js";
import { Activity } from "./views/activity.js";
import { Memories } from "./views/memories.js";
import { Notes } from "./views/notes.js";
import { Overview } from "./views/overview.js";
import { People } from "./views/people.js";
import { Recall } from "./views/recall.js";
import { Sessions } from "./views/sessions.js";
import { Threads } from "./views/threads.js";

/** Name, view, the letter that leads there after `g`, and what stands behind "?". */
const VIEWS = {
  overview: ["Overview", Overview, "o", "All repositories: each is one isolated memory. What failed comes first, with what can be done; below it what came in and went out. Times are in the time zone of this browser."],
  sessions: ["Sessions", Sessions, "s", "A session collects the steps of a task: what was observed, and what the agent did. Closing it extracts facts and instructions; recall knows them when it is committed."],
  recall: ["Recall", Recall, "r", "What an agent is given for a question, line by line, as its model reads it; why each line was found, and the words that it comes from."],
  memories: ["Memories", Memories, "m", "Facts and instructions, extracted from what was said. Choose one to see the words that it comes from, what it replaced, and to correct or forget it."],
  people: ["People & things", People, "p", "Who speaks, and what two facts or more name: what holds now, what held before and what replaced it. Graph shows what stands in the same facts."],
  threads: ["Threads", Threads, "t", "A thread is a conversation: its messages as they were said and as they are sent to a model, and which leave its window next."],
  notes: ["Notes", Notes, "n", "Long-term texts by topic, written at the end of a task. Every version is kept."],
  activity: ["Activity", Activity, "a", "What happens in this repository while the page is open, newest first, under the names of the events of the library."],
  more: ["More", More, "", "The views that have no tab."],
};
const TABS = { overview: "overview", sessions: "running", recall: "search", people: "person", more: "more" };
const KEYS = { "/": "search", "g + letter": "go to a view", "j, k": "next, back in a list", x: "select", Enter: "open", Esc: "close", "?": "these keys" };
const LETTERS_OFF = "mnemo-letters-off";
/** Repositories to choose from; the Overview finds all by their names. */
const MOST_CHOICES = 1_000;
/** Between two looks at what no event tells of, such as a state that another process has changed. */
const LOOK_MS = 5_000;
const ANNOUNCE_MS = 10_000;

/**
 * The newest events first, whether the stream is open, since when not and when the next try is,
 * and a number that changes with the store. onRefused is called when the service no longer knows
 * the token.
 */
function useEvents(repo, onRefused) {
  const [events, setEvents] = useState([]);
  const [link, setLink] = useState({ live: false, since: null, next: null });
  const [tick, setTick] = useState(0);
  const count = useRef(0);
  useEffect(() => {
    if (!repo) return undefined;
    setEvents([]);
    const abort = new AbortController();
    let timer = null;
    let waiting = [];
    let isOpen = false;
    const renew = () => setTick((number) => number + 1);
    const look = setInterval(() => isOpen && !document.hidden && renew(), LOOK_MS);
    const show = () => {
      const arrived = waiting.reverse();
      timer = null;
      waiting = [];
      renew();
      setEvents((old) => (arrived.length ? [...arrived, ...old].slice(0, MOST_EVENTS) : old));
    };
    const happened = ({ name, data }) => {
      timer ??= setTimeout(show, RELOAD_MS);
      if (name === "ready") return;
      waiting.push({ number: (count.current += 1), name, data, at: data.at || new Date().toISOString() });
      if (waiting.length > MOST_EVENTS) waiting.shift();
    };
    const changed = (live, next) => {
      const wasOpen = isOpen;
      isOpen = live;
      setLink((old) => (live && old.live ? old : { live, next, since: live ? null : wasOpen ? new Date() : old.since }));
    };
    follow(repo, abort.signal, happened, changed).catch(onRefused);
    return () => (abort.abort(), clearTimeout(timer), clearInterval(look), setLink({ live: false, since: null, next: null }));
  }, [repo]);
  return { events, tick, ...link };
}

function App() {
  const [known, setKnown] = useState(0);
  const state = useLoad(
    async (signal) => {
      const caller = await get("/caller", {}, signal);
      return { caller, repositories: await getAll("/repositories", "id", {}, signal) };
    },
    [known],
  );
  const again = () => setKnown((number) => number + 1);
  if (!hasToken() || state.error?.status === 401) return html`<${Door} wrong=${hasToken()} onToken=${again} />`;
  if (state.error) return html`<main class="door"><h1>mnemo</h1><${Failure} error=${state.error} /><p><button onClick=${again}>Try again</button></p></main>`;
  if (!state.value) return html`<main class="door"><h1>mnemo</h1><p role="status">Loading …</p></main>`;
  return html`<${Page} ...${state.value} onRetry=${again} />`;
}

function Door({ wrong, onToken }) {
  const sent = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token").trim());
    onToken();
  };
  return html`<main class="door card">
    <div class="body"><h1>mnemo</h1>
    <p>${wrong ? "The service does not know this token." : "The service wants an access token."}
      ${" "}The address that <code>mnemo serve</code> printed holds one; <code>mnemo token</code> makes others.</p>
    <form class="acts" onSubmit=${sent}>
      <label class="search"><span>Token</span> <input name="token" type="password" required autocomplete="off" /></label>
      <button class="first">Open</button>
    </form></div>
  </main>`;
}

function Page({ caller, repositories, onRetry }) {
  const { view, params } = useAddress(Object.keys(VIEWS));
  const isWide = useMedia("(min-width: 900px)");
  const repo = params.repo || repositories[0]?.id;
  const link = useEvents(repo, onRetry);
  const records = useLoad((signal) => getAll("/repositories", "id", {}, signal), [], link.tick);
  const known = records.value ?? repositories;
  const said = useAnnounced();
  const keys = useRef(null);
  useKeys(repo, keys);
  const [title, View] = VIEWS[view];
  useLayoutEffect(() => scrollTo(0, 0), [view, repo]); // effects of the view may then scroll on
  const world = { repo, repositories: known, loadedAt: records.at, canWrite: caller.rights !== "read", announce: said.announce, ...link };
  const shell = { repo, view, world, caller, keys };
  return html`<${World.Provider} value=${world}>
    <a class="hidden" href="#content" onClick=${(event) => (event.preventDefault(), document.getElementById("content").focus())}>Skip to the content</a>
    <${isWide ? Sidebar : Top} ...${shell} />
    <main id="content" tabindex="-1" data-view=${view}>
      <${Banner} link=${link} />
      ${repo || view === "more" ? html`<${View} key=${`${view} ${repo}`} params=${params} />` : html`<${Title} text=${title} /><${NoRepository} onRetry=${onRetry} />`}
    </main>
    ${!isWide && html`<${Tabs} ...${shell} />`}
    <p class="hidden" role="status">${said.text}</p>
    <${Keys} dialog=${keys} title=${title} about=${VIEWS[view][3]} />
  <//>`;
}

/** A title that is announced to a screen reader, at most every ten seconds. */
function useAnnounced() {
  const [text, setText] = useState("");
  const last = useRef({ at: 0, timer: null });
  const announce = (title) => {
    clearTimeout(last.current.timer);
    const wait = Math.max(0, last.current.at + ANNOUNCE_MS - Date.now());
    last.current.timer = setTimeout(() => ((last.current.at = Date.now()), setText(title)), wait);
  };
  return { text, announce };
}

const failedIn = ({ repo, repositories }) => repositories.find((record) => record.id === repo)?.failed ?? 0;

function Sidebar({ repo, view, world, caller, keys }) {
  const failed = failedIn(world);
  const link = (name) => html`<a key=${name} href=${address(name, { repo })} aria-current=${name === view ? "page" : undefined}>${VIEWS[name][0]}
    ${name === "sessions" && failed > 0 && html`<span class="state failed" title="failed"><${Icon} name="failed" />${failed}<span class="hidden"> failed</span></span>`}</a>`;
  const [overview, ...others] = Object.keys(VIEWS).filter((name) => name !== "more");
  return html`<header class="side">
    <span class="brand"><${Logo} />mnemo</span>
    <nav aria-label="Service">${link(overview)}</nav>
    ${repo && html`<${Chooser} ...${{ repo, world, view }} />`}
    <nav aria-label="Views">${others.map(link)}</nav>
    <footer>
      ${repo && html`<${Live} live=${world.live} since=${world.since} rights=${caller.rights} />`}
      <span><kbd>/</kbd> search <button class="plain" onClick=${() => keys.current.showModal()}><kbd>?</kbd> all keys</button></span>
    </footer>
  </header>`;
}

function Top({ repo, view, world, keys }) {
  return html`<header class="top"><${Logo} />${repo && html`<${Chooser} ...${{ repo, world, view }} /><${Live} live=${world.live} since=${world.since} />`}<button class="quiet" aria-label="About this view, and keys" onClick=${() => keys.current.showModal()}>?</button></header>`;
}

function Tabs({ repo, view, world }) {
  const failed = failedIn(world);
  const chosen = view in TABS ? view : "more";
  return html`<nav class="tabs" aria-label="Views">${Object.entries(TABS).map(([name, icon]) => html`<a key=${name} href=${address(name, { repo })} aria-current=${name === chosen ? "page" : undefined}>
    <${Icon} name=${icon} size=${20} />${name === "people" ? "People" : VIEWS[name][0]}${name === "sessions" && failed > 0 && html`<b>${failed}<span class="hidden"> failed</span></b>`}</a>`)}</nav>`;
}

function More() {
  const others = Object.keys(VIEWS).filter((name) => !(name in TABS));
  return html`<${Title} text="More" /><ul class="card rows">${others.map((name) => html`<li key=${name}><${To} view=${name} class="row">${VIEWS[name][0]}<//></li>`)}</ul>`;
}

const Logo = () => html`<svg class="logo" width="18" height="18" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" fill="currentColor" /><path d="M9 22V11l7 8 7-8v11" fill="none" stroke="var(--on-accent)" stroke-width="3" stroke-linejoin="round" stroke-linecap="round" /></svg>`;

function Live({ live, since, rights }) {
  if (!live) return since ? html`<span class="state failed"><${Icon} name="warn" /><span>not connected</span></span>` : html`<span class="state">connecting</span>`;
  return html`<span class="state"><span class="ok state"><${Icon} name="done" /></span><span>live</span>${rights && html`<span class="rights">${rights === "read" ? ", read-only" : ", read and write"}</span>`}</span>`;
}

function Banner({ link: { live, since, next } }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  if (live || !since) return null;
  return html`<section class="card bad banner" aria-label="Connection" role="alert"><${State} kind="failed" word="" /><p><strong>Not connected since ${clock(since, true)}.</strong>
    ${" "}All that is shown is of then.<span aria-live="off"> Next try in ${Math.max(0, Math.ceil(((next ?? now) - now) / 1_000))} s.</span></p>
    <button onClick=${tryNow}>Try now</button></section>`;
}

function Chooser({ repo, world, view }) {
  const names = [...new Set([repo, ...world.repositories.slice(0, MOST_CHOICES).map((record) => record.id)])].sort();
  return html`<select aria-label="Repository" value=${repo} onChange=${(event) => (location.hash = address(view, { repo: event.target.value }))}>
    ${names.map((name) => html`<option key=${name} value=${name} selected=${name === repo}>${name}</option>`)}
  </select>`;
}

function NoRepository({ onRetry }) {
  return html`<section class="card"><${Empty}>
    <strong>The store is empty:</strong> nothing was remembered yet, or this token may use no repository of it.
    ${" "}<code>mnemo remember "I live in Lund." --actor Ada</code> stores something.
    <p class="acts"><button onClick=${onRetry}>Look again</button></p>
  <//></section>`;
}

function Keys({ dialog, title, about }) {
  const [off, setOff] = useState(() => localStorage.getItem(LETTERS_OFF) === "1");
  const flip = () => (localStorage.setItem(LETTERS_OFF, off ? "" : "1"), setOff(!off));
  return html`<dialog ref=${dialog} aria-labelledby="keys"><h2>${title}</h2><p class="about">${about}</p><h2 id="keys">Keys</h2>
    <dl>${Object.entries(KEYS).map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}
      ${Object.values(VIEWS).map(([name, , letter]) => letter && html`<dt><kbd>g</kbd> <kbd>${letter}</kbd></dt><dd>${name}</dd>`)}</dl>
    <label><input type="checkbox" checked=${off} onChange=${flip} /> Keys of one letter are off</label>
    <p class="acts"><button onClick=${() => dialog.current.close()}>Close</button></p>
  </dialog>`;
}

/** Rows and keys: what is focused moves among the rows of a list. */
function step(by) {
  const rows = [...document.querySelectorAll("main .row, main .trouble > a")].filter((row) => row.checkVisibility());
  rows[Math.min(rows.length - 1, Math.max(0, rows.indexOf(document.activeElement) + by))]?.focus();
}

function useKeys(repo, keys) {
  const place = useRef({ repo, gone: 0 });
  place.current.repo = repo;
  useEffect(() => {
    const acts = {
      "/": () => document.querySelector("main [data-search]")?.focus(),
      "?": () => keys.current.showModal(),
      j: () => step(1),
      k: () => step(-1),
      x: () => document.activeElement.closest("li")?.querySelector("input[type=checkbox]")?.click(),
      g: () => (place.current.gone = Date.now()),
      Escape: () => document.querySelector("main [data-close]")?.click(),
    };
    const pressed = (event) => {
      const isTyping = event.target.matches("input:not([type=checkbox], [type=range]), textarea, select");
      if (event.ctrlKey || event.metaKey || event.altKey || keys.current.open) return;
      if (isTyping && event.key === "Escape") return event.target.blur();
      if (isTyping || (event.key.length === 1 && localStorage.getItem(LETTERS_OFF) === "1")) return;
      const went = Date.now() - place.current.gone < 1_500;
      const view = went && Object.keys(VIEWS).find((name) => VIEWS[name][2] === event.key);
      place.current.gone = 0;
      if (view) location.hash = address(view, { repo: place.current.repo });
      else if (acts[event.key]) (event.key !== "Escape" && event.preventDefault(), acts[event.key]());
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

/** When the control with the focus is taken away, the focus goes to the part of the page that it was in. */
function keepFocus() {
  let last = [];
  addEventListener("focusin", ({ target }) => {
    last = [target];
    while (last.at(-1).parentElement) last.push(last.at(-1).parentElement);
  });
  new MutationObserver(() => {
    if (document.activeElement !== document.body || !last.length || last[0].isConnected) return;
    const part = last.find((one) => one.isConnected && one.matches("section, main"));
    part?.setAttribute("tabindex", "-1");
    part?.focus({ preventScroll: true });
  }).observe(document.getElementById("app"), { childList: true, subtree: true });
}

keepFocus();
takeToken();
addEventListener("hashchange", takeToken);
render(html`<${App} />`, document.getElementById("app"));
