// How calls reach the service: one request each, sent again where that cannot do it twice.

import type { components, operations } from "./api.js";

/** Names of calls, as in Python and in the service's document. */
export type Name = keyof operations;
/** Shapes of values, by their names. */
export type Schemas = components["schemas"];
/** A message of a stream, told apart by its `event`. */
export type StreamMessage = Schemas["StreamMessage"];
/** How far a job is: `progress`, and in the end `ended`. */
export type JobMessage = operations["job.events"]["responses"][200]["content"]["text/event-stream"];
/** Every reason of a refusal. */
export type Reason = { [K in keyof Schemas]: K extends `${string}.Problem` ? Schemas[K] : never }[keyof Schemas]["reason"];

type In<N extends Name, Place extends string> = operations[N]["parameters"] extends { [P in Place]?: infer G }
  ? [NonNullable<G>] extends [never] ? unknown : NonNullable<G>
  : unknown;
type Body<N extends Name> = operations[N] extends { requestBody?: infer B }
  ? NonNullable<B> extends { content: { "application/json": infer J } } ? J : unknown
  : unknown;
type Content<R> = R extends { content: { "application/json": infer T } } ? T
  : R extends { content: { "text/plain": infer T } } ? T
  : R extends { content: Record<string, unknown> } ? Response : void;
/** The arguments of a call, without what its handle says already. */
export type Given<N extends Name, Said extends string = never> = Omit<In<N, "query">, Said> & In<N, "path"> & Body<N>;
/** What a call gives: JSON as a value, text, or else the response, whose body is still to be read. */
export type Answer<N extends Name> = {
  [S in keyof operations[N]["responses"]]: S extends 200 | 202 | 204 ? Content<operations[N]["responses"][S]> : never;
}[keyof operations[N]["responses"]];

/** Of one call: what ends it before its answer. */
export interface Options {
  signal?: AbortSignal;
}

/** What the service refused, as its problem document says it. */
export class Problem extends Error {
  override name = "Problem";

  constructor(
    readonly status: number,
    readonly reason: Reason | "not_a_service",
    detail: string,
    readonly facts: Record<string, unknown>,
    readonly requestId: string | null,
  ) {
    super(detail);
  }
}

/** Times that a request is sent, at most, and seconds between two of them. */
const TRIES = 5;
const MOST_PAUSE_S = 5;
/** Seconds without a byte after which a stream is opened again; the service writes every 15. */
const SILENT_S = 50;
/** Statuses of answers before which the service did nothing, or may have done it. */
const NOT_BEGUN = [429];
const UNKNOWN = [502, 503, 504];

export interface Call {
  method: string;
  /** With `{name}` in place of what is given. */
  path: string;
  /** Arguments that stand behind the path. */
  inQuery: readonly string[];
  /** Whether it may be sent twice: `key`: with an idempotency key, which it gets if it has none. */
  again: boolean | "key";
}

/** A service, reached under its address with a token. */
export class Service {
  readonly #base: string;
  readonly #token: string;

  /** `url` may end in `#token=…`, as `mnemo serve` prints it. */
  constructor(url: string, token?: string) {
    const address = new URL(url);
    const found = token ?? new URLSearchParams(address.hash.slice(1)).get("token");
    if (!found) throw new TypeError("a token is needed: mnemo serve prints one in its address");
    this.#base = `${address.origin}${address.pathname.replace(/\/$/, "")}`;
    this.#token = found;
  }

  /** Send a call; `stream` is a body that is no JSON, and is sent once. */
  async send<T>(call: Call, where: object, given: object, { signal }: Options = {}, stream?: BodyInit): Promise<T> {
    const query: Record<string, unknown> = { ...where };
    const json: Record<string, unknown> = {};
    let path = call.path;
    for (const [name, value] of Object.entries(given)) {
      if (path.includes(`{${name}}`)) path = path.replace(`{${name}}`, encodeURIComponent(String(value)));
      else if (value !== undefined) (call.inQuery.includes(name) ? query : json)[name] = value;
    }
    if (call.again === "key") json["key"] ??= crypto.randomUUID();
    const sent: RequestInit = { method: call.method };
    if (signal) sent.signal = signal;
    if (stream !== undefined) {
      Object.assign(sent, { body: stream, duplex: "half", headers: { "content-type": "application/x-ndjson" } });
    } else if (!["GET", "DELETE"].includes(call.method)) {
      Object.assign(sent, { body: JSON.stringify(json), headers: { "content-type": "application/json" } });
    }
    const tries = stream === undefined ? TRIES : 1;
    for (let tried = 1; ; tried++) {
      try {
        const answer = await this.#request(path, query, sent);
        if (answer.ok) return (await contentOf(answer)) as T;
        const again = NOT_BEGUN.includes(answer.status) || (call.again && UNKNOWN.includes(answer.status));
        if (tried === tries || !again) throw await problemOf(answer);
        await pause(tried, signal, Number(answer.headers.get("retry-after") ?? 0));
      } catch (error) {
        // fetch says of a lost connection that it is a TypeError: nobody knows what was done.
        if (tried === tries || !call.again || !(error instanceof TypeError)) throw error;
        await pause(tried, signal);
      }
    }
  }

