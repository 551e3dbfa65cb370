"""`habana_frameworks.torch.hpu.graphs`: graphs as plain calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["HPUGraph", "ModuleCacher", "graph", "make_graphed_callables", "wrap_in_hpu_graph", "wrap_in_hpu_graph_func"]


def wrap_in_hpu_graph(module: Any, *_args: Any, **_options: Any) -> Any:
    """The module as it is."""
    return module


def wrap_in_hpu_graph_func(function: Callable[..., Any], *_args: Any, **_options: Any) -> Callable[..., Any]:
    """The function as it is."""
    return function


def make_graphed_callables(callables: Any, *_args: Any, **_options: Any) -> Any:
    """The callables as they are."""
    return callables


class ModuleCacher:
    """Called with a model, gives it back."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        pass

    def __call__(self, model: Any, *_args: Any, **_options: Any) -> Any:
        return model


class HPUGraph:
    """A graph that the model records by hand: what is recorded here cannot be played again."""

    def capture_begin(self, *_args: Any, **_options: Any) -> None:
        """The calls that follow are plain calls."""

    def capture_end(self) -> None:
        """The last of them has been made."""

    def replay(self) -> None:
        """Raises, because answering with what was recorded would be wrong."""
        raise RuntimeError(
            "a recorded HPU graph can be played on a Gaudi only; wrap the model with "
            "habana_frameworks.torch.hpu.wrap_in_hpu_graph to run it anywhere"
        )


class graph:
    """The context in which a graph is recorded."""

    def __init__(self, hpu_graph: HPUGraph, *_args: Any, **_options: Any) -> None:
        self._graph = hpu_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *_error: object) -> None:
        self._graph.capture_end()
