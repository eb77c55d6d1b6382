"""An OpenAI-compatible server on loopback: answers from a loaded model, or from a script."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-test-0123456789"


@dataclass
class Reply:
    """What the server sends.

    Attributes:
        body: The bytes of the body.
        status: HTTP status.
        headers: Beside the usual ones.
        wait_s: Seconds before it is sent.
        drip_s: Seconds between the bytes of the body.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    drip_s: float = 0.0


def completion(
    text: str, prompt_tokens: int = 7, completion_tokens: int = 3, finish_reason: str = "stop"
) -> Reply:
    """A chat completion."""
    message = {"role": "assistant", "content": text}
    data = {
        "id": "1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens},
    }
    return Reply(json.dumps(data).encode())


def refusal(status: int, message: str = "no", **headers: str) -> Reply:
    """An error as OpenAI words it."""
    body = json.dumps({"error": {"message": message}}).encode()
    return Reply(body, status, {k.replace("_", "-"): v for k, v in headers.items()})


Script = Callable[[Mapping[str, Any], int], Reply]
"""The request's JSON and its number, from 0, to a reply."""


class Server:
    """Serves ``POST /v1/chat/completions`` until it is left."""

    def __init__(self, script: Script) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.active = self.most_active = 0
        self._script = script
        self._lock = threading.Lock()
        self._closing = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                owner._answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        request = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
            self.headers.append(dict(handler.headers))
            self.active += 1
            self.most_active = max(self.most_active, self.active)
        try:
            assert handler.path == "/v1/chat/completions"
            self._send(handler, self._script(request, number))
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with self._lock:
                self.active -= 1

    def _send(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        if self._closing.wait(reply.wait_s):
            return
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        if not reply.drip_s:
            handler.wfile.write(reply.body)
            return
        for byte in reply.body:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            if self._closing.wait(reply.drip_s):
                return

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()


def always(reply: Reply) -> Script:
    """The same reply to everything."""
    return lambda _request, _number: reply


def in_turn(*replies: Reply) -> Script:
    """One reply after the other, then the last one again and again."""
    return lambda _request, number: replies[min(number, len(replies) - 1)]


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
