"""Graphs: the first call with inputs of some shapes is traced, all others play the trace with their own numbers.

Whatever a step takes from the host rather than from its inputs stays what it was when it was recorded, as on a Gaudi.
"""

from typing import Any

from torch.fx.experimental.proxy_tensor import make_fx

from habana_frameworks.torch import events


def wrap_in_hpu_graph(module: Any, disable_tensor_cache: bool = False) -> Any:
    forward = module.forward
    graphs: dict[tuple[Any, ...], Any] = {}

    def play(*inputs: Any) -> Any:
        key = (type(module).__name__, *(tuple(tensor.shape) for tensor in inputs))
        is_new = key not in graphs
        events.append(("record" if is_new else "play", key))
        if is_new:
            graphs[key] = make_fx(lambda first, second, third: forward(first, second, third))(*inputs)
        return graphs[key](*inputs)

    module.forward = play
    return module
