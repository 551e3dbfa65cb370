"""The program of the process that checks grammars, each in a child of its own, so that one that takes all memory, time
or stack ends that child and nothing else. Run as a file, not as a module: it needs nothing of the package, and begins
at once. It has one thread, so that a child can be forked from it that has the library and the vocabulary already."""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

MAX_MEMORY_BYTES = 256 << 20
"""That one grammar may take, beside what the process has already."""
OUT_OF_MEMORY = 3
"""The exit code of a check that has come to that; where the library notices, it aborts."""
_MAX_STACK_BYTES = 4 << 20
_MIN_STACK_BYTES = 256 << 10
_STACK_PARTS = 2
"""A check has at most this part of the stack that threads have as a rule: what fits into it fits elsewhere."""
_MAX_LEXER_STATES = 50_000
"""A state takes up to 2 kB, and a grammar may make new ones at every token."""
_MAX_REASON = 4096
_MAX_BEGINNINGS = 16
_DEATH_SIGNAL_OPTION = 1
"""PR_SET_PDEATHSIG."""
_SIZE, _RESIDENT, _SHARED = 0, 1, 2
"""Where `statm` has them."""


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
    matcher.compute_bitmask()  # its copies need not, which takes long where much may come first
    reason = (str(matcher.get_error()) or "unknown") if matcher.is_error() else ""
    if "NoExtension" in f"{matcher.stop_reason()} {reason}":
        reason = "no text follows it, as a rule that only names itself"
    return Compiled(matcher, reason)


def fault_at_beginning(vocabulary: Any, matcher: Any) -> str:
    """Why a grammar that can be compiled has more possibilities than can be followed as soon as its first byte is
    written, of those that come to it. "": it has not, as far as some bytes show."""
    bits, tried = matcher.compute_bitmask(), 0
    for byte in range(256):
        for token in vocabulary.tokenize_bytes(bytes((byte,)))[:1]:
            if tried < _MAX_BEGINNINGS and bits[token >> 3] >> (token & 7) & 1:
                tried += 1
                copied = matcher.deep_copy()
                copied.consume_token(token)
                if "items; max is" in copied.get_error():
                    return str(copied.get_error())
    return ""


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


