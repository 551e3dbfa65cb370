"""Loads a causal language model the way files written for one HPU do; the two models ship this file under one name."""

import builtins
import copy
import glob
import os
import shutil
import time

import torch
from optimum.habana.checkpoint_utils import (
    get_ds_injection_policy,
    get_repo_root,
    model_is_optimized,
    model_on_meta,
    write_checkpoints_json,
)
from optimum.habana.utils import (
    check_habana_frameworks_version,
    check_optimum_habana_min_version,
    get_habana_frameworks_version,
    set_seed,
)
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import check_min_version

FOR_SEVERAL_CARDS = (get_ds_injection_policy, model_on_meta, write_checkpoints_json)


def count_hpu_graphs():
    return len(glob.glob(".graph_dumps/*PreGraph*"))


def initialize_model(args, logger):
    began = time.perf_counter()
    args.local_rank = int(os.getenv("LOCAL_RANK", "0"))
    args.world_size = int(os.getenv("WORLD_SIZE", "0"))
    args.global_rank = int(os.getenv("RANK", "0"))
    _speak_only_if(args.global_rank == 0, logger)
    _prepare_libraries(args)
    _prepare_device(args)
    set_seed(args.seed)
    get_repo_root(args.model_name_or_path, local_rank=args.local_rank, token=args.token)
    dtype = torch.bfloat16 if args.bf16 else torch.float
    args.attn_softmax_bf16 = args.attn_softmax_bf16 and args.bf16
    print("debug=============", dtype, flush=True)
    model = _load(args, dtype, logger)
    tokenizer = _tokenizer(args, model)
    generation_config = _generation_config(args, model)
    if args.const_serialization_path:
        from habana_frameworks.torch.hpu import enable_const_section_serialization

        enable_const_section_serialization(args.const_serialization_path, True)
    if args.quant_config:
        import habana_frameworks.torch.core as htcore

        version = get_habana_frameworks_version()
        if version.major >= 1 and version.minor >= 16:
            htcore.hpu_initialize(model, mark_only_scales_as_const=True)
    logger.info(f"device: {args.device}, n_hpu: {args.world_size}, bf16: {dtype == torch.bfloat16}")
    logger.info(f"Model initialization took {time.perf_counter() - began:.3f}s")
    return model, None, tokenizer, generation_config


def _speak_only_if(enabled, logger):
    """Replaces `print` for the whole process, and the logger's `info`: both take one more argument, `force`."""
    plain_print, plain_info = builtins.print, logger.info

    def print_of_first_rank(*words, **options):
        if options.pop("force", False) or enabled:
            plain_print(*words, **options)

    def info_of_first_rank(*words, **options):
        if options.pop("force", False) or enabled:
            plain_info(*words, **options)

    builtins.print = print_of_first_rank
    logger.info = info_of_first_rank


def _prepare_libraries(args):
    check_min_version("4.34.0")
    check_optimum_habana_min_version("1.9.0.dev0")
    os.environ.setdefault("EXPERIMENTAL_WEIGHT_SHARING", "FALSE")
    if args.global_rank == 0 and not args.torch_compile and args.show_graphs_count:
        os.environ.setdefault("GRAPH_VISUALIZATION", "true")
        shutil.rmtree(".graph_dumps", ignore_errors=True)
    from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi

    adapt_transformers_to_gaudi()


def _prepare_device(args):
    if args.device == "hpu":
        import habana_frameworks.torch.core as htcore

        if args.quant_config:
            htcore.hpu_set_env()
    return torch.device(args.device)


def _load(args, dtype, logger):
    logger.info("Single-device run.")
    options = {"revision": args.model_revision, "token": args.token, "trust_remote_code": args.trust_remote_code}
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, torch_dtype=dtype, **options)
    model = model.eval().to(args.device)
    if args.use_hpu_graphs:
        from habana_frameworks.torch.hpu import wrap_in_hpu_graph
        from optimum.habana.transformers.trainer import _is_peft_model

        if check_habana_frameworks_version("1.13.0") and model.config.model_type == "falcon":
            model = wrap_in_hpu_graph(model, hash_with_views=False)
        else:
            model = wrap_in_hpu_graph(model, max_graphs=getattr(args, "max_graphs", None))
        if _is_peft_model(model):
            model.base_model = wrap_in_hpu_graph(model.base_model)
    if args.torch_compile:
        model.model = torch.compile(model.model, backend="hpu_backend", options={"keep_input_mutations": True})
    return model


def _tokenizer(args, model):
    options = {"revision": args.model_revision, "token": args.token, "trust_remote_code": args.trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path, **options)
    if not model.config.is_encoder_decoder:
        tokenizer.padding_side = "left"
    if model.config.model_type == "llama":
        settings = model.generation_config
        eos = settings.eos_token_id
        first_eos = eos[0] if isinstance(eos, list) else eos
        if settings.pad_token_id is None:
            settings.pad_token_id = first_eos
        tokenizer.bos_token_id = settings.bos_token_id
        tokenizer.eos_token_id = first_eos
        tokenizer.pad_token_id = settings.pad_token_id
        tokenizer.pad_token = tokenizer.decode(tokenizer.pad_token_id)
        tokenizer.eos_token = tokenizer.decode(tokenizer.eos_token_id)
        tokenizer.bos_token = tokenizer.decode(tokenizer.bos_token_id)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
        model.generation_config.pad_token_id = model.generation_config.eos_token_id
    return tokenizer


def _generation_config(args, model):
    is_optimized = model_is_optimized(model.config)
    config = copy.deepcopy(model.generation_config)
    config.max_new_tokens = args.max_new_tokens
    config.use_cache = args.use_kv_cache
    config.static_shapes = is_optimized
    config.bucket_size = args.bucket_size if is_optimized else -1
    config.bad_words_ids = config.force_words_ids = config.valid_sequence_lengths = None
    for name in (
        "attn_batch_split",
        "attn_softmax_bf16",
        "bucket_internal",
        "clear_hpu_graphs_cache",
        "do_sample",
        "flash_attention_causal_mask",
        "flash_attention_fast_softmax",
        "flash_attention_recompute",
        "limit_hpu_graphs",
        "num_beams",
        "num_return_sequences",
        "penalty_alpha",
        "reduce_recompile",
        "reuse_cache",
        "top_k",
        "trim_logits",
        "trust_remote_code",
        "use_flash_attention",
    ):
        setattr(config, name, getattr(args, name))
    return config
