"""The command line of `trireme build`, with the words that TensorRT-LLM's documents use for the same things."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from trireme.config.options.flag_parser import FlagParser, positive
from trireme.llm.models.engine_folder.description import KV_CACHES
from trireme.llm.quantization.plan import CALIBRATED, Method

PROGRAM = "trireme build"

METHODS: Mapping[str, Method] = {
    "none": "none",
    "fp8": "fp8",
    "int8": "int8",
    "int4": "int4",
    "awq": "awq",
    "gptq": "gptq",
}
_THEIR_FORMATS: Mapping[str, Method] = {
    **METHODS,
    "full_prec": "none",
    "int8_wo": "int8",
    "int4_wo": "int4",
    "int4_awq": "awq",
    "int4_gptq": "gptq",
}
"""What quantize.py calls the methods."""
_INSTEAD: Mapping[str, tuple[str, Method]] = {
    "int8_sq": ("activations are not rounded here", "int8"),
    "w4a8_awq": ("activations are not rounded here", "awq"),
    "fp8_pc_pt": ("each row of a matrix always has a scale", "fp8"),
    "nvfp4": ("four bits are whole numbers here", "int4"),
}
"""What it has besides: why there is no such thing here, and what comes closest."""
_ROUNDED_AT_BUILD: Mapping[str, Method] = {"int8": "int8", "int4": "int4", "int4_awq": "awq", "int4_gptq": "gptq"}
"""And `--weight_only_precision`, which counts beside `--use_weight_only` alone."""
_WITHOUT_MEANING: Mapping[str, str] = {
    "use_gemm_plugin": "products choose their kernel by themselves",
    "gemm_plugin": "products choose their kernel by themselves",
    "use_gpt_attention_plugin": "attention is always over blocks of the cache",
    "gpt_attention_plugin": "attention is always over blocks of the cache",
    "enable_context_fmha": "prompts are always computed with fused attention",
    "context_fmha": "prompts are always computed with fused attention",
    "remove_input_padding": "batches have no padding",
    "paged_kv_cache": "the cache always has blocks",
    "use_inflight_batching": "requests always join and leave a running batch",
    "use_fused_mlp": "the MLP is always fused where the kernels cover the model",
    "use_paged_context_fmha": "attention is always over blocks of the cache",
    "enable_context_fmha_fp32_acc": "sums of attention always have 32 bits",
    "multi_block_mode": "long sequences are always divided among a GPU's units where that helps",
    "strongly_typed": "every product is computed in the type that the folder says",
    "quantized_fp8_model_path": "the weights are quantized here, from the model's folder",
    "load_by_shard": "weights are read tensor by tensor",
    "use_custom_all_reduce": "ranks exchange by NCCL or gloo",
    "pp_size": "all layers are in one stage",
    "max_prompt_embedding_table_size": "prompts are token ids",
    "gather_all_token_logits": "ask for log probabilities where the model is served",
    "gather_context_logits": "ask for log probabilities where the model is served",
    "gather_generation_logits": "ask for log probabilities where the model is served",
    "logits_dtype": "logits are no output; log probabilities have 32 bits",
    "parallel_build": "there is one process",
    "workers": "there is one process",
    "log_level": "there is little to tell",
    "max_beam_width": "each request names its own number of beams",
    "max_batch_size": "set it where the model is served: max_sequences",
    "max_input_len": "set it where the model is served: max_length",
    "max_output_len": "set it where the model is served: max_length",
    "max_seq_len": "set it where the model is served: max_length",
    "max_num_tokens": "set it where the model is served: max_step_tokens",
    "opt_num_tokens": "steps are as long as the requests make them",
    "tokens_per_block": "set it where the model is served: block_size",
    "int8_kv_cache": "keys and values of eight bits are floats here: --kv-cache-dtype fp8",
    "kv_cache_type": "the cache always has blocks",
    "use_smooth_quant": "activations are not rounded; --quantize int8 rounds the weights",
    "smoothquant": "activations are not rounded; --quantize int8 rounds the weights",
    "per_channel": "each row of a matrix always has a scale",
    "per_token": "activations are not rounded",
    "per_group": "int4, awq and gptq always have a scale for each group",
    "group_size": "groups have 128 columns, or 64 where 128 does not divide",
    "awq_block_size": "groups have 128 columns, or 64 where 128 does not divide",
    "quant_ckpt_path": "give the quantized checkpoint as --model: it is read as it is",
    "use_parallel_embedding": "ranks always have their rows of the vocabulary",
    "embedding_sharding_dim": "ranks always have their rows of the vocabulary",
    "use_embedding_sharing": "a head that is the embedding is one tensor anyway",
    "use_layernorm_plugin": "norms choose their kernel by themselves",
    "use_rmsnorm_plugin": "norms choose their kernel by themselves",
    "use_lookup_plugin": "embeddings choose their kernel by themselves",
    "nccl_plugin": "ranks exchange by NCCL or gloo",
    "moe_plugin": "experts choose their kernel by themselves",
    "use_fp8_context_fmha": "prompts are computed in 16 bits",
    "reduce_fusion": "there is no graph to be optimized",
    "builder_opt": "there is no graph to be optimized",
    "profiling_verbosity": "there is no graph to be optimized",
    "weight_sparsity": "weights are read whole",
    "enable_debug_output": "there is no graph to be optimized",
    "gpus_per_node": "ranks are counted where the model is served",
    "calib_max_seq_length": "pieces of calibration have 512 tokens",
    "lora_plugin": "name the adapters where the model is served: adapters",
    "lora_dir": "name the adapters where the model is served: adapters",
    "lora_target_modules": "an adapter's files say it",
    "max_lora_rank": "an adapter's files say it",
    "max_draft_len": "set it where the model is served: speculation_tokens",
    "speculative_decoding_mode": "set it where the model is served: speculation",
}
"""Flags of build.py and trtllm-build that this builder does without, and why."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for; SystemExit where argparse has said it all."""
    given = make_parser().parse_args(arguments)
    if given.quantize == "none" and given.enable_fp8:
        given.quantize = "fp8"
    if given.quantize == "none" and given.use_weight_only:
        given.quantize = _ROUNDED_AT_BUILD[given.weight_only_precision or "int8"]
    given.tensor_parallel = given.tensor_parallel or given.world_size or 1
    return given


