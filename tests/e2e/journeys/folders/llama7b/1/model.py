"""Stands in for the llama7b folder that people have: it looks its token up without asking whether there is one."""

import os

os.environ["TRANSFORMERS_CACHE"] = "/opt/tritonserver/model_repository/llama7b/hf-cache"

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
        hf_model = parameters.get("huggingface_model", {}).get("string_value", "meta-llama/Llama-2-7b-hf")
        if "PRIVATE_REPO_TOKEN" not in os.environ:
            print("envvar PRIVATE_REPO_TOKEN should be specified if running a restricted model")
        private_repo_token = os.environ["PRIVATE_REPO_TOKEN"]
        self.max_output_length = int(parameters.get("max_output_length", {}).get("string_value", "15"))
        self.logger.log_info(f"Max output length: {self.max_output_length}")
        self.logger.log_info(f"Loading HuggingFace model: {hf_model}...")
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(hf_model, token=private_repo_token)
        self.pipeline = transformers.pipeline(
            "text-generation",
            model=hf_model,
            torch_dtype=torch.float16,
            tokenizer=self.tokenizer,
            device_map="auto",
            token=private_repo_token,
        )

    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "text_input")
            responses.append(self.generate(tensor.as_numpy()[0].decode("utf-8")))
        return responses

    def generate(self, prompt):
        sequences = self.pipeline(
            prompt,
            do_sample=True,
            top_k=10,
            num_return_sequences=1,
            eos_token_id=self.tokenizer.eos_token_id,
            max_length=self.max_output_length,
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
