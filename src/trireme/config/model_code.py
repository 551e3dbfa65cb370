"""What can be said about a `model.py` without running it: its syntax, its class, its methods."""

from __future__ import annotations

import ast
from pathlib import Path

from trireme.config.nearest import suggestion
from trireme.machine.regular_files import read_regular

CLASS_NAME = "TritonPythonModel"
_MOST_BYTES = 16 << 20
_METHODS = ("auto_complete_config", "initialize", "execute", "finalize", "is_ready")


def code_problems(path: Path) -> list[str]:
    """Sentences with file and line; none where the file looks as the server wants it. Nothing is imported."""
    try:
        tree = _parsed(path)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        text = (getattr(error, "text", None) or "").strip()
        shown = f"\n    {text}" if text else ""
        return [f"{path}:{line}: {type(error).__name__}: {getattr(error, 'msg', error)}{shown}"]
    except OSError as error:
        return [f"{path}: {error.strerror}"]
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    model = classes.get(CLASS_NAME)
    if model is not None:
        return _method_problems(path, model)
    is_elsewhere = any(_brings_the_name(node) for node in tree.body)
    return [] if is_elsewhere else [f"{path}: there is no class {CLASS_NAME}{_meant(classes)}"]


def may_complete_config(path: Path) -> bool:
    """Whether the model's code may add to its configuration; a class that comes from elsewhere may."""
    try:
        tree = _parsed(path)
    except (SyntaxError, ValueError, OSError):
        return True
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == CLASS_NAME), None)
    if model is None or model.bases or model.decorator_list:
        return True
    return any(getattr(node, "name", "") == "auto_complete_config" for node in model.body) or any(
        isinstance(node, (ast.Assign, ast.If, ast.Try)) and any(map(_names_completion, ast.walk(node)))
        for node in model.body
    )


def imported_packages(path: Path) -> dict[str, int]:
    """The packages that the code cannot do without as soon as it is loaded, with the lines; none where it looks for
    them in places of its own."""
    try:
        tree = _parsed(path)
    except (SyntaxError, ValueError, OSError):
        return {}
    found: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif _mentions_the_search(node):
            break
        else:
            continue
        for name in names:
            found.setdefault(name.partition(".")[0], node.lineno)
    return found


def _mentions_the_search(node: ast.stmt) -> bool:
    """Whether the statement may change what is found behind it: it has to do with `sys.path` or `sys.modules`."""
    return not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and any(
        isinstance(part, ast.Attribute) and part.attr in ("path", "modules", "meta_path") for part in ast.walk(node)
    )


def _names_completion(node: ast.AST) -> bool:
    """By itself, without what is inside it: code may be nested more deeply than functions may call each other."""
    return any(isinstance(value, str) and "auto_complete_config" in value for _, value in ast.iter_fields(node))


def _parsed(path: Path) -> ast.Module:
    """Raises SyntaxError, ValueError or OSError."""
    code = read_regular(path, _MOST_BYTES)
    try:
        return ast.parse(code, str(path))
    except (MemoryError, RecursionError):
        raise SyntaxError("its expressions are nested more deeply than Python reads") from None


def _meant(classes: dict[str, ast.ClassDef]) -> str:
    return suggestion(CLASS_NAME, classes).replace("valid are", "its classes are") if classes else ""


def _brings_the_name(node: ast.stmt) -> bool:
    """Whether the statement imports or assigns the class, or may: `from x import *`, an `if`, a `try`."""
    if isinstance(node, ast.ImportFrom):
        return any((alias.asname or alias.name) in (CLASS_NAME, "*") for alias in node.names)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == CLASS_NAME for target in node.targets)
    return isinstance(node, (ast.If, ast.Try, ast.With))


def _method_problems(path: Path, model: ast.ClassDef) -> list[str]:
    methods = {node.name: node for node in model.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assigned = {
        target.id
        for node in model.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    problems = []
    if "execute" not in methods and "execute" not in assigned and not model.bases:
        near = suggestion("execute", [name for name in methods if not name.startswith("__") and name not in _METHODS])
        meant = near if "did you mean" in near else ""
        problems.append(f"{path}:{model.lineno}: class {CLASS_NAME} has no method execute{meant}")
    problems += [_argument_problem(path, node) for name, node in methods.items() if name in ("execute", "initialize")]
    return [problem for problem in problems if problem]


def _argument_problem(path: Path, method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Both are called with one argument behind `self`."""
    given = method.args
    if method.decorator_list or given.vararg is not None:
        return ""
    positional = [*given.posonlyargs, *given.args]
    required = len(positional) - len(given.defaults)
    if required <= 2 <= len(positional):
        return ""
    shown = "requests" if method.name == "execute" else "args"
    return f"{path}:{method.lineno}: {method.name} is called with one argument: def {method.name}(self, {shown})"
