"""The format of Llama 3.2, Llama 4 and ToolACE: a Python list of calls, `[f(a=1), g(b="x")]`."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from trireme.llm.chat.tool_parser import ToolParser

_TAG = "<|python_start|>"
_BEGINNING = re.compile(r"\[\s*[A-Za-z_][\w.]*\(")
_MAYBE = re.compile(r"\[\s*([A-Za-z_][\w.]*)?$")
_NAMES = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}


class PythonicParser(ToolParser):
    """An answer that is no such list is content. A call is told once it is whole: its arguments have to be read."""

    def _begin(self) -> bool:
        start = self._buffer.lstrip()
        if not self._is_last and (not start or (_TAG.startswith(start) and start != _TAG)):
            return False
        start = start.removeprefix(_TAG).lstrip()
        if not self._is_last and (not start or _MAYBE.match(start)):
            return False
        if not _BEGINNING.match(start):
            return self._go(self._plain)
        self._buffer = start[1:]
        self._raw = "["
        return self._go(self._calls)

    def _calls(self) -> bool:
        start = self._buffer.lstrip(" \t\r\n,")
        if not start:
            return False
        if start.startswith("]"):
            self._buffer, self._raw = start[1:], ""
            return self._go(self._nothing)
        end = _call_end(start)
        if end is None:
            return False
        call = _read_call(start[:end])
        if call is None:
            self._buffer, self._raw = self._raw + self._buffer, ""
            return self._go(self._plain)
        self._buffer, self._raw = start[end:], ""
        self._start_call(call[0])
        self._tell_arguments(json.dumps(call[1], ensure_ascii=False))
        self._end_call()
        return True


def _call_end(text: str) -> int | None:
    """Where the first call ends; None where it goes on."""
    depth, quote, is_escaped = 0, "", False
    for at, char in enumerate(text):
        if quote:
            if is_escaped:
                is_escaped = False
            elif char == "\\":
                is_escaped = True
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth <= 0:
                return at + 1
    return None


def _read_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """A name and arguments; None where the text is something else."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(entry.arg is None for entry in call.keywords):
            return None
        return ast.unparse(call.func), {str(entry.arg): _value(entry.value) for entry in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


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
