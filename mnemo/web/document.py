"""
The OpenAPI document: what the declarations say, beside what FastAPI knows of the routes.

Words:
    action: What was done.
    actor: Who said or did it.
    advice: What to do about it.
    after: What comes behind it, or the cursor behind which a listing goes on.
    around: Only what is at most two edges away from this node.
    at: When.
    before: What comes ahead of it.
    body: Markdown.
    boundary_detected: Whether a trajectory begins with this step.
    busy: Whether an extraction or a commit is in flight.
    by: Who or what wrote it.
    cached_tokens: Tokens that the model had in its cache.
    cancelled: Whether it was cancelled.
    candidates: What was found, best first.
    changeset_id: The changeset's id.
    citations: Which number in the text stands for which source.
    community: Only nodes of the community of this number.
    compactions: Summaries of ranges.
    completed_at: When it was done; null: it is open.
    completed_children: Sub-goals that were done with it.
    condition: When the instruction holds.
    confidence: How sure it is, 0 to 1.
    content: A text, or blocks.
    conversations: Levels of conversations.
    counts: How many there are of each kind.
    cost_usd: US dollars; null: nobody knows.
    count: How many.
    created_at: When it was stored.
    data: What happened, as JSON.
    description: What it is about, in a line.
    detail: What is wrong, in words.
    documents: Texts that are indexed.
    duration_s: Seconds that it took.
    edge_count: How many edges were written.
    edges: Ties between nodes.
    edits: Former wordings, and why they were changed.
    end_seq: The last message's seq.
    episode_id: The episode that it belongs to.
    episodic: What happened, in words.
    epoch: Raised when the thread begins anew.
    error: What failed, in words.
    event: The message's name.
    excerpt: The beginning of the text.
    expected_outcome: What following the instruction leads to.
    extra: The item of another format that the other fields do not give back.
    failing: Why the last try failed.
    frequency: How often it was found or used, as a part of the score.
    from_index: The first step's index.
    from_seq: The first message's seq.
    from_state: The state before.
    goal: What is to be done.
    goal_ids: Goals for which it stays.
    goals: What is to be done.
    hits: Notes, best first.
    id: Its id.
    index: Its place, counted from 0.
    input_tokens: Tokens that were sent to models.
    instruction: What to do.
    is_error: Whether the tool call failed.
    items: The members of the page.
    key: Its key: the same key again stores nothing.
    kind: Which kind it is.
    label: The tag.
    last-event-id: The id of the last event that was read.
    last_read_at: When it was last read.
    level: 1: of messages; 2: of summaries.
    limit: Members of the answer, at most.
    message_id: The message's id.
    metadata: A JSON object that filters look at.
    mode: Which kinds of memory were looked at.
    model: The model's name.
    name: Its name.
    namespace: The path that the key is below.
    node: What was found, whole.
    node_ids: Ids of nodes.
    note: The note.
    note_versions: Versions of notes.
    notes: Notes.
    number: Its number, the largest community is 0.
    observation: What was seen or said.
    oldest_at: Since when the oldest waits.
    open_sessions: Sessions that are open in the service.
    operation: What was done.
    origin: What the summary was made of.
    output_tokens: Tokens that models wrote.
    parent_goal: The goal that it is a part of.
    parent_id: The goal that it is a part of.
    passage: The part of the note that fits the question.
    phase: The step of the search that found it.
    pins: Messages that stay in the window.
    plain_text: What was said, whole.
    procedural: Instructions, in words.
    problems: What is wrong; none is healthy.
    proposition: What the fact says.
    query: What was asked.
    reason: Why, for a program.
    recalls: Questions.
    released_pins: How many messages are held no longer.
    repo: The repository's id.
    repo_id: The repository's id.
    report: What was done.
    repositories: Ids of repositories; ``*`` is all.
    result_count: How many were found.
    return_score: How well following the instruction went.
    revision: The revision of the graph.
    reward: How well it went; null: nobody knows.
    rights: What the token permits.
    role: Who speaks.
    running: How many run.
    schema_version: Of the store's tables.
    score: How well it fits, the more the better.
    seconds_left: Seconds until nothing waits, estimated; null: nobody knows.
    semantic: Facts, in words.
    seq: Its number in the thread.
    series: Values by name, one each step.
    session: The session's id.
    session_id: The session's id.
    sessions: Sessions.
    size: Characters.
    snapshots: Summaries of what left the window.
    snapshots_after: Summaries of what comes behind.
    source: Where the edge begins.
    span: How far back.
    start_seq: The first message's seq.
    state: Where it stands.
    state_tokens: Tokens of goals, pins and snapshots.
    status: Where it stands, or the HTTP status.
    step_index: The step's place in its episode.
    step_indexes: The steps' indexes.
    step_s: Seconds between two values.
    steps: Steps.
    subgoal: What the agent was about to reach.
    summary_text: The text that stands for the range.
    superseded_by: The fact that replaced it.
    target: Where the edge ends, or what the view is of.
    synchronous: How far the store flushes a write before it is acknowledged.
    task_id: The task that wrote it.
    text: Its text.
    texts: Texts by which it is found.
    thread: The conversation thread's id.
    thread_id: The conversation thread's id.
    threads: Conversation threads.
    title: The HTTP status in words.
    to_seq: The last message's seq.
    to_state: The state now.
    token_count: How many tokens it has.
    tokens: How many tokens they have.
    tool_call_id: The call that the message answers.
    tool_calls: Calls of tools.
    topic: The note's topic.
    trace: What the search did, with times.
    trajectory_id: The trajectory that it belongs to.
    trust: How far it is to be trusted: who wrote it.
    type: Which type it is.
    update_id: The update's id.
    updated_at: When it last changed.
    updates_waiting: Updates that wait.
    use_model: Whether the chat model is asked.
    valid_from: Since when it holds.
    valid_to: Until when it held.
    value: The JSON object.
    vectors: Vectors.
    version: Its version.
    waiting: How many wait.
    wordings: Ways to say it.
"""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlencode

