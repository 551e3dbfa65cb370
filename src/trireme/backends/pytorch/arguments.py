"""Which argument of forward an input of the configuration is, and which of its results an output is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.pytorch.program import Program

_INDEXED = re.compile(r".*__(\d+)")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Names of the configuration's inputs, as forward is called with them."""

    positional: tuple[str, ...]
    named: Mapping[str, str]
    """By the name of the argument."""
    in_dictionary: tuple[str, ...] = ()
    """Those of the one dictionary that forward takes."""


@dataclass(frozen=True, slots=True)
class Results:
    """Names of the configuration's outputs."""

    places: Mapping[str, int]
    """The place of each in a tuple or list that forward returns."""

    def pick(self, returned: Any, wanted: Sequence[str]) -> dict[str, Any]:
        """The wanted ones of what forward returned: a dictionary by name, a tuple by place, or the only one."""
        if isinstance(returned, Mapping):
            missing = [name for name in wanted if name not in returned]
            if missing:
                raise KeyError(f"the model returned no '{missing[0]}', only {', '.join(map(repr, returned))}")
            return {name: returned[name] for name in wanted}
        is_several = isinstance(returned, tuple) or (
            isinstance(returned, list) and not all(isinstance(element, str) for element in returned)
        )
        values = returned if is_several else (returned,)
        for name in wanted:
            if self.places[name] >= len(values):
                raise IndexError(f"output '{name}' is number {self.places[name]}, the model returned {len(values)}")
        return {name: values[self.places[name]] for name in wanted}


def input_order(config: Mapping[str, Any], program: Program) -> Arguments:
    """By the names of forward's arguments where all fit, else by the index in `<name>__<index>`, else in the order of
    the configuration; sequence controls and states count as inputs, in this order behind the others."""
    batching = config.get("sequence_batching", {})
    names = [entry["name"] for entry in config["input"]]
    names += [control["name"] for control in batching.get("control_input", ())]
    names += [state["input_name"] for state in batching.get("state", ())]
    if program.takes_dictionary:
        return Arguments((), {}, tuple(names))
    known = [name for name in program.argument_names if name in names]
    if len(known) == len(names):
        by_name = program.keyword_names
        return Arguments(
            tuple(name for name in known if name not in by_name), {name: name for name in known if name in by_name}
        )
    return Arguments(_indexed(names, config["name"], "input"), {})


def output_order(config: Mapping[str, Any]) -> Results:
    """By the index in `<name>__<index>`, else in the order of the configuration."""
    names = [entry["name"] for entry in config["output"]]
    names += [state["output_name"] for state in config.get("sequence_batching", {}).get("state", ())]
    matches = [_INDEXED.fullmatch(name) for name in names]
    if all(matches):
        return Results({match.string: int(match.group(1)) for match in matches if match is not None})
    return Results({name: place for place, name in enumerate(names)})


def _indexed(names: Sequence[str], model: str, kind: str) -> tuple[str, ...]:
    matches = [_INDEXED.fullmatch(name) for name in names]
    if not all(matches):
        return tuple(names)
    by_place = {int(match.group(1)): match.string for match in matches if match is not None}
    if sorted(by_place) != list(range(len(names))):
        raise ModelLoadError(
            f"the {kind}s of model '{model}' must be numbered from 0 without gaps, found {', '.join(sorted(names))}"
        )
    return tuple(by_place[place] for place in range(len(names)))
