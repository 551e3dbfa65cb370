"""Whether the models of a command want torch or the like: only then is it forked from a process that has imported it.

What is forked from a large process takes its time: 0.8 s of processor time for a server with two small models, in place
of 0.4. A wrong guess costs time and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

_ALWAYS = {"build", "chat", "deploy"}
"""Commands that read the tensors of models, or whose models are of the hub."""
_ELSEWHERE = "--url"
"""With it the models are those of a server that runs already."""
_FILES = ("config.pbtxt", "*/config.pbtxt", "*/*/*.py", "*/config.json", "*/*/config.json")
"""The last ones are a model's own, which is served as it is."""
_SAYS_SO = re.compile(
    rb"torch|transformers|llm|gaudi|habana|neuron|optimum|hugging.?face|sklearn|xgboost|lightgbm|\"fil\"|pandas",
    re.IGNORECASE,
)
_CLASSIC_FILES = {"model.pkl", "model.joblib", "model.skops", "model.ubj", "model.txt", "MLmodel"}
"""Of scikit-learn, XGBoost and LightGBM, which need no configuration."""
_LOOKED_AT = 200


def wants_frameworks(words: Sequence[str], folder: Path) -> bool:
    """Looks into the folders and programs that are named among the words of a command that runs in `folder`."""
    if _ALWAYS & set(words[1:2]):
        return _ELSEWHERE not in words
    named = [word.partition("=")[2] if word.startswith("-") else word for word in words[1:]]
    places = [folder / name for name in named if name]  # a flag alone names no folder, least of all that of the command
    said = (_SAYS_SO.search(content) for place in places for content in islice(_contents(place), _LOOKED_AT))
    return any(said) or any(_has_classic_file(place) for place in places)


def _contents(place: Path) -> Iterator[bytes]:
    try:
        if place.is_dir():
            for pattern in _FILES:
                yield from (file.read_bytes() for file in place.glob(pattern) if file.is_file())
        elif place.suffix == ".py":
            yield place.read_bytes()
    except OSError:  # no name of a file, or gone meanwhile
        return


def _has_classic_file(place: Path) -> bool:
    try:
        files = (file for pattern in ("*/*", "*/*/*") for file in place.glob(pattern))
        return place.is_dir() and any(file.name in _CLASSIC_FILES for file in files)
    except OSError:
        return False