  /** The messages of a stream, which is resumed behind the last one whenever it breaks off, until nothing more comes. */
  async *stream<M extends { data: unknown } = StreamMessage>(
    given: { path?: string; repo?: string; after?: string },
    { signal }: Options = {},
  ): AsyncGenerator<M, void, undefined> {
    const { path = "/v1/events", repo } = given;
    let cursor: string | undefined = given.after;
    for (let tried = 1; ; tried++) {
      signal?.throwIfAborted();
      const link = new AbortController();
      let timer = setTimeout(() => link.abort(), SILENT_S * 1000);
      try {
        const headers: Record<string, string> = cursor === undefined ? {} : { "last-event-id": cursor };
        const both = signal ? AbortSignal.any([signal, link.signal]) : link.signal;
        const answer = await this.#request(path, { repo }, { headers, signal: both });
        if (!answer.ok) throw await problemOf(answer);
        if (answer.status === 204) return;
        for await (const part of partsOf(answer)) {
          clearTimeout(timer);
          timer = setTimeout(() => link.abort(), SILENT_S * 1000);
          const message = part && parsed<M>(part);
          if (!message) continue;
          tried = 0;
          if ("id" in message) cursor = String(message.id);
          yield message;
        }
      } catch (error) {
        const isFinal = error instanceof Problem && ![...NOT_BEGUN, ...UNKNOWN].includes(error.status);
        if (isFinal || signal?.aborted) throw signal?.aborted ? signal.reason : error;
      } finally {
        clearTimeout(timer);
        link.abort();
      }
      await pause(Math.max(tried, 1), signal);
    }
  }

  #request(path: string, query: object, sent: RequestInit): Promise<Response> {
    const params = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== null && one !== undefined) params.append(name, String(one));
      }
    }
    const headers = { authorization: `Bearer ${this.#token}`, ...sent.headers };
    return fetch(`${this.#base}${path}?${params}`, { ...sent, headers });
  }
}

/** Base of the handles: where a call goes, and what its address says of it. */
export abstract class Handle {
  protected constructor(
    protected readonly service: Service,
    protected readonly where: Record<string, string>,
  ) {}
}

async function contentOf(answer: Response): Promise<unknown> {
  if (answer.status === 204) return undefined;
  const kind = answer.headers.get("content-type") ?? "";
  if (kind.startsWith("application/json")) return answer.json();
  return kind.startsWith("text/plain") ? answer.text() : answer;
}

async function problemOf(answer: Response): Promise<Problem> {
  const id = answer.headers.get("x-request-id");
  const text = await answer.text();
  try {
    const { reason, detail, facts } = JSON.parse(text) as Schemas["Problem"];
    return new Problem(answer.status, reason as Reason, detail, facts ?? {}, id);
  } catch {
    return new Problem(answer.status, "not_a_service", text.slice(0, 200), {}, id);
  }
}

/** Wait before the next try: what the service asks for, or else longer each time. */
async function pause(tried: number, signal?: AbortSignal, askedS = 0): Promise<void> {
  const seconds = askedS || Math.min(MOST_PAUSE_S, 0.1 * 2 ** tried) * (0.5 + Math.random() / 2);
  await new Promise<void>((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(signal?.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", stop), resolve()), seconds * 1000);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** What stands between two blank lines of a stream; "": a sign of life. */
async function* partsOf(answer: Response): AsyncGenerator<string> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value.replaceAll("\r", "");
    const parts = text.split("\n\n");
    text = parts.pop() ?? "";
    yield* parts.length ? parts : [""];
  }
}

function parsed<M>(part: string): M | undefined {
  const fields: Record<string, string> = {};
  for (const line of part.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return fields["data"] === undefined ? undefined : { ...fields, data: JSON.parse(fields["data"]) } as M;
}
