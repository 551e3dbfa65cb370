"""Reports from a checkpoint, without measuring anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.tools.analyze.checkpoint import Checkpoint, Findings
from trireme.tools.analyze.command_line.models import read_goals
from trireme.tools.analyze.command_line.reading import read_output_options
from trireme.tools.analyze.command_line.values import Values
from trireme.tools.analyze.errors import UNMET, InputError
from trireme.tools.analyze.options import ModelOptions, OutputOptions
from trireme.tools.analyze.ranking import Ranking
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.report.write import check_formats, report, write_details


def summarize_again(given: Mapping[str, Any], verbosity: int) -> int:
    """Tables, files and pages of all models, or of those that are named; the exit code."""
    values, output, subjects = _read(given, verbosity)
    wanted = values.words("analysis_models") or values.words("profile_models")
    for name in wanted:
        if all(name not in subject.loaded for subject in subjects):
            raise InputError(f"the checkpoint has nothing of a model '{name}'{_there(subjects)}")
    chosen = [subject for subject in subjects if not wanted or set(wanted) & set(subject.loaded)]
    report(chosen, output, values.text("model_repository"))
    return 0 if all(subject.is_met for subject in chosen) else UNMET


def report_again(given: Mapping[str, Any], verbosity: int) -> int:
    """The pages of single variants; the exit code."""
    values, output, subjects = _read(given, verbosity)
    wanted = values.raw("report_model_configs")
    names = list(wanted) if isinstance(wanted, Mapping) else values.words("report_model_configs")
    if not names:
        raise InputError("which configurations? Name them with --report-model-configs")
    found = {subject.name_of(one.settings): (subject, one) for subject in subjects for one in subject.ranked}
    for name in names:
        if name not in found:
            raise InputError(f"the checkpoint has no configuration '{name}'; there are {', '.join(sorted(found))}")
    for name in names:
        subject, one = found[name]
        for path in write_details(subject, one, output):
            if path.suffix != ".svg":
                print(f"Wrote {path}")
    return 0


def _read(given: Mapping[str, Any], verbosity: int) -> tuple[Values, OutputOptions, list[Subject]]:
    values = Values(given)
    output = read_output_options(values, verbosity)
    check_formats(output)
    checkpoint = Checkpoint(output.checkpoint_folder)
    findings = checkpoint.read()
    if not findings.results:
        raise InputError(f"there is no checkpoint with results in '{output.checkpoint_folder}': run profile first")
    return values, output, _subjects(findings, values, output)


def _subjects(findings: Findings, values: Values, output: OutputOptions) -> list[Subject]:
    kinds = dict.fromkeys(
        (
            tuple(load.model for load in result.trial.loads),
            tuple(model for model, _ in result.trial.settings),
        )
        for result in findings.results
    )
    goals = read_goals(values)
    return [
        Subject(
            loaded,
            tuned,
            findings,
            Ranking([ModelOptions(name, goals) for name in loaded]),
            output.configs_per_model,
            predictions=[one for one in findings.predictions if (one[0].loads[0].model,) == loaded],
        )
        for loaded, tuned in kinds
    ]


def _there(subjects: list[Subject]) -> str:
    return f"; there are {', '.join(subject.title for subject in subjects)}"
