"""A server of Anthropic's Messages API that answers what a test wrote, in JSON or as a stream."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Blocks = list[dict[str, Any]]
Answer = Callable[[dict[str, Any]], Blocks]


@dataclass
class MessagesServer:
    """Where it listens, and the bodies of the requests in the order in which they arrived."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def results(self) -> list[dict[str, Any]]:
        """The tool results of the last request's last message."""
        content = self.requests[-1]["messages"][-1]["content"]
        return [block for block in content if block["type"] == "tool_result"]


def said(text: str) -> Blocks:
    """An answer of text alone."""
    return [{"type": "text", "text": text}]


def calls(tool: str, *inputs: dict[str, Any]) -> Blocks:
    """An answer that calls *tool*, once for each of *inputs*."""
    return [
        {"type": "tool_use", "id": f"toolu_{number:02}", "name": tool, "input": one}
        for number, one in enumerate(inputs)
    ]


@contextmanager
def messages_server(answer: Answer) -> Iterator[MessagesServer]:
    """Serve what *answer* gives for a request's body, at a free port of this machine."""
    served = MessagesServer()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "/messages" not in self.path or "messages" not in body:
                return self._send({"type": "error", "error": {"type": "not_found_error"}}, 404)
            if "count_tokens" in self.path:
                return self._send({"input_tokens": 10})
            with lock:
                served.requests.append(body)
            blocks = answer(body)
            message = {
                "id": f"msg_{len(served.requests):04}",
                "type": "message",
                "role": "assistant",
                "model": body["model"],
                "content": blocks,
                "stop_reason": "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 10, "output_tokens": 10},
            }
            return self._stream(message) if body.get("stream") else self._send(message)

        def do_GET(self) -> None:
            self._send({"data": [], "has_more": False})

        def do_HEAD(self) -> None:
            self._send({})

        def log_message(self, *arguments: Any) -> None:
            """Nothing."""

        def _send(self, data: Any, status: int = 200) -> None:
            self._write(json.dumps(data).encode(), "application/json", status)

        def _stream(self, message: dict[str, Any]) -> None:
            lines = [
                f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
                for event in _events(message)
            ]
            self._write("".join(lines).encode(), "text/event-stream", 200)

        def _write(self, data: bytes, kind: str, status: int) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 10}}
    yield {"type": "message_stop"}
