"""What a request asks its answer to look like: a schema, a pattern, calls of tools; and how such an answer is read."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.core.reading.json_levels import DeepJsonError, read_json
from trireme.llm.chat.chat_parser import ChatParser
from trireme.llm.chat.formats import ToolFormat, name_of
from trireme.llm.chat.reasoning import ReasoningSplitter, ReasoningTags
from trireme.llm.chat.tools import Tool
from trireme.llm.grammar.compiler import GrammarCompiler
from trireme.llm.grammar.matching import AfterReasoning
from trireme.llm.grammar.sources import json_rule
from trireme.llm.sampling_params import Grammar, SamplingError
from trireme.llm.text_engine import Engine

log = logging.getLogger(__name__)

OPTIONS = frozenset({
    "tools", "tool_choice", "parallel_tool_calls", "response_format", "guided_json", "guided_regex", "guided_grammar",
    "guided_choice",
})  # fmt: skip
_GUIDES = ("guided_json", "guided_regex", "guided_grammar", "guided_choice", "response_format")
_JSON_OPTIONS = ("tools", "response_format", "guided_choice")
_TAIL_TOKENS = 16
"""So many of the prompt's last tokens tell whether it ends in a reasoning."""
_BY_NUMBER = b"<["
"""Begins the numbers of tokens in a grammar."""
MAX_TOOLS = 256
_SHOWN = 80
"""Characters of a name."""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """Of one request."""

    grammar: Grammar | None = None
    shown_ids: frozenset[int] = frozenset()
    make_parser: Callable[[], ChatParser] = ChatParser
    """For each of the request's choices."""


class AnswerForms:
    """Reads the options of requests for one model."""

    def __init__(
        self,
        engine: Engine,
        tool_format: ToolFormat | None,
        reasoning: ReasoningTags | None,
        max_new_tokens: int | None = None,
    ) -> None:
        self._tokenizer = engine.tokenizer
        self._grammars: GrammarCompiler = engine.grammars
        self._end_ids = engine.end_ids
        self.max_length = engine.core.spec.max_positions
        """Tokens of a prompt and its answer together."""
        self.max_new_tokens = max_new_tokens
        """Of an answer whose request does not say; None: what fits."""
        self._format = tool_format
        self._has_told = False
        self._reasoning = reasoning

    def read(self, given: Mapping[str, Any], is_chat: bool, prompt: Sequence[int]) -> AnswerForm:
        """Raises SamplingError with the option's name where an option cannot be followed."""
        options = {key: _decoded(key, value) for key, value in given.items() if key in OPTIONS}
        tools = _tools(options.get("tools")) if is_chat and options.get("tool_choice") != "none" else []
        choice = options.get("tool_choice", "auto")
        if tools and self._format is None:
            self._tell_of_tools()
        if self._format is not None:
            _check_names(tools, self._format)
        grammar = self._grammar(options, tools, choice)
        named = self._named_in(options.get("guided_grammar"))
        if not is_chat:
            return AnswerForm(grammar, named)
        tail = self._tokenizer.decode(prompt[-_TAIL_TOKENS:], skip_special=False) if self._reasoning else ""
        if grammar is not None and self._reasoning is not None:
            grammar = self._after_reasoning(grammar, self._reasoning, tail)
        return AnswerForm(grammar, named | self._shown(bool(tools)), self._parsers(tools, tail))

    def _tell_of_tools(self) -> None:
        """Once: a chat with tools is answered, as if there were none."""
        if not self._has_told:
            log.warning(
                "a request has tools, but the model's chat template speaks of no format of tool calls that is known: "
                "answers will call none; the model's parameter 'tool_parser' names a format"
            )
        self._has_told = True

    def _grammar(self, options: Mapping[str, Any], tools: Sequence[Tool], choice: Any) -> Grammar | None:
        named = [key for key in _GUIDES if key in options and options[key] != {"type": "text"}]
        if len(named) > 1:
            raise SamplingError(f"a request has one of '{named[0]}' and '{named[1]}', not both")
        called = _called(tools, choice)
        if called:
            return self._calls(called, options)
        if not named:
            return None
        if named[0] == "response_format":
            return self._response_format(options, tools)
        compile_guide: Mapping[str, Callable[[Any], Grammar]] = {
            "guided_json": self._grammars.json_schema,
            "guided_regex": self._grammars.regex,
            "guided_grammar": self._grammars.notation,
            "guided_choice": self._grammars.choice,
        }
        return compile_guide[named[0]](options[named[0]])

    def _response_format(self, options: Mapping[str, Any], tools: Sequence[Tool]) -> Grammar:
        """Where tools are offered as well, the model may call them instead."""
        wanted = options["response_format"]
        schema = _schema(wanted)
        if not tools or self._format is None:
            return self._grammars.json_schema(schema, "response_format")
        rules = self._format.rules(tools, self._mark, options.get("parallel_tool_calls", True) is not False)
        return self._grammars.lark(f"start: calls | answer\n{rules}\nanswer: {json_rule(schema)}", "response_format")

    def _calls(self, tools: Sequence[Tool], options: Mapping[str, Any]) -> Grammar:
        if self._format is None:
            raise SamplingError(
                "'tool_choice' cannot be enforced: the model's chat template speaks of no format of tool calls that is "
                "known; the model's parameter 'tool_parser' names one"
            )
        is_named = isinstance(options.get("tool_choice"), Mapping)
        may_be_many = not is_named and options.get("parallel_tool_calls", True) is not False
        return self._grammars.lark(f"start: calls\n{self._format.rules(tools, self._mark, may_be_many)}", "tools")

    def _after_reasoning(self, grammar: Grammar, tags: ReasoningTags, tail: str) -> Grammar:
        opening = self._token(tags.opening)
        is_open = tags.is_open(tail)
        if tail.rstrip().endswith(tags.closing) or (opening is None and not is_open):
            return grammar
        pieces = self._tokenizer.piece_bytes
        return AfterReasoning(grammar, None if is_open else opening, tags.closing.encode(), pieces, self._end_ids)

    def _parsers(self, tools: Sequence[Tool], tail: str) -> Callable[[], ChatParser]:
        tags, tool_format = self._reasoning, self._format if tools else None
        names = [tool.name for tool in tools]
        schemas = {tool.name: tool.parameters for tool in tools}

        def make() -> ChatParser:
            splitter = ReasoningSplitter(tags, tags.is_open(tail)) if tags is not None else None
            found = tool_format.parser(names, tool_format.new_id, schemas) if tool_format is not None else None
            return ChatParser(splitter, found)

        return make

    def _shown(self, has_tools: bool) -> frozenset[int]:
        tags = list(self._format.tags) if self._format is not None and has_tools else []
        if self._reasoning is not None:
            tags += [self._reasoning.opening, self._reasoning.closing]
        found = {self._token(tag) for tag in tags} - {None}
        return frozenset(token for token in found if token is not None and token in self._tokenizer.special_ids)

    def _named_in(self, grammar: object) -> frozenset[int]:
        """The special tokens that a grammar may ask for, as `<|tag|>` or by their numbers; no others can come."""
        special = self._tokenizer.special_ids if isinstance(grammar, str) else ()
        text = str(grammar).encode("utf-8", "replace")
        return frozenset(one for one in special if _BY_NUMBER in text or self._tokenizer.piece_bytes(one) in text)

    def _token(self, tag: str) -> int | None:
        """The token that a tag is; None where it is several."""
        tokens = self._tokenizer.encode(tag, add_special=False)
        return tokens[0] if len(tokens) == 1 else None

    def _mark(self, tag: str) -> str:
        token = self._token(tag)
        return f"<[{token}]>" if token in self._tokenizer.special_ids else json.dumps(tag, ensure_ascii=False)


