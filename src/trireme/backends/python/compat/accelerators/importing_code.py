"""Tells who imports the software of an accelerator: the model's own files, or a library that would believe that it is
there."""

from __future__ import annotations

import os
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_CATCHING = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def importing_frame(frame: FrameType | None) -> FrameType | None:
    """The code that imports; None where somebody only asks what is installed."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module == "importlib.util":
            return None
        if module.partition(".")[0] != "importlib":
            return frame
        frame = frame.f_back
    return None


def is_of_model(frame: FrameType) -> bool:
    """Whether this code is the model's, or Trireme's on behalf of a model; not an installed library's."""
    if str(frame.f_globals.get("__name__")).startswith("trireme."):
        return True
    file = frame.f_code.co_filename
    return not file.startswith("<frozen") and not any(part in file for part in _LIBRARIES)


def mentions(frame: FrameType, word: str) -> bool:
    """Whether a name or a text of this code has the word: `import a.b` is first asked for `a` alone."""
    code = frame.f_code
    return any(isinstance(entry, str) and word in entry for entry in (*code.co_names, *code.co_consts))


def is_guarded(frame: FrameType) -> bool:
    """Whether the file has its own way without the module: the import is in a `try` that catches its failure."""
    import ast  # here, because every worker loads this file and hardly any comes this far
    import linecache

    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return any(_covers(node, frame.f_lineno) for node in ast.walk(tree) if isinstance(node, ast.Try))


def _covers(node: ast.Try, line: int) -> bool:
    last = node.body[-1].end_lineno or 0
    return node.body[0].lineno <= line <= last and any(_catches(handler) for handler in node.handlers)


def _catches(handler: ast.ExceptHandler) -> bool:
    """A handler that only raises again, in other words perhaps, is no way without the module."""
    import ast

    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    is_fitting = any(kind is None or (isinstance(kind, ast.Name) and kind.id in _CATCHING) for kind in kinds)
    return is_fitting and not isinstance(handler.body[-1], ast.Raise)
