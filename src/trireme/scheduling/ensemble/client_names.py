"""What a client calls the tensors of a step: errors of a step's model name those that the client has not sent."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from trireme.config.model_config import ModelConfig

_TOLD_BY = r"\('[^']*' of '[^']*'\)"
"""What stands behind a name that an ensemble within has told already."""
_HERE = "here it is called "
"""Stands before the ensemble's name for what the client has sent by the step's."""
_NO_NAME = rf"{_TOLD_BY}|\b(?:found|got|is|model|ensemble) '[^']*'"
"""What is quoted as a value of the client's, or as a model's name."""


def client_names(config: ModelConfig, index: int) -> dict[str, str]:
    """By a step's name for an input: the ensemble's for it, where that is another. What a step before hands on under
    the name that it had there is followed to the ensemble's input."""
    writers = {
        tensor: (writer, name)
        for writer, step in enumerate(config.ensemble_steps)
        for name, tensor in step.output_map.items()
    }
    found = {}
    for name, tensor in config.ensemble_steps[index].input_map.items():
        seen: set[str] = set()
        while tensor not in config.inputs and tensor in writers and tensor not in seen:
            seen.add(tensor)
            writer, output = writers[tensor]
            tensor = config.ensemble_steps[writer].input_map.get(output, "")
        if tensor in config.inputs and tensor != name:
            found[name] = tensor
    return found


def in_clients_names(message: str, names: Mapping[str, str], model_name: str, sent: Container[str] = ()) -> str:
    """The message with each quoted name of the step's as the client's, at its first place with the step's behind it; of
    a step that is an ensemble, its own step's is there already. A name of those that the client itself has `sent`, as
    a parameter, stays, and what the ensemble calls it is told behind it."""
    if not names:
        return message
    told: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        name, has_been_told = match["name"], match["told"] is not None
        if name is None:
            return match[0]
        if match["here"]:
            return f"{match['here']}'{names[name]}'"
        is_new = name not in told and not has_been_told
        told.add(name)
        if name in sent and not has_been_told:
            return f"'{name}' ({_HERE}'{names[name]}')" if is_new else f"'{name}'"
        return f"'{names[name]}' ('{name}' of '{model_name}')" if is_new else f"'{names[name]}'{match['told'] or ''}"

    known = "|".join(map(re.escape, names))
    pattern = f"{_NO_NAME}|(?P<here>{_HERE})?'(?P<name>{known})'(?P<told> {_TOLD_BY})?(?! \\({_HERE})"
    return re.sub(pattern, replaced, message)
