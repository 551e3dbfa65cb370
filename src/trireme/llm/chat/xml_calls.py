"""Formats that write a call's arguments as elements: those of Qwen3-Coder, Seed-OSS, MiniMax, DeepSeek V3.2 and GLM.

<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trireme.llm.chat.argument_values import argument_json, is_text
from trireme.llm.chat.tool_parser import ToolParser

_SPACES = " \t\r\n"
GLM_NAME = re.compile(r"[\w.:/-]+")


@dataclass(frozen=True, slots=True)
class XmlTags:
    """How a format writes its tags; those that name something end with `>`."""

    opening: str
    """Of all calls, or of each."""
    closing: str
    call: str
    """The beginning of a call's tag, before its name."""
    call_closing: str
    key: str
    """The beginning of an argument's tag, before its name."""
    value_closing: str
    line: str = ""
    """What a model that is made to call writes behind tags, and around values."""
    quote: str = ""
    """What a name stands in, behind what its tag begins with."""


QWEN = XmlTags("<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", "\n")
SEED = XmlTags(
    "<seed:tool_call>", "</seed:tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", "\n"
)
MINIMAX = XmlTags(
    "<minimax:tool_call>", "</minimax:tool_call>", '<invoke name="', "</invoke>", '<parameter name="', "</parameter>",
    "\n", '"',
)  # fmt: skip
DSML = XmlTags(
    "<\uff5cDSML\uff5cfunction_calls>", "</\uff5cDSML\uff5cfunction_calls>", '<\uff5cDSML\uff5cinvoke name="',
    "</\uff5cDSML\uff5cinvoke>", '<\uff5cDSML\uff5cparameter name="', "</\uff5cDSML\uff5cparameter>", "\n", '"',
)  # fmt: skip
GLM = XmlTags("<tool_call>", "</tool_call>", "", "</tool_call>", "<arg_key>", "</arg_value>", "\n")
GLM_KEY_CLOSING = "</arg_key>"
GLM_VALUE = "<arg_value>"


