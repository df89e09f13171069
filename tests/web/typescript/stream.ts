// Remember over a line that breaks, and print what a stream over it tells of.

import { Mnemo } from "./mnemo/client.js";

declare const process: { argv: string[] };

const [, , direct = "", breaking = ""] = process.argv;
const repo = new Mnemo(direct).repo("ada");
const weak = new Mnemo(breaking).repo("ada");

console.log((await weak.remember({ content: "Ada has 0 cats." })).messages.length);
const failed = await weak.add_memory({ text: "Ada has a dog." }).catch((error: Error) => error.name);
console.log(failed);

const heard = new AbortController();
let begun = false;
try {
  for await (const message of weak.events({}, { signal: heard.signal })) {
    if (message.event === "ready" && !begun) {
      begun = true;
      await repo.remember({ content: "Ada has 1 cats." });
    }
    if (message.event !== "changes") continue;
    for (const [thread, seq] of message.data.messages) {
      console.log(thread, seq);
      if (seq === 5) heard.abort();
      else await repo.remember({ content: `Ada has ${seq + 1} cats.` });
    }
  }
} catch (error) {
  console.log((error as Error).name);
}
