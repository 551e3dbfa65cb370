"""What was measured, kept in a file from one measurement to the next, so that an analysis can go on where it ended."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trireme.core.reading.json_levels import read_json
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.server.resources import Resources
from trireme.tools.analyze.trial import Result, Setting, Trial, result_from_json, result_to_json, throughput

_SUFFIX = ".ckpt"
_FORMAT = 1


@dataclass(slots=True)
class Findings:
    """All that is known of some models."""

    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The models' own configurations."""
    bases: dict[str, dict[str, str]] = field(default_factory=dict)
    """By model, what else its results rest on."""
    names: dict[str, list[Setting]] = field(default_factory=dict)
    """By model, the settings that have had a number, in the order of their numbers."""
    results: list[Result] = field(default_factory=list)
    predictions: list[tuple[Trial, dict[str, float]]] = field(default_factory=list)
    idle: Resources = field(default_factory=Resources)
    """The server without load."""

    def variant_name(self, model: str, setting: Setting) -> str:
        """`model_config_3`; numbers are given when a setting is first asked for."""
        if setting.is_default:
            return f"{model}_config_default"
        known = self.names.setdefault(model, [])
        if setting not in known:
            known.append(setting)
        return f"{model}_config_{known.index(setting)}"

    def find(self, trial: Trial, is_probe: bool) -> Result | None:
        """A result that will do; a longer measurement does for a probe."""
        return next((one for one in self.results if one.trial == trial and (is_probe or not one.is_probe)), None)

    def add(self, result: Result) -> None:
        """In place of a probe, or another measurement, of the same trial."""
        same = [one for one in self.results if one.trial == result.trial]
        self.results = [one for one in self.results if one.trial != result.trial]
        seen = tuple(value for one in same for value in (throughput(one), *one.repeats))
        self.results.append(replace(result, repeats=(*result.repeats, *seen)))

    def add_repeat(self, known: Result, result: Result) -> None:
        """Another measurement of the same trial, which was worse and does not count."""
        self.results = [one for one in self.results if one.trial != known.trial]
        self.results.append(replace(known, repeats=(*known.repeats, throughput(result))))

    def forget(self, model: str) -> None:
        """Nothing of this model counts any more."""
        self.results = [one for one in self.results if model not in _models(one.trial)]
        self.predictions = [one for one in self.predictions if model not in _models(one[0])]
        self.names.pop(model, None)
        self.configs.pop(model, None)
        self.bases.pop(model, None)


class Checkpoint:
    """A folder of numbered files, the highest number the newest; one run writes one file."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._path: Path | None = None

    @property
    def path(self) -> Path | None:
        """What this run writes; None before the first time."""
        return self._path

    def newest(self) -> Path | None:
        found = [path for path in self._folder.glob(f"*{_SUFFIX}") if path.stem.isdigit()]
        return max(found, key=lambda path: int(path.stem), default=None)

    def read(self) -> Findings:
        """Those of the newest file, or none; raises InputError for a file that is no checkpoint."""
        path = self.newest()
        if path is None:
            return Findings()
        try:
            return _findings(read_json(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"the checkpoint '{path}' cannot be read ({error or type(error).__name__}): remove it, or name another "
                "folder with --checkpoint-directory"
            ) from None

    def write(self, findings: Findings) -> None:
        """Whole or not at all; raises InputError where the folder cannot be written."""
        try:
            if self._path is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                newest = self.newest()
                number = 0 if newest is None else int(newest.stem) + 1
                self._path = self._folder / f"{number}{_SUFFIX}"
            beside = self._path.with_suffix(".part")
            beside.write_text(json.dumps(_to_json(findings)), encoding="utf-8")
            os.replace(beside, self._path)
        except OSError as error:
            raise InputError(f"the checkpoint cannot be written to '{self._folder}': {error.strerror}") from None


def fingerprint(content: Any) -> str:
    """The same for the same configuration, or whatever else JSON can say."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _models(trial: Trial) -> set[str]:
    return {model for model, _ in trial.settings} | {load.model for load in trial.loads}


def _to_json(findings: Findings) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "configs": findings.configs,
        "bases": findings.bases,
        "names": {model: [asdict(one) for one in settings] for model, settings in findings.names.items()},
        "results": [result_to_json(one) for one in findings.results],
        "predictions": [
            {**result_to_json(Result(trial, ())), "metrics": metrics} for trial, metrics in findings.predictions
        ],
        "idle": asdict(findings.idle),
    }


def _findings(content: Mapping[str, Any]) -> Findings:
    if content["format"] != _FORMAT:
        raise ValueError(f"it has the format {content['format']}")
    return Findings(
        configs=dict(content["configs"]),
        bases={model: dict(basis) for model, basis in content.get("bases", {}).items()},
        names={model: [Setting(**one) for one in settings] for model, settings in content["names"].items()},
        results=[result_from_json(one) for one in content["results"]],
        predictions=[(result_from_json(one).trial, dict(one["metrics"])) for one in content["predictions"]],
        idle=Resources(**content["idle"]),
    )
