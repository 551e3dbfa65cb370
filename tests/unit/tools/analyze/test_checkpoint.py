"""What a checkpoint keeps, and what it says of a file that it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.tools.analyze.checkpoint import Checkpoint, Findings, fingerprint
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.trial import BatchTime, Load, Measured, Result, Setting, Trial

TRIAL = Trial((("m", Setting(2, 8)),), (Load("m", 4),))
MEASURED = Measured(
    "m",
    {"perf_throughput": 5.0},
    {"gpu": {"gpu_used_memory": 1.0}},
    (BatchTime(4, 2, 9),),
    (("s", (BatchTime(2, 1, 3),)),),
    (1.0, 2.0),
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    bases = {"m": {"server": "one"}}
    findings = Findings(configs={"m": {"name": "m"}}, bases=bases, results=[Result(TRIAL, (MEASURED,), 1.5, True)])
    assert findings.variant_name("m", Setting(2, 8)) == "m_config_0"
    findings.predictions = [(TRIAL, {"perf_throughput": 4.0})]
    Checkpoint(str(tmp_path)).write(findings)
    assert Checkpoint(str(tmp_path)).read() == findings


def test_a_run_writes_one_file_and_the_next_run_the_next(tmp_path: Path) -> None:
    first = Checkpoint(str(tmp_path))
    first.write(Findings())
    first.write(Findings())
    Checkpoint(str(tmp_path)).write(Findings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.ckpt", "1.ckpt"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 99}', '{"format": 1, "configs": {}}'])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "3.ckpt").write_text(content)
    with pytest.raises(InputError, match=r"3\.ckpt"):
        Checkpoint(str(tmp_path)).read()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        Checkpoint(str(tmp_path / "file")).write(Findings())


def test_numbers_are_given_in_the_order_of_asking() -> None:
    findings = Findings()
    assert findings.variant_name("m", Setting(3)) == "m_config_0"
    assert findings.variant_name("m", Setting(1)) == "m_config_1"
    assert findings.variant_name("m", Setting(3)) == "m_config_0"
    assert findings.variant_name("m", Setting()) == "m_config_default"
    assert findings.variant_name("other", Setting(1)) == "other_config_0"


def test_a_longer_measurement_takes_the_place_of_a_probe() -> None:
    findings = Findings()
    findings.add(Result(TRIAL, (MEASURED,), is_probe=True))
    assert findings.find(TRIAL, is_probe=True) is not None
    assert findings.find(TRIAL, is_probe=False) is None
    findings.add(Result(TRIAL, (MEASURED,)))
    assert len(findings.results) == 1
    assert findings.find(TRIAL, is_probe=False) is not None


def test_a_model_can_be_forgotten() -> None:
    findings = Findings(
        configs={"m": {}}, bases={"m": {}}, results=[Result(TRIAL, (MEASURED,))], names={"m": [Setting(1)]}
    )
    findings.forget("m")
    assert findings == Findings()


def test_a_fingerprint_does_not_hang_on_the_order_of_names() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
