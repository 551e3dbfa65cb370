"""Writes a small image classifier with random weights, for trying things without a compiler and without a download.

    python make_model.py --model_type pytorch --output rn50

It takes images of 224 x 224 x 3 as `input` and answers with 1000 numbers each as `output`, as a ResNet-50 does. The
weights are the same whatever the framework, so that its results can be compared.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np


def weights() -> dict[str, Any]:
    """Kernels as PyTorch lays them out: output channels, input channels, height, width."""
    numbers = np.random.default_rng(7)

    def some(*shape: int) -> Any:
        return (numbers.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    return {"stem": some(8, 3, 7, 7), "body": some(16, 8, 3, 3), "head": some(1000, 16)}


def save_pytorch(path: str) -> None:
    import torch

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, array in weights().items():
                self.register_buffer(name, torch.from_numpy(array))

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            images = input.permute(0, 3, 1, 2)
            features = torch.relu(torch.nn.functional.conv2d(images, self.stem, stride=4))
            features = torch.relu(torch.nn.functional.conv2d(features, self.body, stride=2))
            return torch.nn.functional.linear(features.mean(dim=(2, 3)), self.head)

    with torch.no_grad():
        torch.jit.trace(Classifier().eval(), torch.rand(2, 224, 224, 3)).save(path)


def save_onnx(path: str) -> None:
    import onnx
    from onnx import helper

    arrays = weights()
    kind = onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Transpose", ["input"], ["images"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["images", "stem"], ["a"], strides=[4, 4]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "body"], ["c"], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "head"], ["output"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("input", kind, ["batch", 224, 224, 3])],
        [helper.make_tensor_value_info("output", kind, ["batch", 1000])],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def save_tensorflow(path: str) -> None:
    import tensorflow as tf

    arrays = weights()
    stem, body = (tf.constant(arrays[name].transpose(2, 3, 1, 0)) for name in ("stem", "body"))
    head = tf.constant(arrays["head"].T)

    @tf.function(input_signature=[tf.TensorSpec([None, 224, 224, 3], tf.float32, name="input")])
    def classify(input: Any) -> dict[str, Any]:
        features = tf.nn.relu(tf.nn.conv2d(input, stem, 4, "VALID"))
        features = tf.nn.relu(tf.nn.conv2d(features, body, 2, "VALID"))
        return {"output": tf.matmul(tf.reduce_mean(features, [1, 2]), head)}

    module = tf.Module()
    module.classify = classify
    tf.saved_model.save(module, path, signatures={"serving_default": classify})


SAVERS = {"pytorch": save_pytorch, "onnx": save_onnx, "tensorflow": save_tensorflow}


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes a small image classifier with random weights.")
    parser.add_argument("--model_type", choices=SAVERS, default="pytorch")
    parser.add_argument("--output", default="rn50", help="the file, or for tensorflow the folder, to write")
    given = parser.parse_args()
    try:
        SAVERS[given.model_type](given.output)
    except ImportError as error:
        print(f"make_model.py: a model of type {given.model_type} needs a package: {error}", file=sys.stderr)
        return 1
    print(f"{given.output}: a {given.model_type} model, input FP32 -1x224x224x3, output FP32 -1x1000")
    return 0


if __name__ == "__main__":
    sys.exit(main())
