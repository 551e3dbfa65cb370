"""Stands in for the persimmon8b folder that people have: one prompt at a time, no batches."""

import os

os.environ["TRANSFORMERS_CACHE"] = "/opt/tritonserver/model_repository/persimmon8b/hf_cache"

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
        hf_model = parameters.get("huggingface_model", {}).get("string_value", "adept/persimmon-8b-base")
        self.max_output_length = int(parameters.get("max_output_length", {}).get("string_value", "15"))
        self.logger.log_info(f"Max output length: {self.max_output_length}")
        self.logger.log_info(f"Loading HuggingFace model: {hf_model}...")
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(hf_model)
        self.pipeline = transformers.pipeline(
            "text-generation",
            model=hf_model,
            torch_dtype=torch.float16,
            tokenizer=self.tokenizer,
            device_map="auto",
        )

    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "text_input")
            prompt = tensor.as_numpy()[0].decode("utf-8")
            self.logger.log_info(f"Generating sequences for text_input: {prompt}")
            responses.append(self.generate(prompt))
        return responses

    def generate(self, prompt):
        sequences = self.pipeline(
            prompt,
            max_length=self.max_output_length,
            pad_token_id=self.tokenizer.eos_token_id,
        )
        texts = []
        for number, sequence in enumerate(sequences, 1):
            text = sequence["generated_text"]
            self.logger.log_info(f"Sequence {number}: {text}")
            texts.append(text)
        tensor = pb_utils.Tensor("text_output", np.array(texts, dtype=np.object_))
        return pb_utils.InferenceResponse(output_tensors=[tensor])

    def finalize(self):
        print("Cleaning up...")