from pydantic import TypeAdapter

import mnemo
from mnemo import events
from mnemo.exchange import adapter
from mnemo.operations import OPERATIONS, described, reason_of

WORDS = described(__doc__, "Words")
"""What a property means, by its name, where the docstring of its class leaves it out."""
OPEN = ("/healthz", "/readyz")
"""Paths that need no token."""
OF_THE_SERVICE = frozenset(
    {
        *(
            "bad_request",
            "token_missing",
            "token_unknown",
            "token_expired",
            "forbidden",
            "foreign_origin",
        ),
        *("not_found", "method_not_allowed", "request_timeout", "content_too_large"),
        *("unsupported_media_type", "wrong_host", "invalid_argument", "rate_limited"),
        *("request_header_fields_too_large", "too_many_requests", "too_many_wrong_tokens"),
        *("internal_error", "too_many_connections", "service_unavailable", "timeout"),
        "usage_error",
    }
)
"""Reasons with which the service refuses any call, whatever it is."""
EXAMPLES: dict[str, Any] = {
    "action": "Noted it.",
    "body": "- plays the cello",
    "content": "Ada moved to Bern in March.",
    "description": "What is known of Ada",
    "forget": {"thread_id": "default", "dry_run": True},
    "end_seq": 0,
    "goal_id": 1,
    "goal_ids": [1],
    "goal": "Help Ada plan her week",
    "messages": [{"role": "user", "content": "Ada moved to Bern in March."}],
    "observation": "Ada rehearses on Tuesdays.",
    "history": [{"role": "user", "content": "Ada moved to Bern in March."}],
    "iterations": 5,
    "namespace": ["people", "ada"],
    "queries": ["Where does Ada live?"],
    "repo": "default",
    "query": "Where does Ada live?",
    "seqs": [0],
    "start_seq": 0,
    "states": ["ready", "failed"],
    "text": "Ada lives in Bern.",
    "thread_ids": ["default"],
    "topic": "ada",
    "value": {"instrument": "cello"},
    "version": 1,
}
"""Of arguments, of others the name; of a whole body where no argument is needed by itself."""


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """Add to *document* what FastAPI does not know, in place."""
    document.setdefault("servers", [{"url": "/", "description": "The service that gives this."}])
    document["security"] = [{"token": []}]
    parts = document["components"]
    parts["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "As `mnemo token` makes it."}
    }
    _tell_messages(document["paths"]["/v1/events"]["get"], parts["schemas"])
    for schema in parts["schemas"].values():
        _describe(schema)
    told = [one for methods in document["paths"].values() for one in methods.values()]
    for name in parts["schemas"].keys() - {_body_of(one) for one in told}:
        _require(parts["schemas"][name])
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            if path in OPEN:
                told["security"] = []
            of = OPERATIONS.get(told["operationId"])
            summary = of.summary if of else told["description"].partition("\n")[0]
            told["summary"] = summary.replace("``", "").replace("*", "")
            _exemplify(method.upper(), path, told, parts["schemas"])
            _tell_refusals(told, parts["schemas"])
    return document


