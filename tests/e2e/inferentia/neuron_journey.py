"""The steps of the Inferentia journey: make a classifier, write its model folder, ask it with the example's client."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as httpclient
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/inferentia"
MODEL = "rn50-16neuroncores-default"
INPUT, OUTPUT = "input,FP32,-1x224x224x3", "output,FP32,-1x1000"


def make_classifier(folder: Path, model_type: str) -> Path:
    path = folder / "rn50"
    if not path.exists():
        run(folder, [sys.executable, str(EXAMPLE / "make_model.py"), "--model_type", model_type, "--output", "rn50"])
    return path


def generate(
    folder: Path,
    model_type: str,
    *flags: str,
    name: str = MODEL,
    tensors: tuple[str, str] = (INPUT, OUTPUT),
    command: tuple[str, ...] = (str(Path(sys.executable).with_name("trireme")), "neuron-model"),
) -> str:
    """Writes `model_repository/<name>` for the `rn50` of the folder; what the generator printed."""
    words = [*command, "--model_type", model_type, "--triton_input", tensors[0], "--triton_output", tensors[1]]
    words += ["--compiled_model", "rn50", "--neuron_core_range", "0:15"]
    return run(folder, [*words, "--triton_model_dir", f"model_repository/{name}", *flags])


def ask_client(folder: Path, port: int, *flags: str, name: str = MODEL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "triton-http-client.py"), "--url", f"127.0.0.1:{port}"]
    return subprocess.run(
        [*command, "--model_name", name, *flags], cwd=folder, capture_output=True, text=True, timeout=60
    )


def infer(
    port: int, images: NDArray[np.float32], *, model: str = MODEL, names: tuple[str, str] = ("input", "output")
) -> Any:
    tensor = httpclient.InferInput(names[0], list(images.shape), "FP32")
    tensor.set_data_from_numpy(images)
    with httpclient.InferenceServerClient(f"127.0.0.1:{port}") as client:
        return client.infer(model, [tensor], outputs=[httpclient.InferRequestedOutput(names[1])]).as_numpy(names[1])


def unsplit(path: Path, model_type: str, images: NDArray[np.float32]) -> Any:
    """What the framework itself answers for the whole batch."""
    if model_type == "onnx":
        import onnxruntime

        return onnxruntime.InferenceSession(str(path)).run(["output"], {"input": images})[0]
    if model_type == "tensorflow":
        import tensorflow as tf

        return tf.saved_model.load(str(path)).signatures["serving_default"](input=tf.constant(images))["output"].numpy()
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and what the Neuron compiler writes
        script = torch.jit.load(str(path))
    return script(torch.from_numpy(images)).numpy()


def random_images(count: int) -> NDArray[np.float32]:
    return np.random.default_rng(count).random((count, 224, 224, 3), dtype=np.float32)


def run(folder: Path, command: list[str]) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