def _decoded(key: str, value: Any) -> Any:
    """Parameters of a request are scalars: objects come as their JSON."""
    if isinstance(value, str) and (key in _JSON_OPTIONS or (key == "tool_choice" and value.startswith("{"))):
        try:
            return read_json(value)
        except DeepJsonError:
            raise SamplingError(f"'{key}' is nested too deeply") from None
        except ValueError as error:
            raise SamplingError(f"'{key}' is no JSON: {error}") from None
    return value


def _tools(given: Any) -> list[Tool]:
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > MAX_TOOLS:
        raise SamplingError(f"'tools' must be a list of at most {MAX_TOOLS} tools")
    found = []
    for number, entry in enumerate(given):
        function = entry.get("function") if isinstance(entry, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
            raise SamplingError(f"'tools[{number}]' must be an object with the 'function' that has a 'name'")
        parameters = function.get("parameters")
        if parameters is not None and not isinstance(parameters, Mapping):
            raise SamplingError(f"'tools[{number}].function.parameters' must be a JSON schema, an object")
        found.append(Tool(name, parameters) if parameters else Tool(name))
    return found


def _check_names(tools: Sequence[Tool], tool_format: ToolFormat) -> None:
    """Raises SamplingError for a name that a call would not be read with."""
    rule = tool_format.names
    for number, tool in enumerate(tools):
        if rule is not None and not rule.pattern.fullmatch(tool.name):
            raise SamplingError(
                f"'tools[{number}].function.name' is {tool.name[:_SHOWN]!r}, which the model's format of tool calls "
                f"('{name_of(tool_format)}') cannot write: a name has {rule.words}"
            )


def _called(tools: Sequence[Tool], choice: Any) -> list[Tool]:
    """The tools one of which the answer must call; none: it may do as it likes."""
    if isinstance(choice, str) and choice in ("auto", "none"):
        return []
    if not tools:
        raise SamplingError("'tool_choice' needs 'tools' and 'messages'")
    if choice == "required":
        return list(tools)
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if name is None:
        raise SamplingError("'tool_choice' must be none, auto, required or an object with a 'function' and its 'name'")
    found = [tool for tool in tools if tool.name == name]
    if not found:
        raise SamplingError(f"'tool_choice' names the tool '{name}', which is not one of 'tools'")
    return found[:1]


def _schema(wanted: Any) -> Mapping[str, Any] | bool:
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise SamplingError("'response_format' must be an object with the 'type' text, json_object or json_schema")
    described = wanted.get("json_schema")
    schema = described.get("schema") if isinstance(described, Mapping) else None
    if not isinstance(schema, Mapping | bool):
        raise SamplingError("'response_format.json_schema.schema' must be a JSON schema, an object")
    return schema
