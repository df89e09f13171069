// Begin a job, and print what its stream tells.

import { Mnemo } from "./mnemo/client.js";

declare const process: { argv: string[] };

const memory = new Mnemo(process.argv[2] ?? "");
const begun = await memory.repo("old").reembed();
if (!("id" in begun)) throw new Error("it was carried out at once");
for await (const message of memory.job_events({ id: begun.id })) {
  if (message.event === "ended") console.log(message.data.state, message.data.id === begun.id);
}
console.log((await memory.job({ id: begun.id })).state);
