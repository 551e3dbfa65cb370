"""Compiles grammars for one model, and keeps the last ones: requests of a program mostly ask for the same."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import blake2b
from importlib import import_module
from typing import Any, Final, TypeVar
from weakref import WeakSet

from trireme.core.reading.json_levels import DeepJsonError, read_json
from trireme.llm.admission_errors import EngineBusyError, IsWanted, NotWantedError, always
from trireme.llm.grammar.compile_check_main import compiled, want_of_address_space
from trireme.llm.grammar.compile_check_queue import CheckUnavailableError
from trireme.llm.grammar.compile_checks import CompileCheckError, CompileChecks
from trireme.llm.grammar.matching import CompiledGrammar, GrammarTimeBudget
from trireme.llm.grammar.reasons import short_reason
from trireme.llm.grammar.sources import Schema, choice_source, json_source, lark_source
from trireme.llm.grammar.vocabulary import Vocabulary, load_library, read_vocabulary
from trireme.llm.sampling_params import SamplingError
from trireme.llm.tokenizer.port import Tokenizer

MAX_SOURCE_BYTES = 256 * 1024
MAX_CHOICES = 4096
_MAX_KEPT = 64
_MAX_KEPT_BYTES = 512 << 20
_MAX_ALL_BYTES = 2 << 30
"""Those that answers follow, though they are not kept, with those that are."""
_SPARE_BYTES: Final = 16 << 20
"""Of address space, beside what a check has taken."""
_VOCABULARY_BYTES: Final = 48 << 20
"""What the library, and a vocabulary as it keeps it, may take of it."""
_MAX_REFUSED = 256
_COSTLY_S = 60.0
"""So long one is not checked again that took all of its time, memory or stack."""
_CHEAP_S: Final = 0.005
_CHEAP_BYTES: Final = 1 << 20
"""What takes less to compile may be compiled some times more, where many answers follow it: all that are kept stay
within their bytes."""

K = TypeVar("K")
V = TypeVar("V")
_Key = tuple[str, str]
"""A grammar in the library's language, and the option that asks for it."""


class NewGrammarError(Exception):
    """A grammar that is not kept, where grammars are not compiled at once: it is asked for again after `compile`, which
    takes its time and raises SamplingError, or NotWantedError once it is wanted no more."""

    def __init__(self, grammar: _Key, compile_new: Callable[..., CompiledGrammar]) -> None:
        super().__init__("the grammar has to be compiled first")
        self.grammar = grammar
        self.compile = compile_new


