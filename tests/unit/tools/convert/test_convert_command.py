"""`trireme convert`: the files of FasterTransformer to the byte, and the way back."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import transformers
from tiny_language_models import TinyModel, build

from trireme.cli.main import main
from trireme.llm.models.checkpoint import Checkpoint
from trireme.llm.models.fastertransformer.layout import TensorFile

HEADS, HEAD_SIZE, HIDDEN, MLP, LAYERS = 4, 8, 32, 48, 3


@pytest.fixture(scope="module")
def neox(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return build("pythia", tmp_path_factory.mktemp("neox"))


def to_fastertransformer(model: Path, target: Path, ranks: int, *more: str) -> int:
    return main(["convert", "hf-to-ft", "-i", str(model), "-o", str(target), "-i_g", str(ranks), "-m_n", "it", *more])


def expected_files(model: TinyModel, ranks: int, kind: type[np.generic]) -> dict[str, bytes]:
    """What the format says, written down a second time with loops over heads and ranks."""
    values = {name: tensor.detach().numpy().astype(kind) for name, tensor in model.model.named_parameters()}
    head = values.get("embed_out.weight", values.get("lm_head.weight"))
    assert head is not None
    files = {
        "model.wte.bin": values["gpt_neox.embed_in.weight"],
        "model.lm_head.weight.bin": head,
        "model.final_layernorm.weight.bin": values["gpt_neox.final_layer_norm.weight"],
        "model.final_layernorm.bias.bin": values["gpt_neox.final_layer_norm.bias"],
    }
    for layer in range(LAYERS):
        mine = {name: values[f"gpt_neox.layers.{layer}.{name}"] for name in LAYER_NAMES}
        target = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            for part in ("weight", "bias"):
                files[f"{target}.{norm}.{part}.bin"] = mine[f"{norm}.{part}"]
        shares = [mine[f"{name}.bias"] / kind(ranks) for name in ("attention.dense", "mlp.dense_4h_to_h")]  # type: ignore[call-arg]
        files[f"{target}.attention.dense.bias.bin"], files[f"{target}.mlp.dense_4h_to_h.bias.bin"] = shares
        files[f"{target}.mlp.attention.bias.sum.bin"] = shares[0] + shares[1]
        for rank in range(ranks):
            files |= {f"{target}.{name}.{rank}.bin": value for name, value in of_rank(mine, rank, ranks).items()}
    return {name: np.ascontiguousarray(value).tobytes() for name, value in files.items()}


LAYER_NAMES = [
    f"{module}.{part}"
    for module in (
        "input_layernorm",
        "attention.query_key_value",
        "attention.dense",
        "post_attention_layernorm",
        "mlp.dense_h_to_4h",
        "mlp.dense_4h_to_h",
    )
    for part in ("weight", "bias")
]


def of_rank(layer: dict[str, np.ndarray], rank: int, ranks: int) -> dict[str, np.ndarray]:
    heads = range(rank * HEADS // ranks, (rank + 1) * HEADS // ranks)
    rows = [
        row
        for kind in range(3)
        for head in heads
        for row in range((head * 3 + kind) * HEAD_SIZE, (head * 3 + kind + 1) * HEAD_SIZE)
    ]
    mlp = slice(rank * MLP // ranks, (rank + 1) * MLP // ranks)
    inputs = slice(rank * HIDDEN // ranks, (rank + 1) * HIDDEN // ranks)
    return {
        "attention.query_key_value.weight": layer["attention.query_key_value.weight"][rows].T,
        "attention.query_key_value.bias": layer["attention.query_key_value.bias"][rows],
        "attention.dense.weight": layer["attention.dense.weight"].T[inputs],
        "mlp.dense_h_to_4h.weight": layer["mlp.dense_h_to_4h.weight"].T[:, mlp],
        "mlp.dense_h_to_4h.bias": layer["mlp.dense_h_to_4h.bias"][mlp],
        "mlp.dense_4h_to_h.weight": layer["mlp.dense_4h_to_h.weight"].T[mlp],
    }


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(("data_type", "kind"), [("fp32", np.float32), ("fp16", np.float16)])
def test_every_file_has_the_bytes_of_the_format(
    neox: TinyModel, tmp_path: Path, ranks: int, data_type: str, kind: type[np.generic]
) -> None:
    assert to_fastertransformer(neox.folder, tmp_path, ranks, "-weight_data_type", data_type) == 0
    written = {path.name: path.read_bytes() for path in (tmp_path / f"{ranks}-gpu").glob("model.*.bin")}
    expected = expected_files(neox, ranks, kind)
    assert written.keys() == expected.keys()
    assert [name for name in expected if written[name] != expected[name]] == []


CONFIG = """[gptneox]
model_name = it
head_num = 4
size_per_head = 8
inter_size = 48
num_layer = 3
rotary_embedding = 4
vocab_size = 128
start_id = 1
end_id = 2
use_gptj_residual = 1
weight_data_type = fp16

