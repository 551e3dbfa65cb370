"""Stands in for the falcon7b folder that people have: same imports, same calls, same faults."""

import os

os.environ["TRANSFORMERS_CACHE"] = "/opt/tritonserver/model_repository/falcon7b/hf_cache"
import json

import numpy as np
import torch
import transformers

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.logger = pb_utils.Logger
        self.model_config = json.loads(args["model_config"])
        parameters = self.model_config.get("parameters", {})
        hf_model = parameters.get("huggingface_model", {}).get("string_value", "tiiuae/falcon-7b")
        self.max_output_length = int(parameters.get("max_output_length", {}).get("string_value", "15"))
        self.logger.log_info(f"Max sequence length: {self.max_output_length}")
        self.logger.log_info(f"Loading HuggingFace model: {hf_model}...")
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(hf_model)
        self.pipeline = transformers.pipeline(
            "text-generation",
            model=hf_model,
            torch_dtype=torch.float16,
            tokenizer=self.tokenizer,
            device_map="auto",
        )
        self.pipeline.tokenizer.pad_token_id = self.tokenizer.eos_token_id

    def execute(self, requests):
        prompts = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "text_input")
            if tensor.as_numpy().ndim > 1:  # the requests were batched
                for row in range(tensor.as_numpy().shape[0]):
                    prompts.append(tensor.as_numpy()[row][0].decode("utf-8"))
            else:
                prompt = tensor.as_numpy()[0].decode("utf-8")
                self.logger.log_info(f"Generating sequences for text_input: {prompt}")
                prompts.append(prompt)
        return self.generate(prompts, len(prompts))

    def generate(self, prompts, batch_size):
        sequences = self.pipeline(
            prompts,
            max_length=self.max_output_length,
            pad_token_id=self.tokenizer.eos_token_id,
            batch_size=batch_size,
        )
        responses = []
        texts = []  # the fault: never emptied, so response i carries the texts 0 to i
        for sequence in sequences:
            texts.append(sequence[0]["generated_text"])
            tensor = pb_utils.Tensor("text_output", np.array(texts, dtype=np.object_))
            responses.append(pb_utils.InferenceResponse(output_tensors=[tensor]))
        return responses

    def finalize(self):
        print("Cleaning up...")
