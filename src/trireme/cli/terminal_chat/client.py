"""A client of the server's chat API: answers piece by piece, over a plain HTTP connection."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from trireme.tools.client.connect import KEY_VARIABLE
from trireme.tools.perf.wire.http1_responses import length_fault

Message = dict[str, str]
_NO_SERVER = (
    "'trireme chat FOLDER' starts one for this chat, 'trireme serve FOLDER' one that stays; --url says where it is"
)
_ANSWER_S = 600.0
"""Between two pieces of an answer."""


class ChatError(Exception):
    """What the user has to be told instead of an answer."""


class LongChatError(ChatError):
    """The messages are longer than the model takes."""


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """A piece of an answer, or what is known at its end."""

    text: str = ""
    thought: str = ""
    usage: dict[str, Any] | None = None


class ChatClient:
    """Each request has a connection of its own: closing it tells the server that nobody waits any more."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            self._port = parts.port
        except ValueError:  # no number
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ChatError(f"'{url}' is no address of a server, such as http://localhost:8000")
        self.url = url
        self._connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host = parts.hostname
        self._base = parts.path.rstrip("/").removesuffix("/v1")

    def models(self) -> list[str]:
        """The models that can be asked."""
        connection, response = self._ask("GET", "/v1/models", None)
        try:
            return [entry["id"] for entry in json.loads(response.read())["data"]]
        except (OSError, http.client.HTTPException) as error:
            raise ChatError(f"the connection to {self.url} broke: {error}") from None
        except (ValueError, KeyError, TypeError):
            raise ChatError(f"what answers at {self.url} has no chat API") from None
        finally:
            connection.close()

    def stream(self, model: str, messages: list[Message], options: dict[str, Any]) -> Iterator[ChatDelta]:
        """The answer as it is written; leaving the iterator ends it at the server too."""
        extras = {"stream": True, "stream_options": {"include_usage": True}}
        connection, response = self._ask(
            "POST", "/v1/chat/completions", {"model": model, "messages": messages, **extras, **options}
        )
        try:
            while line := response.readline():
                data = line.strip().removeprefix(b"data: ")
                if data == b"[DONE]":
                    return
                if data:
                    yield _read_chunk(json.loads(data))
        except (OSError, http.client.HTTPException) as error:
            raise ChatError(f"the connection to {self.url} broke: {error}") from None
        except (ValueError, KeyError, TypeError, IndexError):
            raise ChatError(f"what {self.url} answers is no chat") from None
        finally:
            connection.close()

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._connect(self._host, self._port, timeout=_ANSWER_S)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            headers |= key_headers()
            connection.request(method, self._base + path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            reason = getattr(error, "strerror", None) or error
            raise ChatError(f"no server answers at {self.url}: {reason}\n{_NO_SERVER}") from None
        fault = length_fault(response.headers.get("Content-Length"))
        if fault and not response.chunked:
            connection.close()
            raise ChatError(f"the answer of {self.url} cannot be read: {fault}")
        if response.status != 200:
            text = response.read()
            connection.close()
            raise _refusal(text, response.status)
        return connection, response


def key_headers() -> dict[str, str]:
    """What shows the key to the server, where the environment has one."""
    key = os.environ.get(KEY_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}


def _read_chunk(chunk: dict[str, Any]) -> ChatDelta:
    if "error" in chunk:
        raise _told(chunk["error"])
    delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
    return ChatDelta(delta.get("content") or "", delta.get("reasoning_content") or "", chunk.get("usage"))


def _refusal(text: bytes, status: int) -> ChatError:
    try:
        return _told(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return ChatError(f"the server answered with the status {status}")


def _told(error: Any) -> ChatError:
    if not isinstance(error, dict):
        return ChatError(str(error))
    kind = LongChatError if error.get("code") == "context_length_exceeded" else ChatError
    return kind(str(error["message"]))