class _Child:
    """Checks one grammar."""

    def __init__(self, number: bytes, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.answer = b""


class _Checks:
    """Those that are under way."""

    def __init__(self, library: Any, vocabulary: Any) -> None:
        self._library = library
        self._vocabulary = vocabulary
        self._own_pid = os.getpid()
        self._selector = selectors.DefaultSelector()

    def serve(self, lines: _Lines) -> None:
        """Until the pipe of whoever asks is closed, in the midst of checks as well."""
        self._selector.register(lines.number, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._read(key.fd, key.data)
                    continue
                for line in lines.read():
                    self._take(line)
                if lines.are_over:
                    return

    def end_all(self) -> None:
        """Ends what is under way."""
        for child in self._children():
            os.kill(child.pid, signal.SIGKILL)

    def _children(self) -> list[_Child]:
        return [key.data for key in self._selector.get_map().values() if key.data is not None]

    def _take(self, line: bytes) -> None:
        """`number seconds niceness sources` begins a check, `number` ends it."""
        number, _, job = line.partition(b" ")
        if job:
            self._begin(number, job)
            return
        for child in self._children():
            if child.number == number:
                os.kill(child.pid, signal.SIGKILL)

    def _begin(self, number: bytes, job: bytes) -> None:
        pipe: tuple[int, ...] = ()
        try:
            ours, theirs = pipe = os.pipe()
            pid = os.fork()
        except OSError as error:
            for end in pipe:
                os.close(end)
            _tell(number, None, _failure(error))
            return
        if pid:
            os.close(theirs)
            self._selector.register(ours, selectors.EVENT_READ, _Child(number, pid))
            return
        code = 1
        try:
            self._try(job, theirs)
        except Exception as error:  # there is no thread left for it, say
            os.write(theirs, _failure(error))
            code = 0
        finally:
            os._exit(code)

    def _read(self, pipe: int, child: _Child) -> None:
        found = os.read(pipe, 65536)
        child.answer += found
        if not found:
            self._selector.unregister(pipe)
            os.close(pipe)
            _, status = os.waitpid(child.pid, 0)
            exit_code = os.waitstatus_to_exitcode(status)
            _tell(child.number, exit_code, b"" if exit_code else child.answer)

    def _try(self, job: bytes, answer: int) -> None:
        """In a child, whose threads have no more stack than a check may take."""
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL_OPTION, signal.SIGKILL)
        if os.getppid() != self._own_pid:
            return
        for pipe in (sys.stdin, sys.stdout):
            os.close(pipe.fileno())
        seconds, niceness, sources = job.split(b" ", 2)
        signal.setitimer(signal.ITIMER_PROF, float(seconds))  # whose signal ends it
        os.nice(int(niceness))
        worker = threading.Thread(target=self._answer, args=(json.loads(sources), answer))
        worker.start()
        worker.join()

    def _answer(self, sources: list[str], pipe: int) -> None:
        """Of the grammar itself, which comes first, and of wide objects in it."""
        code = 1
        try:
            _limit_memory()
            before = _own_bytes()
            reason = _reason(self._library, self._vocabulary, sources[0])
            taken_bytes = max(0, _own_bytes() - before)
            reason = reason or _reason_of_objects(self._library, self._vocabulary, sources[1:])
            told = {"reason": reason[:_MAX_REASON], "bytes": taken_bytes}
            os.write(pipe, json.dumps(told).encode())
            code = 0
        except Exception as error:
            if _is_want_of_memory(error):
                code = OUT_OF_MEMORY
            else:
                os.write(pipe, _failure(error))
                code = 0
        finally:
            os._exit(code)


class _Lines:
    """What comes from whoever asks."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.are_over = False
        self._rest = b""

    def read(self) -> Iterator[bytes]:
        """Waits for more, and gives what is whole by then."""
        found = os.read(self.number, 1 << 20)
        self.are_over = not found
        *whole, self._rest = (self._rest + found).split(b"\n")
        yield from whole

    def first(self) -> bytes:
        """Waits for it; the next come when it is answered."""
        while not self.are_over:
            for line in self.read():
                return line
        os._exit(0)


def main() -> None:
    """Serves the pipes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(_stack_bytes())
    lines = _Lines(sys.stdin.fileno())
    try:
        library = importlib.import_module("llguidance")
        own = Vocabulary(json.loads(lines.first()))
        vocabulary = library.LLTokenizer(library.TokenizerWrapper(own), eos_token=own.eos_token_ids)
        gc.freeze()
        checks = _Checks(library, vocabulary)
        _tell(b"0", 0, b"")
        try:
            checks.serve(lines)
        finally:
            checks.end_all()
        os._exit(0)
    except BaseException as error:
        print(f"the process that checks grammars ends: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _reason(library: Any, vocabulary: Any, source: str) -> str:
    try:
        matcher, reason = compiled(library, vocabulary, source)
        return reason or fault_at_beginning(vocabulary, matcher)
    except (MemoryError, OSError):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        return str(error) or type(error).__name__


def _reason_of_objects(library: Any, vocabulary: Any, sources: list[str]) -> str:
    """Why one of them cannot be begun; what else is wrong with them is for the grammar itself to say."""
    for source in sources:
        try:
            found = compiled(library, vocabulary, source)
            fault = "" if found.reason else fault_at_beginning(vocabulary, found.matcher)
        except (MemoryError, OSError):
            raise
        except BaseException:  # a panic of the library is no Exception
            continue
        if fault:
            return fault
    return ""


def _is_want_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def _failure(error: Exception) -> bytes:
    """The answer where there was no check."""
    return json.dumps({"failure": str(error) or type(error).__name__}).encode()


def _tell(number: bytes, exit_code: int | None, answer: bytes) -> None:
    told = b'{"number": %s, "exit_code": %s, "answer": %s}\n'
    code = b"null" if exit_code is None else b"%d" % exit_code
    os.write(sys.stdout.fileno(), told % (number, code, answer or b"null"))


def _stack_bytes() -> int:
    usual, _ = resource.getrlimit(resource.RLIMIT_STACK)
    part = _MAX_STACK_BYTES if usual == resource.RLIM_INFINITY else usual // _STACK_PARTS
    return max(_MIN_STACK_BYTES, min(part, _MAX_STACK_BYTES)) // 4096 * 4096


def want_of_address_space(size_bytes: int) -> str:
    """Why this process cannot take so much more; "" where it can, as far as its limit is concerned."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return ""
    left = most - _pages()[_SIZE] * resource.getpagesize()
    if left >= size_bytes:
        return ""
    return (
        f"the limit of the address space (ulimit -v) leaves {max(left, 0) >> 20} MiB of it, and {size_bytes >> 20} may "
        "be needed: raise the limit where the server is started"
    )


def _limit_memory() -> None:
    want = want_of_address_space(MAX_MEMORY_BYTES)
    if want:
        raise RuntimeError(want)
    taken = _pages()[_SIZE] * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MAX_MEMORY_BYTES,) * 2)


def _own_bytes() -> int:
    """Without the pages of files: those of the library are mapped anew when a child touches them, and are in the
    engine's process already."""
    pages = _pages()
    return (pages[_RESIDENT] - pages[_SHARED]) * resource.getpagesize()


def _pages() -> list[int]:
    with open("/proc/self/statm", encoding="ascii") as pages:
        return [int(count) for count in pages.read().split()]


if __name__ == "__main__":
    main()