def _tell_messages(told: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Say what the messages of the stream are: the name, the data, and of changes the cursor."""
    kinds = {"ready": dict[str, str], "changes": mnemo.Changes}
    kinds |= {name: getattr(events, name) for name in events.__all__ if name != "Event"}
    data, made = TypeAdapter.json_schemas(
        [(name, "serialization", adapter(kind)) for name, kind in kinds.items()],
        ref_template="#/components/schemas/{model}",
    )
    for name, schema in made["$defs"].items():
        schemas.setdefault(name, schema)
    messages = []
    for (name, _), schema in data.items():
        fields = {"event": {"const": name}, "data": schema}
        if name in ("ready", "changes"):
            fields["id"] = {"type": "string", "description": "Where Last-Event-ID resumes."}
        messages.append({"type": "object", "required": [*fields], "properties": fields})
        _describe(messages[-1])
    schemas["StreamMessage"] = {"oneOf": messages, "description": "A message of a stream."}
    schema = {"$ref": "#/components/schemas/StreamMessage"}
    told["responses"]["200"]["content"] = {"text/event-stream": {"schema": schema}}


def _describe(schema: dict[str, Any]) -> None:
    """Give each property what the docstring of the class says of it."""
    texts = described(schema.get("description"), "Attributes")
    for name, property in schema.get("properties", {}).items():
        text = texts.get(name) or WORDS.get(name)
        if text and "description" not in property:
            property["description"] = text
    if "description" in schema:
        schema["description"] = schema["description"].partition("\nAttributes:")[0].strip()


def _body_of(told: dict[str, Any]) -> str | None:
    """The name of the schema of the request's body."""
    content = told.get("requestBody", {}).get("content", {}).get("application/json")
    return content and content["schema"]["$ref"].rpartition("/")[2]


def _require(schema: dict[str, Any]) -> None:
    """An answer has all properties, also those with defaults."""
    if "properties" in schema:
        schema["required"] = [*schema["properties"]]


def _tell_refusals(told: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Name the reasons of the operation's refusals, which are problem documents."""
    name = f"{told['operationId']}.Problem"
    reason = {"type": "string", "enum": sorted(reasons_of(told["operationId"]))}
    problem = {"$ref": "#/components/schemas/Problem"}
    own = {"type": "object", "properties": {"reason": reason}}
    _describe(own)
    schemas[name] = {"allOf": [problem, own], "description": "Why it was not carried out."}
    content = {"application/problem+json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    for status in ("4XX", "5XX"):
        told["responses"][status]["content"] = content


def reasons_of(name: str) -> frozenset[str]:
    """The reasons with which a route may refuse."""
    if name in ("session.retry", "session.aclose", "inspection.session", "session.steps"):
        return reasons_of("session.commit") | {"not_failed"}
    own = OPERATIONS[name].reasons if name in OPERATIONS else frozenset[str]()
    return own | OF_THE_SERVICE | _OF_WHAT_IT_STANDS_ON


_OF_WHAT_IT_STANDS_ON = frozenset(
    reason_of(name)
    for name in mnemo.errors.__all__
    if issubclass(getattr(mnemo.errors, name), mnemo.StoreError | mnemo.ModelError)
)
"""Reasons of stores and models."""


def _exemplify(method: str, path: str, told: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Give the arguments that a call needs a value each, each a description; and a whole call."""
    params, command = {}, ["curl"]
    if "security" not in told:
        command += ["--oauth2-bearer", '"$MNEMO_TOKEN"']
    for one in told.get("parameters", ()):
        one.setdefault("description", WORDS.get(one["name"], ""))
        if one["required"]:
            one["example"] = EXAMPLES.get(one["name"], one["name"])
            params[one["name"]] = one["example"]
            if one["in"] == "path":
                path = path.replace(f"{{{one['name']}}}", str(params.pop(one["name"])))
    if body := _body_of(told):
        needed = {name: EXAMPLES.get(name, name) for name in schemas[body].get("required", ())}
        example = needed or EXAMPLES.get(told["operationId"], {})
        told["requestBody"]["content"]["application/json"]["example"] = example
        command += ["--json", shlex.quote(json.dumps(example))]
    for kind in told.get("requestBody", {"content": {}})["content"].keys() - {"application/json"}:
        command += ["-H", f"'Content-Type: {kind}'", "-T", "archive.jsonl"]
    if method != ("POST" if "--json" in command else "GET") or "-T" in command:
        command += ["-X", method]
    command.append(f'"$MNEMO_URL{path}{"?" if params else ""}{urlencode(params, doseq=True)}"')
    told["description"] += f"\n\n```sh\n{' '.join(command)}\n```"
