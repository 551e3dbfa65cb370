"""The format of Llama 3.2, Llama 4 and ToolACE: a Python list of calls, `[f(a=1), g(b="x")]`."""

from __future__ import annotations

import ast
import json
import keyword
import re
from typing import Any

from trireme.llm.chat.tool_parser import ToolParser

_TAG = "<|python_start|>"
_BEGINNING = re.compile(r"\[\s*[A-Za-z_][\w.]*\(")
_QUOTES = "'\""
_BRACKET = re.compile(r"[()\[\]{}'\"]")
_IN_QUOTES = {quote: re.compile(rf"[\\{quote}]") for quote in _QUOTES}
_MAYBE = re.compile(r"\[\s*([A-Za-z_][\w.]*)?$")
_BEGUN = re.compile(r"\s*[\[,]?\s*([A-Za-z_][\w.]*)?(\()?")
_ARGUMENT = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?P<before>[(,]\s*)(?P<name>[\w.$@-]+)(?=\s*=(?!=))""", re.DOTALL
)
"""The name of an argument, or a text, in which there is none."""
_STAND_IN = "argument_called_otherwise_"
_NAMES = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}


class PythonicParser(ToolParser):
    """An answer that is no such list is content. A call is told once it is whole: its arguments have to be read."""

    _scan: _CallScan | None = None
    """Of the call that has begun in the buffer."""

    def _is_call_begun(self) -> bool:
        """Of a tool that there is, as far as its name was written; other lists are content."""
        found = _BEGUN.match((self._raw + self._buffer).lstrip().removeprefix(_TAG))
        if found is None or not found[1]:
            return self._state == self._calls or _is_begun(self._buffer.strip())
        if not self._names:
            return True
        return found[1] in self._names if found[2] else any(name.startswith(found[1]) for name in self._names)

    def _begin(self) -> bool:
        start = self._buffer.lstrip()
        if self._may_go_on and (not start or (_TAG.startswith(start) and start != _TAG)):
            return False
        start = start.removeprefix(_TAG).lstrip()
        if self._may_go_on and (not start or _MAYBE.match(start)):
            return False
        if not _BEGINNING.match(start):
            return self._go(self._plain)
        self._buffer = start[1:]
        self._raw = "["
        return self._go(self._calls)

    def _calls(self) -> bool:
        if self._scan is None:
            start = self._buffer.lstrip(" \t\r\n,")
            if not start:
                return False
            if start.startswith("]"):
                self._buffer, self._raw = start[1:], ""
                return self._go(self._nothing)
            self._scan = _CallScan(len(self._buffer) - len(start))
        end = self._scan.end(self._buffer)
        if end is None:
            return False
        call = _read_call(self._buffer[self._scan.begin : end])
        self._scan = None
        if call is None:
            self._buffer, self._raw = self._raw + self._buffer, ""
            return self._go(self._plain)
        self._buffer, self._raw = self._buffer[end:], ""
        self._start_call(call[0])
        self._tell_arguments(call[1])
        self._end_call()
        return True


def _is_begun(text: str) -> bool:
    """Whether all there is may become a tag and a list."""
    return text != "" and (text == "[" or _TAG.startswith(text) or text.removeprefix(_TAG).strip() in ("", "["))


class _CallScan:
    """Finds where a call ends in a text that grows: what was looked at is not looked at again."""

    def __init__(self, begin: int) -> None:
        self.begin = self._at = begin
        self._depth = 0
        self._quote = ""

    def end(self, text: str) -> int | None:
        """Where the call ends; None where it goes on."""
        while found := (_IN_QUOTES[self._quote] if self._quote else _BRACKET).search(text, self._at):
            mark = found[0]
            if mark == "\\":  # and what it escapes, which may be still to come
                self._at = found.start()
                if found.end() == len(text):
                    return None
                self._at += 2
                continue
            self._at = found.end()
            if self._quote:
                self._quote = ""
            elif mark in _QUOTES:
                self._quote = mark
            else:
                self._depth += 1 if mark in "([{" else -1
                if self._depth <= 0 and mark in ")]}":
                    return self._at
        self._at = len(text)
        return None


def _read_call(text: str) -> tuple[str, str] | None:
    """A name, and arguments as JSON; None where the text is something else."""
    text, names = _with_pythons_names(text.strip())
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(entry.arg is None for entry in call.keywords):
            return None
        arguments = {names.get(str(entry.arg), str(entry.arg)): _value(entry.value) for entry in call.keywords}
        return ast.unparse(call.func), json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _with_pythons_names(text: str) -> tuple[str, dict[str, str]]:
    """A call whose arguments have names that Python takes, and what those that it does not take were: `from`, `x-y`."""
    names: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None or (name.isidentifier() and not keyword.iskeyword(name)):
            return found[0]
        stand_in = f"{_STAND_IN}{len(names)}"
        names[stand_in] = name
        return f"{found['before']}{stand_in}"

    return _ARGUMENT.sub(renamed, text), names


def _value(node: ast.expr) -> Any:
    """A literal of Python or of JSON. Raises ValueError where it is none."""
    if isinstance(node, ast.Name) and node.id in _NAMES:
        return _NAMES[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(entry) for entry in node.elts]
    if isinstance(node, ast.Dict):
        return {_value(key): _value(entry) for key, entry in zip(node.keys, node.values, strict=True) if key}
    found = ast.literal_eval(node)
    if not isinstance(found, str | int | float | bool | None):
        raise ValueError(f"{type(found).__name__} is no JSON")
    return found
