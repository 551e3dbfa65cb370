"""Which argument of forward an input of the configuration is, and which of its results an output is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.tensor_spec import check_config
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
                raise RequestError(f"the model returned no '{missing[0]}', only {', '.join(map(repr, returned))}")
            return {name: returned[name] for name in wanted}
        is_several = isinstance(returned, tuple) or (
            isinstance(returned, list) and not all(isinstance(element, str) for element in returned)
        )
        values = returned if is_several else (returned,)
        for name in wanted:
            if self.places[name] >= len(values):
                raise RequestError(_no_such_result(name, self.places[name], len(values)))
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
    is_by_name = len(known) == len(names)
    _check_inputs(config["name"], names, program, is_by_name)
    if is_by_name:
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


def check_tensors(config: Mapping[str, Any], program: Program, arguments: Arguments, results: Results) -> None:
    """Raises ModelLoadError where the file says of its tensors what the configuration does not."""
    for name, place in results.places.items():
        if program.result_count is not None and place >= program.result_count:
            what = _no_such_result(name, place, program.result_count)
            raise ModelLoadError(f"unable to load model '{config['name']}', {what}")
    if program.specs is None:
        return
    inputs, outputs = program.specs
    if not arguments.named and len(arguments.positional) == len(inputs):
        inputs = [replace(spec, name=name) for spec, name in zip(inputs, arguments.positional, strict=True)]
    names = {place: name for name, place in results.places.items()}
    outputs = [replace(spec, name=names.get(place, spec.name)) for place, spec in enumerate(outputs)]
    check_config(config, inputs, outputs)


def _check_inputs(model: str, names: Sequence[str], program: Program, is_by_name: bool) -> None:
    takes = program.argument_names
    absent = [name for name in takes if name not in names] if is_by_name else takes[len(names) :]
    missing = [name for name in absent if name not in program.optional_names]
    if missing or (len(names) > len(takes) and not program.takes_more):
        raise ModelLoadError(
            f"unable to load model '{model}', configuration expects {len(names)} inputs, model provides {len(takes)}: "
            f"forward takes ({', '.join(takes)})"
        )


def _no_such_result(name: str, place: int, count: int) -> str:
    return f"output '{name}' of the configuration is result number {place} of forward, which returns {count}, from 0 on"


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
