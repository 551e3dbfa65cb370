"""Serves a causal language model on one HPU, in the manner of Gaudi's own examples: a class of constants, a warm-up."""

import json
import logging
import os

import numpy as np
import torch
from optimum.habana.utils import get_hpu_memory_stats
from utils import count_hpu_graphs, initialize_model

import triton_python_backend_utils as pb_utils


class habana_args:
    device = "hpu"
    model_name_or_path = "Qwen/Qwen2-1.5B-Instruct"
    token = None
    bf16 = False
    use_hpu_graphs = True
    use_lazy_mode = False
    seed = 42
    use_kv_cache = True
    max_new_tokens = 100
    max_inp_tokens = 1024
    batch_size = -1
    do_sample = True
    num_beams = 3
    num_return_sequences = 1
    profiling_steps = 0
    profiling_warmup_steps = 0
    prompt = "I am"
    model_revision = "main"
    bucket_size = -1
    bucket_internal = False
    trim_logits = True
    attn_softmax_bf16 = True
    attn_batch_split = 1
    limit_hpu_graphs = True
    clear_hpu_graphs_cache = False
    reduce_recompile = False
    reuse_cache = True
    torch_compile = False
    quant_config = os.getenv("QUANT_CONFIG", "")
    trust_remote_code = False
    show_graphs_count = False
    top_k = None
    penalty_alpha = None
    use_flash_attention = True
    flash_attention_recompute = False
    flash_attention_causal_mask = False
    flash_attention_fast_softmax = False
    const_serialization_path = ""


logging.basicConfig(
    format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO
)
logger = logging.getLogger(__name__)


class TritonPythonModel:
    def initialize(self, args):
        print("Initializing")
        self.model, _, self.tokenizer, self.generation_config = initialize_model(habana_args, logger)
        texts = self.generate([habana_args.prompt])
        print("prompt test:")
        print(texts[0])
        logger.info("graphs: %d, memory: %s", count_hpu_graphs(), get_hpu_memory_stats(habana_args.device))
        print("Initialize finished")
        output0 = pb_utils.get_output_config_by_name(json.loads(args["model_config"]), "OUTPUT0")
        self.output0_dtype = pb_utils.triton_string_to_numpy(output0["data_type"])

    def generate(self, texts):
        tokens = self.tokenizer.batch_encode_plus(texts, return_tensors="pt", padding=True)
        for name in tokens:
            if torch.is_tensor(tokens[name]):
                tokens[name] = tokens[name].to(habana_args.device)
        outputs = self.model.generate(
            **tokens,
            generation_config=self.generation_config,
            lazy_mode=True,
            hpu_graphs=habana_args.use_hpu_graphs,
            profiling_steps=habana_args.profiling_steps,
            profiling_warmup_steps=habana_args.profiling_warmup_steps,
        ).cpu()
        return self.tokenizer.batch_decode(outputs, skip_special_tokens=True)

    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            print("xxxxxxxxxxx:", tensor)
            texts = [element.decode("utf8") for element in tensor.as_numpy()]
            print(texts, type(texts[0]))
            answers = self.generate(texts)
            print([answer.encode("utf8") for answer in answers])
            output = pb_utils.Tensor("OUTPUT0", np.array(answers, dtype=self.output0_dtype))
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
        return responses

    def finalize(self):
        print("Cleaning up...")
