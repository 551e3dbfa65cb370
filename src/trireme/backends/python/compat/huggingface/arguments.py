"""`use_auth_token`, an argument that releases have lost: it is passed by its present name, `token`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from trireme.backends.python.compat import switches
from trireme.backends.python.compat.report import tell_rescue

OLD, NEW = "use_auth_token", "token"


def accept_old_token(class_name: str) -> Callable[[ModuleType], None]:
    """Changes `from_pretrained` of this class, where its release does not know the argument."""

    def patch(module: ModuleType) -> None:
        cls = getattr(module, class_name)
        load = cls.__dict__["from_pretrained"].__func__
        if knows(load, OLD):
            return

        @functools.wraps(load)
        def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
            pass_by_new_name(kwargs)
            return load(cls, *args, **kwargs)

        cls.from_pretrained = classmethod(from_pretrained)

    return patch


def accept_old_token_in_pipeline(module: ModuleType) -> None:
    """Changes `transformers.pipeline`, where its release does not know the argument."""
    make = module.pipeline
    if knows(make, OLD):
        return

    @functools.wraps(make)
    def pipeline(*args: Any, **kwargs: Any) -> Any:
        pass_by_new_name(kwargs)
        return make(*args, **kwargs)

    module.pipeline = pipeline  # type: ignore[attr-defined]


def pass_by_new_name(kwargs: dict[str, Any]) -> None:
    """A token that is passed by both names has the present one."""
    if OLD not in kwargs or not switches.may_rescue():
        return
    old = kwargs.pop(OLD)
    if old is not None and kwargs.get(NEW) is None:
        kwargs[NEW] = old
    tell_rescue(OLD, f"{OLD} is not read by this release of transformers: passed as {NEW}")


def knows(function: Any, name: str) -> bool:
    """Whether the code of a function has something to do with an argument of that name."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return True  # nothing can be seen, so nothing is done
    texts = [text for entry in code.co_consts for text in (entry if isinstance(entry, tuple) else (entry,))]
    return name in code.co_varnames or name in texts
