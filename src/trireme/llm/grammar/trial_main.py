"""The program of a trial process: compiles grammars one after another, so that one that takes all memory, time or stack
ends this process and no other. Run as a file, not as a module: it needs nothing of the package, and begins at once."""

from __future__ import annotations

import importlib
import json
import os
import queue
import resource
import sys
import threading
from typing import Any, NamedTuple

MAX_MEMORY_BYTES = 256 << 20
"""That one grammar may take, beside what the process has already."""
_MAX_STACK_BYTES = 4 << 20
_MIN_STACK_BYTES = 256 << 10
_STACK_PARTS = 2
"""A trial has at most this part of the stack that threads have as a rule: what fits into it fits elsewhere."""
_MAX_LEXER_STATES = 50_000
"""A state takes up to 2 kB, and a grammar may make new ones at every token."""
_MAX_REASON = 4096


class Compiled(NamedTuple):
    """What became of a grammar."""

    matcher: Any
    """The library's, which has seen no token."""
    reason: str
    """Why the grammar cannot be compiled; "": it can."""


def compiled(library: Any, vocabulary: Any, source: str) -> Compiled:
    """Compiles a grammar, and finds the tokens that may come first."""
    limits = library.LLParserLimits(max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)
    matcher = library.LLMatcher(vocabulary, source, log_level=0, limits=limits)
    if matcher.is_error():
        return Compiled(matcher, str(matcher.get_error()) or "unknown")
    first = matcher.deep_copy()
    first.compute_logit_bias()
    reason = (str(first.get_error()) or "unknown") if first.is_error() else ""
    if "NoExtension" in f"{first.stop_reason()} {reason}":
        reason = "no text follows it, as a rule that only names itself"
    return Compiled(matcher, reason)


class Vocabulary:
    """What the library reads of a vocabulary that came as a message; the names are its own."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.tokens = [token.encode("latin-1") for token in message["tokens"]]
        self.special_token_ids = message["special_token_ids"]
        self.bos_token_id = message["bos_token_id"]
        self.eos_token_ids = message["eos_token_ids"]
        self.eos_token_id = self.eos_token_ids[0]
        special = frozenset(self.special_token_ids)
        self._single = {raw: at for at, raw in enumerate(self.tokens) if len(raw) == 1 and at not in special}

    def __call__(self, text: str | bytes) -> list[int]:
        raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        found = (self._single.get(raw[at : at + 1]) for at in range(len(raw)))
        return [token for token in found if token is not None]


def main() -> None:
    """Serves the pipes. The thread that reads ends the process with the one that started it, in the midst of a trial as
    well."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(_stack_bytes())
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_work, args=(waiting,), daemon=True).start()
    for line in sys.stdin.buffer:
        waiting.put(line)
    os._exit(0)


def _work(waiting: queue.SimpleQueue[bytes]) -> None:
    try:
        library = importlib.import_module("llguidance")
        own = Vocabulary(json.loads(waiting.get()))
        vocabulary = library.LLTokenizer(library.TokenizerWrapper(own), eos_token=own.eos_token_ids)
        _limit_memory()
        _answer("")
        while True:
            _answer(_reason(library, vocabulary, json.loads(waiting.get())))
    except BaseException as error:
        print(f"a trial of grammars ends: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _reason(library: Any, vocabulary: Any, source: str) -> str:
    try:
        return compiled(library, vocabulary, source).reason
    except MemoryError:
        raise
    except BaseException as error:  # a panic of the library is no Exception
        return str(error) or type(error).__name__


def _answer(reason: str) -> None:
    os.write(sys.stdout.fileno(), json.dumps(reason[:_MAX_REASON]).encode() + b"\n")


def _stack_bytes() -> int:
    usual, _ = resource.getrlimit(resource.RLIMIT_STACK)
    part = _MAX_STACK_BYTES if usual == resource.RLIM_INFINITY else usual // _STACK_PARTS
    return max(_MIN_STACK_BYTES, min(part, _MAX_STACK_BYTES)) // 4096 * 4096


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as pages:
        taken = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MAX_MEMORY_BYTES,) * 2)


if __name__ == "__main__":
    main()
