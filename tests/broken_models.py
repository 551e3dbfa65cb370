"""Model folders with one mistake each, and some with none that look as if they had one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
COMPLETING = """class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [4]})
        return config

    def execute(self, requests):
        return []
"""
IN = 'input [ { name: "x", data_type: TYPE_FP32, dims: [ 4 ] } ]\n'
OUT = 'output [ { name: "y", data_type: TYPE_FP32, dims: [ 4 ] } ]\n'
PYTHON = f'backend: "python"\nmax_batch_size: 8\n{IN}{OUT}'


@dataclass(frozen=True)
class BrokenModel:
    """A folder under its name in a repository."""

    config: str | None = PYTHON
    """None: there is no config.pbtxt."""
    files: Mapping[str, str] = field(default_factory=lambda: {"1/model.py": CODE})
    is_right: bool = False
    is_loaded: bool = False
    """Whether the server loads it all the same, as Triton does, and refuses its requests."""

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        if self.config is not None:
            (folder / "config.pbtxt").write_text(self.config)
        for name, content in self.files.items():
            path = folder / name
            if name.endswith("/"):
                path.mkdir(parents=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


def _parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def _step(model: str, taken: str, given: str, version: int = -1) -> str:
    maps = " ".join(
        f'{kind} {{ key: "{key}" value: "{value}" }}'
        for kind, text in (("input_map", taken), ("output_map", given))
        for key, value in [text.split("=")]
    )
    return f'step {{ model_name: "{model}" model_version: {version} {maps} }}'


def _ensemble(*steps: str, head: str = f"max_batch_size: 8\n{IN}{OUT}") -> BrokenModel:
    return BrokenModel(f'platform: "ensemble"\n{head}ensemble_scheduling {{ {" ".join(steps)} }}\n', {"1/": ""})


_LLM = f'backend: "llm"\n{_parameter("model", "scribe")}'
_WARMUP = 'model_warmup [ { name: "w" batch_size: %s inputs { key: "x" value { %s } } } ]\n'

MODELS: Mapping[str, BrokenModel] = {
    "right": BrokenModel(is_right=True),
    "right_without_config": BrokenModel(None, {"1/model.py": COMPLETING}, is_right=True),
    "right_without_tensors": BrokenModel(None, is_right=True),
    "right_completing": BrokenModel(
        'backend: "python"\ninput [ { name: "z", data_type: TYPE_FP32, dims: [ 1 ] } ]\n',
        {"1/model.py": COMPLETING},
        is_right=True,
    ),
    "right_empty_queue": BrokenModel(PYTHON + "dynamic_batching { }\n", is_right=True),
    "right_ensemble": BrokenModel(_ensemble(_step("right", "x=x", "y=y")).config, {}, is_right=True),
    "right_identity": BrokenModel(f'backend: "identity"\n{IN}{OUT.replace("y", "x", 1)}', {"1/": ""}, is_right=True),
    "gpus_of_a_cpu": BrokenModel(PYTHON + "instance_group [ { gpus: [ 7 ] kind: KIND_CPU } ]\n"),
    "unknown_field": BrokenModel(PYTHON + "dynamic_baching { }\n"),
    "unknown_value": BrokenModel(PYTHON.replace("TYPE_FP32", "FP32")),
    "wrong_number": BrokenModel(PYTHON.replace("max_batch_size: 8", "max_batch_size: eight")),
    "open_bracket": BrokenModel(PYTHON + "instance_group [ { count: 1 }\n"),
    "two_schedulers": BrokenModel(PYTHON + "dynamic_batching { }\nsequence_batching { }\n"),
    "placeholder": BrokenModel(PYTHON.replace("8", "${max_batch}")),
    "enum_by_number": BrokenModel(PYTHON.replace("TYPE_FP32", "99")),
    "other_name": BrokenModel('name: "somebody"\n' + PYTHON),
    "negative_batch": BrokenModel(PYTHON.replace("8", "-1")),
    "large_preferred": BrokenModel(PYTHON + "dynamic_batching { preferred_batch_size: [ 16 ] }\n"),
    "wrong_priority": BrokenModel(PYTHON + "dynamic_batching { priority_levels: 2 default_priority_level: 3 }\n"),
    "cached_and_decoupled": BrokenModel(
        PYTHON + "response_cache { enable: true }\nmodel_transaction_policy { decoupled: true }\n"
    ),
    "without_data_type": BrokenModel(f'backend: "python"\ninput [ {{ name: "x", dims: [ 4 ] }} ]\n{OUT}'),
    "input_without_data_type": BrokenModel('backend: "python"\ninput [ { name: "x", dims: [ 4 ] } ]\n'),
    "without_dims": BrokenModel(f'backend: "python"\ninput [ {{ name: "x", data_type: TYPE_FP32 }} ]\n{OUT}'),
    "zero_dims": BrokenModel(PYTHON.replace("dims: [ 4 ]", "dims: [ 0 ]", 1)),
    "tensor_without_name": BrokenModel(PYTHON.replace('name: "x", ', "")),
    "wrong_reshape": BrokenModel(PYTHON.replace("dims: [ 4 ]", "dims: [ 4 ], reshape { shape: [ 3 ] }", 1)),
    "shape_tensor": BrokenModel(PYTHON.replace("dims: [ 4 ]", "dims: [ 4 ], is_shape_tensor: true", 1)),
    "wrong_control": BrokenModel(
        PYTHON + 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START } ] } ] }\n'
    ),
    "all_passive": BrokenModel(PYTHON + "instance_group [ { passive: true } ]\n"),
    "gpu_that_is_not_there": BrokenModel(PYTHON + "instance_group [ { kind: KIND_GPU } ]\n"),
    "gpu_7": BrokenModel(PYTHON + "instance_group [ { kind: KIND_GPU gpus: [ 7 ] } ]\n"),
    "gpu_7_undecided": BrokenModel(PYTHON + "instance_group [ { gpus: [ 7 ] } ]\n"),
    "device_typo": BrokenModel(PYTHON + _parameter("device", "cuda:x")),
    "device_not_there": BrokenModel(PYTHON + _parameter("device", "cuda:0")),
    "hpu_not_there": BrokenModel(PYTHON + _parameter("device", "hpu:3")),
    "wrong_timeout": BrokenModel(PYTHON + _parameter("trireme_load_timeout", "soon")),
    "wrong_concurrency": BrokenModel(PYTHON + _parameter("max_concurrency", "many")),
    "wrong_force_cpu": BrokenModel(PYTHON + _parameter("FORCE_CPU_ONLY_INPUT_TENSORS", "perhaps")),
    "wrong_compat": BrokenModel(PYTHON + _parameter("compat", "numpy1,nunpy")),
    "misspelt_compat": BrokenModel(PYTHON + _parameter("compat", "flaot16")),
    "environment_not_there": BrokenModel(
        PYTHON + _parameter("EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/env.tar.gz")
    ),
    "wrong_picture": BrokenModel(PYTHON + _parameter("image_input", "nothing")),
    "labels_not_there": BrokenModel(PYTHON.replace('name: "y"', 'name: "y", label_filename: "labels.txt"')),
    "warmup_too_large": BrokenModel(PYTHON + _WARMUP % (9, "data_type: TYPE_FP32 dims: [ 4 ] zero_data: true")),
    "warmup_wrong_type": BrokenModel(PYTHON + _WARMUP % (1, "data_type: TYPE_INT32 dims: [ 4 ] zero_data: true")),
    "warmup_without_file": BrokenModel(
        PYTHON + _WARMUP % (1, 'data_type: TYPE_FP32 dims: [ 4 ] input_data_file: "none"')
    ),
    "input_twice": BrokenModel(PYTHON + IN, is_loaded=True),
    "output_twice": BrokenModel(PYTHON + OUT, is_loaded=True),
    "unknown_backend": BrokenModel(PYTHON.replace('"python"', '"pyton"')),
    "tensorrt": BrokenModel(f'platform: "tensorrt_plan"\n{IN}{OUT}', {"1/model.plan": ""}),
    "wrong_platform": BrokenModel(f'backend: "onnxruntime"\nplatform: "python"\n{IN}{OUT}', {"1/model.onnx": ""}),
    "no_version": BrokenModel(files={}),
    "no_such_version": BrokenModel(PYTHON + "version_policy { specific { versions: [ 3 ] } }\n"),
    "no_code": BrokenModel(files={"1/": ""}),
    "other_code": BrokenModel(files={"1/modle.py": CODE}),
    "code_elsewhere": BrokenModel(PYTHON + 'default_model_filename: "../../right/1/model.py"\n'),
    "syntax": BrokenModel(files={"1/model.py": "class TritonPythonModel:\n    def execute(self requests): ...\n"}),
    "no_class": BrokenModel(files={"1/model.py": "class Model:\n    def execute(self, requests): ...\n"}),
    "no_execute": BrokenModel(
        files={"1/model.py": "class TritonPythonModel:\n    def exceute(self, requests): ...\n"}, is_loaded=True
    ),
    "empty_folder": BrokenModel(None, {}),
    "odd_folder": BrokenModel(None, {"notes.txt": "nothing"}),
    "unknown_file": BrokenModel(None, {"1/weights.bin": ""}),
    "onnx_without_file": BrokenModel(f'backend: "onnxruntime"\n{IN}{OUT}', {"1/": ""}),
    "onnx_parameter": BrokenModel(
        f'backend: "onnxruntime"\n{IN}{OUT}' + _parameter("intra_op_thread_count", "all"), {"1/model.onnx": ""}
    ),
    "llm_unknown_parameter": BrokenModel(_LLM + _parameter("max_sequence", "4"), {"1/scribe/config.json": "{}"}),
    "llm_wrong_value": BrokenModel(_LLM + _parameter("memory_share", "1.5"), {"1/scribe/config.json": "{}"}),
    "llm_numpy_with_small_cache": BrokenModel(
        _LLM + _parameter("executor", "numpy") + _parameter("kv_cache_dtype", "fp8"), {"1/scribe/config.json": "{}"}
    ),
    "llm_without_files": BrokenModel('backend: "llm"\n', {"1/": ""}),
    "sklearn_without_file": BrokenModel('backend: "sklearn"\n', {"1/": ""}),
    "fil_without_file": BrokenModel('backend: "fil"\n' + _parameter("model_type", "xgboost_json"), {"1/": ""}),
    "fil_wrong_type": BrokenModel('backend: "fil"\n' + _parameter("model_type", "forest"), {"1/xgboost.json": "{}"}),
    "vllm_without_file": BrokenModel('backend: "vllm"\n', {"1/": ""}),
    "vllm_broken_file": BrokenModel('backend: "vllm"\n', {"1/model.json": "{"}),
    "trtllm_without_checkpoint": BrokenModel('backend: "tensorrtllm"\n', {"1/": ""}),
    "ft_wrong_ranks": BrokenModel('backend: "fastertransformer"\n' + _parameter("tensor_para_size", "x"), {"1/": ""}),
    "identity_without_pair": BrokenModel(f'backend: "identity"\n{IN}', {"1/": ""}),
    "ensemble_without_steps": BrokenModel(f'platform: "ensemble"\n{IN}{OUT}', {"1/": ""}),
    "ensemble_of_nobody": _ensemble(_step("rihgt", "x=x", "y=y")),
    "ensemble_of_broken": _ensemble(_step("negative_batch", "x=x", "y=y")),
    "ensemble_of_gpu": _ensemble(_step("gpu_7", "x=x", "y=y")),
    "ensemble_wrong_input": _ensemble(_step("right", "a=x", "y=y")),
    "ensemble_wrong_version": _ensemble(_step("right", "x=x", "y=y", version=4)),
    "ensemble_wrong_type": _ensemble(
        _step("right", "x=x", "y=y"), head=f"max_batch_size: 8\n{IN.replace('FP32', 'INT8')}{OUT}"
    ),
    "ensemble_too_large": _ensemble(_step("right", "x=x", "y=y"), head=f"max_batch_size: 9\n{IN}{OUT}"),
    "ensemble_of_itself": _ensemble(_step("ensemble_of_itself", "x=x", "y=y")),
    "ensemble_unused_input": _ensemble(
        _step("right", "x=x", "y=y"),
        head="max_batch_size: 8\n" + IN.replace(" ]\n", ', { name: "u", data_type: TYPE_FP32, dims: [ 1 ] } ]\n') + OUT,
    ),
}
