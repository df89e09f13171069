// Calls of the HTTP service: the token, JSON, problem documents as errors, server-sent events.

const KEY = "mnemo-token";
const LONGEST_PAUSE_MS = 10_000;
/** A stream is cut after so long without a byte: the service writes a comment every 15 seconds. */
const SILENT_MS = 50_000;

/** Keep the token of `/#token=…` for this tab, and take it out of the address. */
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
  history.replaceState(null, "", "#/overview");
}

export const hasToken = () => Boolean(sessionStorage.getItem(KEY));

export const setToken = (token) => sessionStorage.setItem(KEY, token);

/** What the service refused, as its problem document says it. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || `the service answered ${status}`);
    this.status = status;
    this.reason = document.reason || "";
  }
}

/** Call the service. Parameters that are null, undefined or "" are left out. */
export async function call(method, path, { params = {}, body, signal } = {}) {
  const answer = await request(method, path, params, body, signal);
  return answer.status === 204 ? null : answer.json();
}

export const get = (path, params, signal) => call("GET", path, { params, signal });
/** Members of a list that are read at once. */
const PAGE = 1_000;

/** The whole of a list, one page behind the other by the *id* of its last member. */
export async function getAll(path, id, params, signal) {
  const found = [];
  let page;
  do {
    page = await get(path, { ...params, limit: PAGE, after: found.at(-1)?.[id] }, signal);
    found.push(...page);
  } while (page.length === PAGE);
  return found;
}

export const post = (path, params, body, signal) => call("POST", path, { params, body, signal });

async function request(method, path, params, body, signal, headers = {}) {
  const given = Object.entries(params).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(given).toString();
  const answer = await fetch(`/v1${path}${query && `?${query}`}`, {
    method,
    signal,
    cache: "no-store",
    headers: {
      authorization: `Bearer ${sessionStorage.getItem(KEY) || ""}`,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.ok) return answer;
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

/** What "Try now" does: every stream that waits for its next try begins at once. */
export const tryNow = () => dispatchEvent(new Event("mnemo-try"));

/**
 * Follow the events of a repository, or of all (null), until *signal* aborts; after a break from
 * where it stopped.
 *
 * onEvent gets {name, data}; onState gets whether the stream is open, and else when the next try
 * is. A wrong token is thrown.
 */
export async function follow(repo, signal, onEvent, onState) {
  let cursor = null;
  let pause = 500;
  while (!signal.aborted) {
    const link = new AbortController();
    let timer = null;
    const heard = () => (clearTimeout(timer), (timer = setTimeout(() => link.abort(), SILENT_MS)));
    try {
      heard();
      const resumed = cursor === null ? {} : { "last-event-id": cursor };
      const answer = await request("GET", "/events", { repo }, undefined, AbortSignal.any([signal, link.signal]), resumed);
      pause = 500;
      for await (const message of messages(answer.body, heard)) {
        onState(true); // the first, "ready", says that nothing is missed from now on
        if (message.id !== null) cursor = message.id;
        onEvent({ name: message.event, data: JSON.parse(message.data) });
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
    } finally {
      clearTimeout(timer);
      link.abort();
      if (!signal.aborted) onState(false, Date.now() + pause);
    }
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, pause);
      addEventListener("mnemo-try", () => (clearTimeout(timer), resolve()), { once: true });
    });
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

async function* messages(stream, heard) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    text += value.replaceAll("\r", "");
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const message = parsed(part);
      if (message.data) yield message;
    }
  }
}

function parsed(part) {
  const message = { event: "message", data: "", id: null };
  for (const line of part.split("\n")) {
    const [, field, value] = /^(\w*):? ?(.*)$/.exec(line) || [];
    if (field === "data") message.data += (message.data && "\n") + value;
    else if (field === "event" || field === "id") message[field] = value;
  }
  return message;
}
