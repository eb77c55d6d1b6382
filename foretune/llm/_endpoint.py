"""Any server that speaks OpenAI's chat completions: OpenAI, vLLM, llama.cpp, Ollama...

The client is ``httpx2``, or its predecessor ``httpx`` on Python 3.10: they bound time and size of
an answer while it is read. OpenAI's own package would bring pydantic and a second configuration by
environment variables, and reads answers whole.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from foretune.errors import BadInputError, MissingDependencyError
from foretune.llm._base import MOST_TOKENS, Answer, LanguageModel, LlmError, Message, one_line

OPENAI_URL = "https://api.openai.com/v1"
_LARGEST = 1 << 18
"""Bytes of a response at most: an answer has a few thousand."""
_SHOWN = 200
"""Characters of a server's complaint that are passed on."""
_CONNECT_S = 10.0
_LEAST_SECRET = 8
"""Characters from which on a key is looked for in what a server says. Servers that check no key are
often given one all the same: taking each ``1`` or ``EMPTY`` out of an answer would destroy it, and
what is that short can be guessed, so that hiding it keeps nothing secret."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "temperature": (int, float, type(None)),
    "max_tokens": (int, type(None)),
    "extra": (Mapping,),
    "disturbs": (bool, type(None)),
}
_KEY_WANTED = {401, 403}
_FINAL = {401, 403, 404, 405}
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}


@dataclass(frozen=True)
class EndpointConfig:
    """Where a model is and how it is asked.

    Attributes:
        model: Its name on the server.
        base_url: Up to and without ``/chat/completions``.
        key: Sent as a bearer token, shown nowhere; empty for none.
        temperature: Of sampling; None leaves it to the server.
        max_tokens: Longest answer; None leaves it to the server.
        extra: Further fields of the request, for example ``{"reasoning_effort": "low"}``.
        disturbs: Whether the server computes on what programs are timed on, so that it is not asked
            meanwhile; None takes it that a server on this machine does, and no other.
    """

    model: str
    base_url: str = OPENAI_URL
    key: str = field(default="", repr=False)
    temperature: float | None = 0.7
    max_tokens: int | None = 2048
    extra: Mapping[str, Any] = field(default_factory=dict)
    disturbs: bool | None = None

    def __post_init__(self) -> None:
        for name, kinds in _TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                # Without the value, which may be a key that was written here by mistake.
                raise BadInputError(f"llm: {name} is of another type: docs/llm.md has an example")
        try:
            parts = urlsplit(self.base_url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
            # A user's password would be shown with the address, and so would a key in a query.
            usable = usable and "@" not in parts.netloc and parts.port != 0
            usable = usable and "?" not in self.base_url and "#" not in self.base_url
        except ValueError:
            usable = False
        if not usable:
            raise BadInputError(
                "the address of a language model must read http://HOST[:PORT]/v1 or https://..., "
                "without a user or anything behind a question mark, but another one was given: "
                "give its base URL"
            )
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise BadInputError("llm: temperature >= 0 must hold, and be finite: choose 0 to 2")
        if not self.model:
            raise BadInputError("a language model has a name, but got none: give MODEL@URL")
        if not self.key.isascii() or not self.key.isprintable():
            raise BadInputError("the key of a language model is one line of ASCII: check it")


class Endpoint(LanguageModel):
    """A model behind an OpenAI-compatible server.

    Args:
        config: Where and how.

    Raises:
        MissingDependencyError: Neither httpx2 nor httpx is installed.
    """

    def __init__(self, config: EndpointConfig) -> None:
        self.config = config
        self.name = config.model
        self._http = http = _import_httpx()
        headers = {"Accept-Encoding": "identity"}
        if config.key:
            headers["Authorization"] = f"Bearer {config.key}"
        # Neither redirects, which would carry the key elsewhere, nor what the environment says.
        self._client = http.Client(headers=headers, follow_redirects=False, trust_env=False)
        self._url = config.base_url.rstrip("/") + "/chat/completions"

    @property
    def settings(self) -> dict[str, Any]:
        """What is sent beside model and messages."""
        chosen = {
            "temperature": self.config.temperature,
            "max_tokens": self.config.max_tokens,
            **self.config.extra,
        }
        return {name: value for name, value in chosen.items() if value is not None}

    def disturbs(self, kind: str) -> bool:
        """As configured; else whether the server is on this machine, whatever is timed.

        There it computes on the processor or on a GPU, and nothing that it says tells which. A
        question that waits costs seconds; a reading that was disturbed misleads the whole search.
        """
        if self.config.disturbs is not None:
            return self.config.disturbs
        return _is_here(urlsplit(self.config.base_url).hostname or "")

    def complete(self, messages: Sequence[Message], seconds: float) -> Answer:
        """One request; what it answers is read only so far.

        Raises:
            LlmError: No answer, in time and in a form that can be read.
        """
        began = time.monotonic()
        body = {"model": self.name, "messages": list(messages), **self.settings, "stream": False}
        http = self._http
        timeout = http.Timeout(seconds, connect=min(seconds, _CONNECT_S))
        try:
            with self._client.stream("POST", self._url, json=body, timeout=timeout) as response:
                content = self._read(response, began + seconds)
                status, headers = response.status_code, response.headers
        except http.TimeoutException as error:
            raise LlmError(f"no answer within {seconds:.0f} s", again=True) from error
        except http.HTTPError as error:
            told = self._told(str(error))
            raise LlmError(f"{self._host} cannot be reached ({told})", again=True) from error
        if status != 200:
            told = self._told(_complaint(content))
            if status in _KEY_WANTED and not self.config.key:
                told += " (no key was sent: key_file or key_env of the settings names one)"
            raise LlmError(
                f"{self._host} answers {status}: {told}",
                again=status in _AGAIN,
                final=status in _FINAL,
                wait_s=_wait_s(headers.get("Retry-After", "")),
            )
        answer = _answer(content, time.monotonic() - began)
        # A server may repeat what it was sent.
        return replace(answer, text=self._without_key(answer.text))

    def _read(self, response: Any, deadline: float) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise LlmError(f"{self._host} sends a compressed answer, which was not asked for")
        content = bytearray()
        for chunk in response.iter_raw():
            content += chunk
            if len(content) > _LARGEST:
                raise LlmError(f"an answer has at most {_LARGEST} bytes, but this one has more")
            if time.monotonic() > deadline:
                raise LlmError("the answer comes too slowly", again=True)
        return bytes(content)

    @property
    def _host(self) -> str:
        return str(urlsplit(self.config.base_url).netloc)

    def _told(self, text: str) -> str:
        """Foreign text for a message: one short line, without the key."""
        return one_line(self._without_key(text), _SHOWN) or "no reason given"

    def _without_key(self, text: str) -> str:
        key = self.config.key
        return text.replace(key, "***") if len(key) >= _LEAST_SECRET else text

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def _is_here(host: str) -> bool:
    """Whether a host is this machine, as far as its name or address alone tells.

    Args:
        host: A name in lower case, or an address.
    """
    try:
        address = ip_address(host)
    except ValueError:
        name = host.rstrip(".")
        own = name in ("localhost", socket.gethostname().lower())
        return own or name.endswith(".localhost")
    plain = getattr(address, "ipv4_mapped", None) or address
    return bool(plain.is_loopback or plain.is_unspecified)


def _import_httpx() -> Any:
    try:
        import httpx2

        return httpx2
    except ModuleNotFoundError:
        pass
    try:
        import httpx

        return httpx
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "language models behind a server need an HTTP client, which is not installed: install "
            "it with `pip install foretune[llm]`"
        ) from error


def _answer(content: bytes, seconds: float) -> Answer:
    used = (0, 0)
    try:
        data = json.loads(content)
        # First: tokens of an answer that cannot be used are paid for, too.
        used = _used(data.get("usage"))
        choice = data["choices"][0]
        text, cut_off = choice["message"].get("content"), choice.get("finish_reason") == "length"
        if text is None and cut_off:
            # A model that thinks came to its limit before it came to the answer.
            text = ""
        if not isinstance(text, str):
            raise TypeError("its content is no text")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise LlmError(
            f"the answer is no chat completion ({type(error).__name__})",
            again=True,
            prompt_tokens=used[0],
            completion_tokens=used[1],
        ) from error
    return Answer(text, *used, seconds, cut_off)


def _used(usage: Any) -> tuple[int, int]:
    """Tokens of prompt and completion, as far as the server counts them."""
    if not isinstance(usage, dict):
        return 0, 0
    return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))


def _count(value: Any) -> int:
    return min(max(0, value), MOST_TOKENS) if type(value) is int else 0


def _complaint(content: bytes) -> str:
    try:
        error = json.loads(content)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return content.decode(errors="replace")


def _wait_s(header: str) -> float:
    """Seconds that ``Retry-After`` asks for: a number or a date; 0 if it says nothing."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
