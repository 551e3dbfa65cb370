"""Compiles grammars for one model, and keeps the last ones: requests of a program mostly ask for the same."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from trireme.llm.grammar.matching import CompiledGrammar
from trireme.llm.grammar.sources import Schema, choice_source, json_source, lark_source
from trireme.llm.grammar.trial import GrammarTrials, TrialError
from trireme.llm.grammar.trial_main import compiled
from trireme.llm.grammar.vocabulary import Vocabulary, load_library, read_vocabulary
from trireme.llm.sampling_params import SamplingError
from trireme.llm.tokenizer.port import Tokenizer

MAX_SOURCE_BYTES = 256 * 1024
MAX_CHOICES = 4096
_MAX_KEPT = 64
_MAX_REASON = 400


class NewGrammarError(Exception):
    """A grammar that is not kept, where grammars are not compiled at once: it is asked for again after `compile`, which
    takes its time and raises SamplingError."""

    def __init__(self, compile_new: Callable[[], CompiledGrammar]) -> None:
        super().__init__("the grammar has to be compiled first")
        self.compile = compile_new


class GrammarCompiler:
    """May be called from any thread, but not from the one that runs steps: compiling takes its time.

    Every method takes the name of the option that asks, and raises SamplingError with that name, and with the library's
    reason, where its grammar cannot be compiled; or NoTrialError, where that could not be tried.
    """

    def __init__(self, tokenizer: Tokenizer, end_ids: Collection[int]) -> None:
        """Cheap: the vocabulary is handed to the library with the first grammar."""
        self._tokenizer = tokenizer
        self._end_ids = tuple(end_ids)
        self._own: Vocabulary | None = None
        self._vocabulary: Any = None
        self._trials = GrammarTrials()
        self.compiles_at_once = True
        """Otherwise what is not kept raises NewGrammarError."""
        self._kept: OrderedDict[tuple[str, str], CompiledGrammar] = OrderedDict()
        self._under_way: dict[tuple[str, str], threading.Event] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends the processes that try grammars; a grammar that is being tried is refused."""
        self._trials.close()

    def json_schema(self, schema: Schema | str, option: str = "guided_json") -> CompiledGrammar:
        """JSON that follows a schema, which may be given as a text."""
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except ValueError as error:
                raise SamplingError(f"'{option}' is no JSON: {error}") from None
        if not isinstance(schema, Mapping | bool):
            raise SamplingError(f"'{option}' must be a JSON schema, an object, found {type(schema).__name__}")
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
            raise SamplingError(f"'{option}' cannot be compiled: {_short(str(error))}") from None
        return self._compiled(lark_source(lark), option)

    def choice(self, choices: Sequence[str], option: str = "guided_choice") -> CompiledGrammar:
        """One of some texts."""
        if isinstance(choices, str) or not choices or not all(isinstance(entry, str) and entry for entry in choices):
            raise SamplingError(f"'{option}' must be a list of texts that are not empty")
        if len(choices) > MAX_CHOICES:
            raise SamplingError(f"'{option}' has {len(choices)} texts; at most {MAX_CHOICES} are taken")
        return self._compiled(choice_source(choices), option)

    def lark(self, text: str, option: str) -> CompiledGrammar:
        """A grammar that we wrote ourselves, around schemas of the request."""
        return self._compiled(lark_source(text), option)

    def _compiled(self, source: str, option: str) -> CompiledGrammar:
        if len(source) > MAX_SOURCE_BYTES:
            raise SamplingError(f"'{option}' has {len(source)} bytes; at most {MAX_SOURCE_BYTES} are compiled")
        found = self._found(source, option)
        if found is None and not self.compiles_at_once:
            raise NewGrammarError(partial(self._compile, source, option))
        return found or self._compile(source, option)

    def _found(self, source: str, option: str) -> CompiledGrammar | None:
        with self._lock:
            if (source, option) not in self._kept:
                return None
            self._kept.move_to_end((source, option))
            return self._kept[source, option]

    def _compile(self, source: str, option: str) -> CompiledGrammar:
        """Once, however many ask for it at the same time."""
        while (found := self._found(source, option)) is None:
            with self._lock:
                other = self._under_way.get((source, option))
                if other is None:
                    own = self._under_way[source, option] = threading.Event()
            if other is not None:
                other.wait()
                continue
            try:
                return self._compile_new(source, option)
            finally:
                with self._lock:
                    del self._under_way[source, option]
                own.set()
        return found

    def _compile_new(self, source: str, option: str) -> CompiledGrammar:
        """In a process of its own first: what that one survives, this one does."""
        library = load_library()
        with self._lock:
            if self._own is None:
                self._own = Vocabulary(self._tokenizer, self._end_ids)
                self._vocabulary = read_vocabulary(library, self._own)
        try:
            self._trials.check(source, self._own)
            matcher, reason = compiled(library, self._vocabulary, source)
        except TrialError as error:
            matcher, reason = None, str(error)
        if reason:
            raise SamplingError(f"'{option}' cannot be compiled: {_short(reason)}")
        grammar = CompiledGrammar(matcher, option)
        with self._lock:
            self._kept[source, option] = grammar
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return grammar


def _check_text(value: object, option: str) -> None:
    if not isinstance(value, str) or not value:
        raise SamplingError(f"'{option}' must be a text that is not empty")
    if len(value) > MAX_SOURCE_BYTES:
        raise SamplingError(f"'{option}' has {len(value)} bytes; at most {MAX_SOURCE_BYTES} are compiled")


def _short(reason: str) -> str:
    """The library's reason without its pictures of the grammar and its state."""
    lines: list[str] = []
    for line in reason.splitlines():
        if lines and line.strip() and not line.strip(" ^"):  # which points at something in the line above
            lines.pop()
        elif line.strip() and "<non-verbose/>" not in line:
            lines.append(line.strip())
    text = " ".join(lines)
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}..."