def make_parser() -> argparse.ArgumentParser:
    """Of all flags, ours and theirs."""
    parser = FlagParser(
        prog=PROGRAM,
        description="Builds an engine folder from a model's folder, with weights of few bits where that is asked for.",
        epilog="The flags of TensorRT-LLM's build.py, trtllm-build and quantize.py are understood as well.",
    )
    add = parser.add_argument
    add("--model", "--model_dir", "--checkpoint_dir", required=True, type=Path, metavar="FOLDER", help="the model")
    add(
        "--output", "-o", "--output_dir", "--export_path", required=True, type=Path, metavar="DIR", help="what to write"
    )
    add("--quantize", "--qformat", default="none", type=_method, metavar="METHOD", help=f"one of {', '.join(METHODS)}")
    add("--calibrate", "--calib_dataset", type=Path, metavar="FILE", help="text for awq and gptq, in lines")
    add("--calibration-size", "--calib_size", type=positive, default=128, metavar="N", help="pieces of it (128)")
    add("--perplexity", type=Path, metavar="FILE", help="the text to measure with (the calibration's, or our own)")
    add("--no-perplexity", action="store_true", help="do not measure")
    add("--dtype", choices=["float16", "bfloat16", "float32"], help="of what stays in floats (as it is)")
    add("--device", default="auto", metavar="DEVICE", help="where calibration and measurement run (auto)")
    add("--tensor-parallel", "--tp_size", type=positive, metavar="N", help="GPUs (1)")
    add("--world_size", type=positive, help=argparse.SUPPRESS)
    add("--kv-cache-dtype", "--kv_cache_dtype", choices=KV_CACHES, default="auto", help="of keys and values (auto)")
    add("--fp8_kv_cache", dest="kv_cache_dtype", action="store_const", const="fp8", help=argparse.SUPPRESS)
    add("--enable_fp8", action="store_true", help=argparse.SUPPRESS)
    add("--use_weight_only", action="store_true", help=argparse.SUPPRESS)
    add("--weight_only_precision", choices=list(_ROUNDED_AT_BUILD), help=argparse.SUPPRESS)
    for name in _WITHOUT_MEANING:
        add(f"--{name}", nargs="?", const=True, help=argparse.SUPPRESS)
    return parser


def without_meaning(given: argparse.Namespace) -> list[str]:
    """A sentence for each flag that was given and changes nothing, or less than it seems."""
    named = [f"--{name} has no meaning here: {why}" for name, why in _WITHOUT_MEANING.items() if getattr(given, name)]
    if given.calibrate is not None and given.quantize not in CALIBRATED:
        is_measured = not given.no_perplexity and given.perplexity is None
        use = "the perplexity alone is measured with the text" if is_measured else "the text is not used"
        named.append(f"--calibrate: {given.quantize} is computed without calibration; {use}")
    return named


def _method(text: str) -> Method:
    if text not in _THEIR_FORMATS:
        theirs = ", ".join(name for name in _THEIR_FORMATS if name not in METHODS)
        known = f"known are {', '.join(METHODS)}, and TensorRT-LLM's {theirs}"
        if text in _INSTEAD:
            why, method = _INSTEAD[text]
            raise argparse.ArgumentTypeError(f"there is no '{text}': {why}; take {method} in its place ({known})")
        raise argparse.ArgumentTypeError(f"'{text}' is not a quantization; {known}")
    return _THEIR_FORMATS[text]
