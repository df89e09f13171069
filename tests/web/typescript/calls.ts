// Calls of the client as a program makes them, and what each gave, as JSON.

import { Mnemo, Problem, type Schemas } from "./mnemo/client.js";

declare const process: { argv: string[] };

const memory = new Mnemo(process.argv[2] ?? "");
const repo = memory.repo("ada");
const told: Record<string, unknown> = {};

told["caller"] = (await memory.caller()).name;
told["remember"] = (await repo.remember({ content: "Ada plays the cello.", wait: true })).messages.length;
told["recall"] = (await repo.recall({ query: "What does Ada play?", budget_tokens: 200 })).text;
told["search"] = (await repo.search({ query: "cello" })).map((hit) => hit.snippet);

const fact: Schemas["Memory"] = await repo.add_memory({ text: "Ada lives in Bern." });
told["update_memory"] = (await repo.update_memory({ id: fact.id, text: "Ada lives in Oslo." })).version;
told["history"] = (await repo.history({ id: fact.id })).map((one) => one.text);

const chat = repo.conversation("desk/1");
await chat.append({ messages: [{ role: "user", content: "Hello." }] });
told["goal"] = (await chat.goals.add({ description: "Greet Ada" })).description;
told["load"] = (await chat.load()).map((message) => message.role);

await repo.notes.write({ topic: "ada", body: "- sings", description: "Ada" });
told["note"] = (await repo.notes.read({ topic: "ada" })).body;

await repo.items.put({ namespace: ["people", "ada"], key: "k", value: { instrument: "cello" } });
told["item"] = (await repo.items.get({ namespace: ["people", "ada"], key: "k" }))?.value;

const { id } = await repo.start_session({ goal: "Plan a trip" });
await repo.session(id).append({ observation: "Ada wants to see Tokyo." });
told["steps"] = (await repo.session(id).steps()).steps.length;

told["forget"] = (await repo.forget({ memory_ids: [fact.id], dry_run: false })).nodes;
told["refused"] = await repo.memory({ id: fact.id }).catch((error: unknown) =>
  error instanceof Problem ? [error.status, error.reason, typeof error.requestId] : String(error),
);
told["aborted"] = await repo
  .recall({ query: "Who?" }, { signal: AbortSignal.abort() })
  .catch((error: Error) => error.name);

const archive = await repo.export_repo();
told["export"] = (await archive.text()).includes("cello");
const copy = memory.repo("copy");
told["import"] = (await copy.import_repo({}, await (await repo.export_repo()).text())).revision > 0;
told["deleted"] = [(await repo.delete_repo()).messages, (await repo.delete_repo({ dry_run: false })).messages];
told["left"] = (await memory.repositories()).map((one) => one.id);

console.log(JSON.stringify(told));
