// The page: choose repository and view by the address, follow events, and show the view.

import { render } from "./vendor/preact.js";
import { Lately } from "./lately.js";
import { follow, get, hasToken, setToken, takeToken } from "./api.js";
import { address, Empty, Failure, html, RELOAD_MS, useAddress, useEffect, useLayoutEffect, useLoad, useRef, useState, World } from "./parts.js";
import { Overview } from "./views/overview.js";
import { Memories } from "./views/memories.js";
import { Recall } from "./views/recall.js";
import { Sessions } from "./views/sessions.js";
import { Threads } from "./views/threads.js";
import { Graph } from "./views/graph.js";
import { Events } from "./views/events.js";
import { Notes } from "./views/notes.js";

/** Title, view, and what it shows, for who has never seen it. */
const VIEWS = {
  overview: ["Overview", Overview, "A repository is one isolated memory: what its agent knows, where that comes from, and what is not extracted yet. Times are in the time zone of this browser."],
  memories: ["Memories", Memories, "Facts and instructions, extracted from what was said. Choose one to see the words that it comes from, its history, and what it replaced."],
  recall: ["Recall", Recall, "What an agent is given for a question: facts, instructions and raw steps, with the reasons for their ranks and the words that they come from."],
  sessions: ["Sessions", Sessions, "A session collects the steps of a task: what was observed, and what the agent did. Closing it extracts facts and instructions; recall knows them when it is committed."],
  threads: ["Threads", Threads, "A thread is a conversation: its messages as they were said, and which of them an agent still reads."],
  graph: ["Graph", Graph, "Facts and instructions, and what ties them together. Choose a mark to see what it says and where it comes from."],
  notes: ["Notes", Notes, "Long-term texts by topic, written at the end of a task. Every version is kept."],
  events: ["Events", Events, "What happens in this repository while the page is open, newest first, under the names of the events of the library."],
};
const MOST_EVENTS = 500;
/** Between two looks at what no event tells of, such as a state that another process has changed. */
const LOOK_MS = 5_000;

/**
 * The newest events first, numbers of the last minute, whether the stream is open, and a number
 * that changes with the store. onRefused is called when the service no longer knows the token.
 */
function useEvents(repo, onRefused) {
  const [events, setEvents] = useState([]);
  const [live, setLive] = useState(false);
  const [tick, setTick] = useState(0);
  const count = useRef(0);
  const [lately, setLately] = useState(() => new Lately());
  useEffect(() => {
    if (!repo) return undefined;
    const noted = new Lately();
    setEvents([]);
    setLately(noted);
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
      const event = { number: (count.current += 1), name, data, at: data.at || new Date().toISOString() };
      noted.note(event);
      waiting.push(event);
      if (waiting.length > MOST_EVENTS) waiting.shift();
    };
    follow(repo, abort.signal, happened, (open) => setLive((isOpen = open))).catch(onRefused);
    return () => (abort.abort(), clearTimeout(timer), clearInterval(look), setLive(false));
  }, [repo]);
  return { events, live, tick, lately };
}

function App() {
  const [known, setKnown] = useState(0);
  const state = useLoad(
    async (signal) => {
      const caller = await get("/caller", {}, signal);
      return { caller, repositories: await get("/repositories", {}, signal) };
    },
    [known],
  );
  if (!hasToken() || state.error?.status === 401) {
    return html`<${Door} wrong=${hasToken()} onToken=${() => setKnown(known + 1)} />`;
  }
  if (state.error) return html`<main class="door"><h1>mnemo</h1><${Failure} error=${state.error} /><p><button onClick=${() => setKnown(known + 1)}>Try again</button></p></main>`;
  if (!state.value) return html`<main class="door"><h1>mnemo</h1><p role="status">Loading …</p></main>`;
  return html`<${Page} ...${state.value} onRetry=${() => setKnown(known + 1)} />`;
}

function Door({ wrong, onToken }) {
  const sent = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token").trim());
    onToken();
  };
  return html`<main class="door">
    <h1>mnemo</h1>
    <p>${wrong ? "The service does not know this token." : "The service wants an access token."}
      ${" "}The address that <code>mnemo serve</code> printed holds one; <code>mnemo token</code> makes others.</p>
    <form class="query" onSubmit=${sent}>
      <label>Token <input name="token" type="password" required autocomplete="off" /></label>
      <button>Open</button>
    </form>
  </main>`;
}

function Page({ caller, repositories, onRetry }) {
  const { view, params } = useAddress(Object.keys(VIEWS));
  const repo = params.repo || repositories[0]?.id;
  const { events, live, tick, lately } = useEvents(repo, onRetry);
  const [title, View, about] = VIEWS[view];
  useEffect(() => {
    document.title = `${title} · ${repo || "mnemo"}`;
  }, [title, repo]);
  useLayoutEffect(() => scrollTo(0, 0), [view, repo]); // effects of the view may then scroll on
  const world = { repo, repositories, canWrite: caller.rights === "write", events, live, tick, lately };
  return html`<${World.Provider} value=${world}>
    <a class="skip" href="#content" onClick=${(event) => (event.preventDefault(), document.getElementById("content").focus())}>Skip to the content</a>
    <header>
      <span class="brand">mnemo</span>
      ${repo && html`<${Chooser} ...${{ repo, repositories, view }} />`}
      <span class="live ${live ? "on" : ""}" role="status">${live ? "live" : repo ? "not connected" : ""}</span>
      ${caller.rights === "read" && html`<span class="badge">read-only</span>`}
    </header>
    <nav aria-label="Views">
      ${Object.entries(VIEWS).map(([name, [label]]) => html`<a key=${name} href=${address(name, { repo })} aria-current=${name === view ? "page" : undefined}>${label}</a>`)}
    </nav>
    <main id="content" tabindex="-1">
      <h1>${title}</h1>
      ${repo && html`<p class="about">${about}</p>`}
      ${repo ? html`<${View} key=${`${view} ${repo}`} params=${params} />` : html`<${NoRepository} onRetry=${onRetry} />`}
    </main>
  <//>`;
}

function Chooser({ repo, repositories, view }) {
  const names = [...new Set([repo, ...repositories.map((record) => record.id)])].sort();
  return html`<label class="chooser">Repository
    <select value=${repo} onChange=${(event) => (location.hash = address(view, { repo: event.target.value }))}>
      ${names.map((name) => html`<option key=${name} value=${name} selected=${name === repo}>${name}</option>`)}
    </select>
  </label>`;
}

function NoRepository({ onRetry }) {
  return html`<${Empty}>
    The store is empty: nothing was remembered yet, or this token may use no repository of it.
    ${" "}<code>mnemo remember "I live in Lund." --actor Ada</code> stores something.
    ${" "}<button onClick=${onRetry}>Look again</button>
  <//>`;
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
