"""The words of `--compat` and of the parameter `compat`: what a worker does to a model only when it is asked to."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.core.close_names import NEAR, closest
from trireme.core.errors import InvalidArgumentError

PARAMETER = "compat"
OFF = "off"
GAUDI, NEURON, TOKEN = "gaudi", "neuron", "token"

MEANINGS: Mapping[str, str] = {
    OFF: "what would fail is left to fail: no rescues",
    "cache": "the folder in TRANSFORMERS_CACHE is the cache of the Hugging Face hub",
    "device_map": "without the package accelerate, a device_map puts the whole model on one device",
    "float16": "the CPU computes models of float16 in a type that it is faster with",
    "float16-as-bfloat16": "the same, always in bfloat16",
    "float16-as-float32": "the same, always in float32",
    GAUDI: "a model that imports Gaudi's software runs on the CPU where that is missing",
    "lengths": "max_length of a text-generation pipeline neither cuts prompts nor gives way to a default",
    "logging": "standard logging reaches the server's log from INFO on",
    NEURON: "a model for NeuronCores runs on the CPU where they are missing",
    "numpy1": "numpy has again the names that release 2 removed, such as np.NINF and np.float_",
    TOKEN: "PRIVATE_REPO_TOKEN is the token of the Hugging Face hub",
}
"""By word: what it does."""


def parse_words(text: str) -> tuple[str, ...]:
    """The words of a list with commas, each once; raises ValueError for one that nobody knows."""
    words = dict.fromkeys(word for part in text.split(",") if (word := part.strip().lower()))
    unknown = [word for word in words if word not in MEANINGS]
    if unknown:
        near = closest(unknown[0], MEANINGS, NEAR)
        meant = "" if near is None else f"; did you mean '{near}'?"
        raise ValueError(f"'{unknown[0]}' is no word of compat, which are {', '.join(MEANINGS)}{meant}")
    return tuple(words)


def words_of_model(name: str, parameters: Mapping[str, str]) -> tuple[str, ...] | None:
    """What the parameter of a model says, which comes before `--compat`; None where it says nothing to us: a model.py
    may use the name for something of its own. Raises InvalidArgumentError for a list with words of both kinds, or one
    that misspells ours."""
    text = parameters.get(PARAMETER)
    if text is None:
        return None
    try:
        return parse_words(text)
    except ValueError as error:
        if any(closest(part.strip().lower(), MEANINGS, NEAR) for part in text.split(",")):
            raise InvalidArgumentError(f"parameter '{PARAMETER}' of model '{name}': {error}") from None
        return None