class XmlParser(ToolParser):
    """A text argument is told while it is written, any other once it is whole: its type is the schema's to say."""

    tags = QWEN

    _name = ""
    _key = ""
    _is_text: bool | None = None
    """Whether the argument under way is a text; None: its tag has not said."""
    _has_keys = False
    _is_in_call = False
    _is_in_value = False

    def _end_text(self) -> None:
        """A call that was cut off has the arguments that it has."""
        if self._is_in_call:
            self._end_call()
        else:
            super()._end_text()

    def _begin(self) -> bool:
        found = self._tell_until(self.tags.opening, self.tags.call)
        if not found:
            return False
        self._raw = found
        return self._go(self._header if found == self.tags.call else self._inside)

    def _inside(self) -> bool:
        """Behind the opening tag: a call, or it was none."""
        start = self._buffer.lstrip(_SPACES)
        if start.startswith(self.tags.call):
            self._raw += self._take(len(self._buffer) - len(start) + len(self.tags.call))
            return self._go(self._header)
        if self._may_go_on and self.tags.call.startswith(start):
            return False
        return self._no_call()

    def _no_call(self) -> bool:
        """What was taken for the beginning of a call is content, so that it is not found again."""
        self._tell(self._raw)
        self._raw = ""
        return self._go(self._begin)

    def _header(self) -> bool:
        """The rest of a call's tag."""
        name, end, rest = self._buffer.partition(">")
        if not end:
            return False
        self._buffer = rest
        self._open(name)
        return self._go(self._keys)

    def _open(self, header: str) -> None:
        self._raw = ""
        self._name = header.partition('"')[0].strip()
        self._has_keys = False
        self._is_in_call = True
        self._start_call(self._name)

    def _keys(self) -> bool:
        """Between arguments."""
        tags = self.tags
        marks = (tags.key, tags.call_closing, tags.closing, tags.call or tags.opening)
        found = self._skip_until(*dict.fromkeys(marks))
        if found == tags.key:
            return self._go(self._key_header)
        if not found:
            return False
        self._close()
        if found == marks[-1]:  # the model forgot to close the call before
            self._raw = found
            return self._go(self._header)
        return self._go(self._begin if found == tags.closing else self._behind)

    def _key_header(self) -> bool:
        header, end, rest = self._buffer.partition(">")
        if not end:
            return False
        self._buffer = rest
        name, _, others = header.partition('"')
        self._begin_value(name.strip(), {'string="true"': True, 'string="false"': False}.get(others.strip()))
        return self._go(self._value)

    def _begin_value(self, key: str, is_said_text: bool | None = None) -> None:
        self._key = key
        schema = self._schema()
        self._is_text = is_text(schema) if is_said_text is None else is_said_text
        self._tell_arguments(f"{', ' if self._has_keys else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        self._has_keys = True

    def _value(self) -> bool:
        """An argument, without the line breaks that stand around it."""
        if self._is_text:
            return self._text_value()
        value, closing, rest = self._buffer.partition(self.tags.value_closing)
        if not closing and self._may_go_on:
            return False
        self._buffer = rest
        self._tell_arguments(argument_json(_unwrapped(value), self._schema()))
        return bool(closing) and self._go(self._keys)

    def _text_value(self) -> bool:
        if not self._is_in_value:
            if not self._buffer and self._may_go_on:
                return False
            self._buffer = self._buffer.removeprefix("\n")
            self._is_in_value = True
            self._tell_arguments('"')
        value, closing, rest = self._buffer.partition(self.tags.value_closing)
        if not closing:
            kept = self._undecided((f"\n{self.tags.value_closing}", self.tags.value_closing))
            value, rest = self._buffer[: len(self._buffer) - kept], self._buffer[len(self._buffer) - kept :]
        self._buffer = rest
        value = value.removesuffix("\n") if closing else value
        if value:
            self._tell_arguments(json.dumps(value, ensure_ascii=False)[1:-1])
        if not closing:
            return False
        self._is_in_value = False
        self._tell_arguments('"')
        return self._go(self._keys)

    def _close(self) -> None:
        self._tell_arguments("}" if self._has_keys else "{}")
        self._is_in_call = False
        self._end_call()

    def _behind(self) -> bool:
        """Behind a call: another, or the end of them."""
        found = self._skip_until(self.tags.call, self.tags.closing)
        self._raw = found if found == self.tags.call else ""
        return bool(found) and self._go(self._header if found == self.tags.call else self._begin)

    def _schema(self) -> object:
        """Of the argument under way."""
        properties = self._schemas.get(self._name, {}).get("properties")
        return properties.get(self._key) if isinstance(properties, Mapping) else None


class SeedParser(XmlParser):
    """Seed-OSS."""

    tags = SEED


class MiniMaxParser(XmlParser):
    """MiniMax M2."""

    tags = MINIMAX


class DsmlParser(XmlParser):
    """DeepSeek V3.2, whose tags say which arguments are texts."""

    tags = DSML


class GlmParser(XmlParser):
    """GLM 4.5 and later: the name, then keys and values, each in tags of their own."""

    tags = GLM

    def _is_call_begun(self) -> bool:
        """Other text may stand behind the tag as well."""
        name = self._buffer.partition("<")[0].strip()
        return super()._is_call_begun() and (not self._raw or not name or GLM_NAME.fullmatch(name) is not None)

    def _begin(self) -> bool:
        self._raw = self._tell_until(GLM.opening)
        return bool(self._raw) and self._go(self._header)

    def _header(self) -> bool:
        start = self._buffer.lstrip(_SPACES)
        ends = [at for mark in ("\n", GLM.key, GLM.closing) if (at := start.find(mark)) >= 0]
        if not ends:
            return False
        name = start[: min(ends)].strip()
        if not GLM_NAME.fullmatch(name):
            return self._no_call()
        self._buffer = start[min(ends) :]
        self._open(name)
        return self._go(self._keys)

    def _key_header(self) -> bool:
        key, closing, rest = self._buffer.partition(GLM_KEY_CLOSING)
        start = rest.lstrip(_SPACES)
        if not closing or (not start.startswith(GLM_VALUE) and GLM_VALUE.startswith(start)):
            return False
        if not start.startswith(GLM_VALUE):
            self._buffer = rest
            return self._go(self._keys)
        self._buffer = start.removeprefix(GLM_VALUE)
        self._begin_value(key.strip())
        return self._go(self._value)


def _unwrapped(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")