class GrammarCompiler:
    """May be called from any thread, but not from the one that runs steps: compiling takes its time.

    Every method takes the name of the option that asks, and raises SamplingError with that name, and with the library's
    reason, where its grammar cannot be compiled; CheckUnavailableError, where that could not be checked; or
    EngineBusyError, where those that answers follow leave no memory for it.
    """

    def __init__(
        self, tokenizer: Tokenizer, end_ids: Collection[int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Cheap: the vocabulary is handed to the library with the first grammar."""
        self._tokenizer = tokenizer
        self._end_ids = tuple(end_ids)
        self._own: Vocabulary | None = None
        self._vocabulary: Any = None
        self._vocabulary_lock = threading.Lock()
        """Held while those two are made, which takes a second for a large one."""
        self._checks = CompileChecks()
        self._spare = GrammarTimeBudget(clock)
        self.compiles_at_once = True
        """Otherwise what is not kept raises NewGrammarError."""
        self._kept: OrderedDict[_Key, CompiledGrammar] = OrderedDict()
        self._all: WeakSet[CompiledGrammar] = WeakSet()
        self._refused: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        """By their digests: why, and until when that is taken for granted."""
        self._under_way: dict[_Key, Future[CompiledGrammar]] = {}
        self._clock = clock
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends the processes that check grammars; a grammar that is being checked is refused."""
        self._checks.close()

    def json_schema(self, schema: Schema | str, option: str = "guided_json") -> CompiledGrammar:
        """JSON that follows a schema, which may be given as a text."""
        if isinstance(schema, str):
            try:
                schema = read_json(schema)
            except DeepJsonError:
                raise SamplingError(f"'{option}' is nested too deeply") from None
            except ValueError as error:
                raise SamplingError(f"'{option}' is no JSON: {error}") from None
        if not isinstance(schema, Mapping | bool):
            raise SamplingError(f"'{option}' must be a JSON schema, an object, found {type(schema).__name__}")
        _check_encodable(schema, option)
        return self._compiled(json_source(schema), option)

    def json_object(self, option: str = "response_format") -> CompiledGrammar:
        """Any JSON object."""
        return self._compiled(json_source({"type": "object"}), option)

    def regex(self, pattern: str, option: str = "guided_regex") -> CompiledGrammar:
        """A text that a regular expression describes from its beginning to its end."""
        _check_text(pattern, option)
        return self._compiled(load_library().LLMatcher.grammar_from_regex(pattern), option)

    def notation(self, text: str, option: str = "guided_grammar") -> CompiledGrammar:
        """What a grammar describes, in Lark's notation (its first rule is `start:`) or in EBNF (`root ::=`)."""
        _check_text(text, option)
        load_library()
        try:
            lark = import_module("llguidance.gbnf_to_lark").any_to_lark(text)
        except Exception as error:  # the library's own, or what its recursion comes to
            raise SamplingError(f"'{option}' cannot be compiled: {short_reason(str(error))}") from None
        return self._compiled(lark_source(lark), option)

    def choice(self, choices: Sequence[str], option: str = "guided_choice") -> CompiledGrammar:
        """One of some texts."""
        if isinstance(choices, str) or not choices or not all(isinstance(entry, str) and entry for entry in choices):
            raise SamplingError(f"'{option}' must be a list of texts that are not empty")
        if len(choices) > MAX_CHOICES:
            raise SamplingError(f"'{option}' has {len(choices)} texts; at most {MAX_CHOICES} are taken")
        _check_encodable(choices, option)
        return self._compiled(choice_source(choices), option)

    def lark(self, text: str, option: str) -> CompiledGrammar:
        """A grammar that we wrote ourselves, around schemas of the request."""
        return self._compiled(lark_source(text), option)

    def _compiled(self, source: str, option: str) -> CompiledGrammar:
        if len(source) > MAX_SOURCE_BYTES:
            raise SamplingError(f"'{option}' has {len(source)} bytes; at most {MAX_SOURCE_BYTES} are compiled")
        key = source, option
        found = self._found(key)
        if found is None and not self.compiles_at_once:
            raise NewGrammarError(key, partial(self._compile, key))
        return found or self._compile(key)

    def _found(self, key: _Key) -> CompiledGrammar | None:
        """One that is kept; raises SamplingError for one that was refused before."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            reason, until = self._refused.get(_digest(key), ("", -math.inf)) if found is None else ("", -math.inf)
        if found is not None and found.refusal:  # another one may fare better later
            self._refuse(key, found.refusal, self._clock() + _COSTLY_S)
            raise SamplingError(found.refusal)
        if self._clock() < until:
            raise SamplingError(reason)
        return found

    def look_again(self) -> None:
        """To be called when it may be that a grammar is not wanted any more."""
        self._checks.look_again()

    def _compile(self, key: _Key, is_wanted: IsWanted = always) -> CompiledGrammar:
        """Once, however many ask for it at the same time."""
        own: Future[CompiledGrammar] = Future()
        while True:
            found = self._found(key)
            if found is not None:
                return found
            with self._lock:
                first = self._under_way.setdefault(key, own)
            if first is own:
                break
            try:
                return first.result()
            except NotWantedError:  # where it was begun, not here
                if not is_wanted():
                    raise
        try:
            compiled_grammar = self._found(key) or self._compile_new(*key, is_wanted)
        except BaseException as error:
            self._end(key)
            own.set_exception(error)
        else:
            self._end(key)
            own.set_result(compiled_grammar)
        return own.result()

    def _end(self, key: _Key) -> None:
        with self._lock:
            del self._under_way[key]

    def _compile_new(self, source: str, option: str, is_wanted: IsWanted) -> CompiledGrammar:
        """In a process of its own first: what that one survives, this one does."""
        key, until = (source, option), math.inf
        library = load_library()
        with self._vocabulary_lock:
            if self._own is None:
                _check_address_space(_VOCABULARY_BYTES)
                own = Vocabulary(self._tokenizer, self._end_ids)
                self._vocabulary = read_vocabulary(library, own)
                self._own = own
        size_bytes, taken_s = 0, math.inf
        try:
            with self._checks.checked(source, self._own, is_wanted) as size_bytes:
                _check_address_space(size_bytes)
                self._make_room(size_bytes)
                began_s = time.thread_time()
                matcher, reason = compiled(library, self._vocabulary, source)
                taken_s = time.thread_time() - began_s
        except CompileCheckError as error:
            matcher, reason = None, str(error)
            until = self._clock() + _COSTLY_S if error.is_costly else until
        if reason:
            told = f"'{option}' cannot be compiled: {short_reason(reason)}"
            self._refuse(key, told, until)
            raise SamplingError(told)
        is_cheap = taken_s < _CHEAP_S and size_bytes < _CHEAP_BYTES
        grammar = CompiledGrammar(
            matcher,
            option,
            self._spare,
            size_bytes=size_bytes,
            vocab_size=self._vocabulary.vocab_size,
            make_matcher=partial(_one_more, library, self._vocabulary, source) if is_cheap else None,
        )
        with self._lock:
            self._all.add(grammar)
        self._keep(self._kept, key, grammar, _MAX_KEPT)
        return grammar

    def _make_room(self, size_bytes: int) -> None:
        """The longest unused leave; those that answers follow are there until they have ended. None leaves for one that
        is refused."""
        with self._lock:
            spare = {key: grammar.size_bytes for key, grammar in self._kept.items() if not grammar.is_followed}
            taken_bytes = _bytes_of(self._all)
            followed_bytes = taken_bytes - sum(spare.values())
            if followed_bytes + size_bytes > _MAX_ALL_BYTES:
                raise EngineBusyError(
                    f"the grammars of requests under way take {followed_bytes >> 20} MiB, and this one "
                    f"{size_bytes >> 20}; at most {_MAX_ALL_BYTES >> 20} MiB are taken: try again later"
                )
            while self._kept and _bytes_of(self._kept.values()) + size_bytes > _MAX_KEPT_BYTES:
                key, _ = self._kept.popitem(last=False)
                taken_bytes -= spare.pop(key, 0)
            for key, spare_bytes in spare.items():
                if taken_bytes + size_bytes <= _MAX_ALL_BYTES:
                    return
                del self._kept[key]
                taken_bytes -= spare_bytes

    def _refuse(self, key: _Key, reason: str, until: float) -> None:
        """From now on, without a check."""
        with self._lock:
            self._kept.pop(key, None)
        self._keep(self._refused, _digest(key), (reason, until), _MAX_REFUSED)

    def _keep(self, kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
        with self._lock:
            kept[key] = value
            kept.move_to_end(key)
            while len(kept) > most:
                kept.popitem(last=False)


def _check_address_space(size_bytes: int) -> None:
    """Where there is none left, the library ends the process."""
    want = want_of_address_space(size_bytes + _SPARE_BYTES)
    if want:
        raise CheckUnavailableError(f"a grammar cannot be compiled: {want}")


def _one_more(library: Any, vocabulary: Any, source: str) -> Any:
    """None where it cannot be compiled, other than before."""
    matcher, reason = compiled(library, vocabulary, source)
    return None if reason else matcher


def _bytes_of(grammars: Iterable[CompiledGrammar]) -> int:
    return sum(grammar.size_bytes for grammar in grammars)


def _digest(key: _Key) -> bytes:
    return blake2b("\0".join(key).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _check_text(value: object, option: str) -> None:
    if not isinstance(value, str) or not value:
        raise SamplingError(f"'{option}' must be a text that is not empty")
    if len(value) > MAX_SOURCE_BYTES:
        raise SamplingError(f"'{option}' has {len(value)} bytes; at most {MAX_SOURCE_BYTES} are compiled")
    _check_encodable(value, option)


def _check_encodable(value: object, option: str) -> None:
    """Of a value of JSON: bytes that are not UTF-8 came as lone surrogates, which no model writes."""
    try:
        json.dumps(value, ensure_ascii=False, default=dict).encode()
    except UnicodeEncodeError:
        raise SamplingError(f"'{option}' is not UTF-8") from None
    except RecursionError:
        raise SamplingError(f"'{option}' is nested too deeply") from None
