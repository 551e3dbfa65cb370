"""Graphs: the first call with inputs of some shapes is recorded, all others play the record with their own numbers.

Whatever a step takes from the host rather than from its inputs stays what it was when it was recorded, as on a Gaudi.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from habana_frameworks.torch import events


def wrap_in_hpu_graph(module: Any, disable_tensor_cache: bool = False) -> Any:
    forward = module.forward
    graphs: dict[tuple[Any, ...], Graph] = {}

    def play(*inputs: Any) -> Any:
        key = (type(module).__name__, *(tuple(tensor.shape) for tensor in inputs))
        is_new = key not in graphs
        events.append(("record" if is_new else "play", key))
        if is_new:
            graphs[key] = Graph(forward, inputs)
        return graphs[key].play(inputs)

    module.forward = play
    return module


class Graph(TorchDispatchMode):
    """The operations of one call, in their order. Tensors that no operation made are the module's own, whatever they
    hold by then; a number that depends on the inputs cannot be read while they are recorded."""

    def __init__(self, function: Any, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._inputs = [tensor.clone() for tensor in inputs]  # a step may write into them
        self._calls: list[tuple[Any, Any, Any, Any]] = []
        self._dependent = {id(tensor) for tensor in self._inputs}
        with self:
            self._outputs = function(*self._inputs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_dependent = any(id(leaf) in self._dependent for leaf in tree_leaves((args, kwargs)))
        if func is torch.ops.aten._local_scalar_dense.default and is_dependent:
            raise RuntimeError("a number that depends on the inputs is read while a graph is recorded")
        made = func(*args, **kwargs)
        self._calls.append((func, args, kwargs, made))
        if is_dependent:
            self._dependent |= {id(leaf) for leaf in tree_leaves(made)}
        return made

    def play(self, inputs: Sequence[torch.Tensor]) -> Any:
        """The outputs for other inputs of the same shapes."""
        today = {id(recorded): tensor for recorded, tensor in zip(self._inputs, inputs, strict=True)}

        def now(leaf: Any) -> Any:
            return today.get(id(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf

        for func, args, kwargs, made in self._calls:
            fresh = func(*tree_map(now, args), **tree_map(now, kwargs))
            today |= dict(zip(map(id, tree_leaves(made)), tree_leaves(fresh), strict=True))
        return tree_map(now, self._outputs)
