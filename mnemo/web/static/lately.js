// What happened in the last minute, in numbers, and the failures since the page was opened.

const MINUTE_MS = 60_000;
const SLOT_MS = 1_000;
const MOST_FAILURES = 20;

const isFailure = (data) => Boolean(data.error) || data.to_state === "failed";

/** What an event adds to the numbers; durable changes are of any process, others of the service's. */
function counts(name, data) {
  if (name === "changes") {
    const memories = data.nodes.filter(([, type]) => type === "semantic" || type === "procedural");
    return { messages: data.messages.length, steps: data.steps.length, memories: memories.length, erased: data.removed.length };
  }
  return { recalls: Number(name.startsWith("Recall")), failures: Number(isFailure(data)) };
}

/** Counts events by the second in which they came, so that a minute of many is as small as of few. */
export class Lately {
  constructor() {
    this.slots = [];
    this.failures = [];
  }

  note(event) {
    const slot = Math.floor(Date.now() / SLOT_MS);
    if (this.slots.at(-1)?.slot !== slot) this.slots.push({ slot, sums: {} });
    const { sums } = this.slots.at(-1);
    for (const [what, count] of Object.entries(counts(event.name, event.data))) sums[what] = (sums[what] ?? 0) + count;
    if (isFailure(event.data)) this.failures = [event, ...this.failures].slice(0, MOST_FAILURES);
  }

  /** The numbers of the last minute. */
  rates() {
    const since = (Date.now() - MINUTE_MS) / SLOT_MS;
    this.slots = this.slots.filter(({ slot }) => slot > since);
    const sum = (what) => this.slots.reduce((whole, { sums }) => whole + (sums[what] ?? 0), 0);
    return Object.fromEntries(["messages", "steps", "memories", "erased", "recalls", "failures"].map((what) => [what, sum(what)]));
  }
}
