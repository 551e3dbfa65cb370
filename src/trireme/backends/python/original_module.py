"""Where a module of ours has the name of somebody else's that is installed as well: theirs, in place of ours."""

from __future__ import annotations

import importlib.util
import os
import sys


def put_original_in_place(name: str, our_file: str) -> None:
    """Runs the last file on the path that has this module's name, and has imports of the name give that module. Does
    nothing where there is no other. The last, because its owner adds its folder to what is installed."""
    for folder in reversed(sys.path):
        path = os.path.join(os.path.abspath(folder), f"{name}.py")
        if not os.path.isfile(path) or os.path.samefile(path, our_file):
            continue
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            continue
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return