"""


def test_config_ini_to_the_byte(neox: TinyModel, tmp_path: Path) -> None:
    assert to_fastertransformer(neox.folder, tmp_path, 1, "-weight_data_type", "fp16") == 0
    assert (tmp_path / "1-gpu" / "config.ini").read_text() == CONFIG


def test_the_full_config_is_kept_only_where_config_ini_cannot_say_all(neox: TinyModel, tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.mkdir()
    config = json.loads((neox.folder / "config.json").read_text())
    (usual / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2048}))
    (usual / "model.safetensors").symlink_to(neox.folder / "model.safetensors")
    for model, has_full in ((usual, False), (neox.folder, True)):
        assert to_fastertransformer(model, tmp_path / model.name, 1) == 0
        assert (tmp_path / model.name / "1-gpu" / "hf_config.json").exists() is has_full


@pytest.mark.parametrize("name", ["pythia", "gpt-neox in sequence"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_there_and_back_gives_the_same_tensors(tmp_path: Path, name: str, ranks: int) -> None:
    model = build(name, tmp_path / "model")
    assert to_fastertransformer(model.folder, tmp_path / "ft", ranks) == 0
    assert main(["convert", "ft-to-hf", "-i", str(tmp_path / "ft" / f"{ranks}-gpu"), "-o", str(tmp_path / "back")]) == 0
    before, after = Checkpoint(model.folder), Checkpoint(tmp_path / "back")
    names = {name: name.replace("lm_head", "embed_out") for name in before.names}
    assert set(names.values()) == after.names
    for old, new in names.items():
        assert np.array_equal(before.read(old).array, after.read(new).array), old
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back").eval()
    prompt = [5, 9, 17, 40]
    assert TinyModel(tmp_path, again).continuation(prompt, 8) == model.continuation(prompt, 8)


@pytest.mark.parametrize(("data_type", "torch_name"), [("fp32", "float32"), ("fp16", "float16")])
def test_there_and_back_and_there_again_gives_the_same_files(
    neox: TinyModel, tmp_path: Path, data_type: str, torch_name: str
) -> None:
    """With the file that says what config.ini cannot, and the type of the weights said once."""
    wanted = ("-weight_data_type", data_type)
    assert to_fastertransformer(neox.folder, tmp_path / "ft", 2, *wanted) == 0
    first = tmp_path / "ft" / "2-gpu"
    assert main(["convert", "ft-to-hf", "-i", str(first), "-o", str(tmp_path / "back")]) == 0
    described = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (described["torch_dtype"], "dtype" in described) == (torch_name, False)
    assert to_fastertransformer(tmp_path / "back", tmp_path / "again", 2, *wanted) == 0
    again = tmp_path / "again" / "2-gpu"
    names = sorted(path.name for path in first.iterdir())
    assert sorted(path.name for path in again.iterdir()) == names
    assert {"config.ini", "hf_config.json"} <= set(names)
    assert [name for name in names if (first / name).read_bytes() != (again / name).read_bytes()] == []


def test_the_banner_shows_the_arguments(neox: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to_fastertransformer(neox.folder, tmp_path, 1)
    assert capsys.readouterr().out.splitlines()[:8] == [
        "",
        "=============== Argument ===============",
        f"saved_dir: {tmp_path}",
        f"in_file: {neox.folder}",
        "infer_gpu_num: 1",
        "processes: 4",
        "weight_data_type: fp32",
        "model_name: it",
    ]


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["convert", *arguments]) == 1
    return capsys.readouterr().err


def test_an_existing_checkpoint_is_not_overwritten(
    neox: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert to_fastertransformer(neox.folder, tmp_path, 1) == 0
    assert to_fastertransformer(neox.folder, tmp_path, 1) == 1
    assert f"{tmp_path / '1-gpu'} is there already; remove it first" in capsys.readouterr().err


def test_what_cannot_be_converted_is_told_and_leaves_nothing(
    neox: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert to_fastertransformer(neox.folder, tmp_path / "out", 3) == 1
    assert "4 heads cannot be parted among 3 ranks" in capsys.readouterr().err
    llama = build("llama", tmp_path / "llama")
    assert to_fastertransformer(llama.folder, tmp_path / "out", 1) == 1
    assert "LlamaForCausalLM" in capsys.readouterr().err
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_bytes((neox.folder / "config.json").read_bytes())
    (damaged / "model.safetensors").write_bytes((neox.folder / "model.safetensors").read_bytes()[:-64])
    assert to_fastertransformer(damaged, tmp_path / "out", 1) == 1
    assert "it was not written or copied to its end" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert "no config.ini" in refused(["ft-to-hf", "-i", str(neox.folder), "-o", str(tmp_path / "hf")], capsys)


def test_a_conversion_that_is_told_to_end_leaves_nothing(
    neox: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the files that were still to be written."""
    begun: list[str] = []

    def write(_: object, tensor: TensorFile) -> None:
        begun.append(tensor.name)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)

    monkeypatch.setattr("trireme.tools.convert.to_fastertransformer._Writer.write", write)
    with pytest.raises(SystemExit) as ended:
        to_fastertransformer(neox.folder, tmp_path / "out", 1, "-processes", "1")
    assert ended.value.code == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    assert len(begun) < 10
