"""A model's file that uses what a Gaudi machine has, and prints what it saw; run in a process of its own, since it
changes torch for good."""

import json
import os
import sys

import habana_frameworks.torch as htorch
import habana_frameworks.torch.core as htcore
import habana_frameworks.torch.hpu as hthpu
import torch
import transformers
from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi
from optimum.habana.utils import check_optimum_habana_min_version, get_habana_frameworks_version, set_seed

model_folder = sys.argv[1]
device = torch.device("hpu")
facts = {}

# Tensors and modules.
layer = hthpu.wrap_in_hpu_graph(torch.nn.Linear(3, 2, device="hpu").to(device))
tensors = [
    torch.ones(2, 3, device=device),
    torch.ones(2, 3).to("hpu"),
    torch.ones(2, 3).to(device="hpu:0", dtype=torch.float32),
    torch.ones(2, 3).hpu(),
    torch.zeros_like(torch.ones(2, 3), device="hpu") + 1,
    torch.ones(1).new_ones((2, 3), device=device),
]
with device:
    tensors.append(torch.ones(2, 3))
with torch.no_grad(), torch.autocast(device_type="hpu", dtype=torch.bfloat16):
    facts["autocast"] = str(layer(tensors[0]).dtype)
htcore.mark_step()
facts["sums"] = [tensor.cpu().sum().item() for tensor in tensors]
facts["devices"] = sorted({tensor.device.type for tensor in tensors} | {layer.weight.device.type})
facts["device"] = str(device)
facts["module_hpu"] = layer.hpu() is layer
path = os.path.join(model_folder, "..", f"tensor-{os.getpid()}.pt")
torch.save(tensors[0], path)
facts["loaded"] = torch.load(path, map_location="hpu").shape == (2, 3)
os.unlink(path)
facts["compiled"] = torch.compile(layer, backend="hpu_backend", options={"keep_input_mutations": True}) is layer

# What the device says of itself.
facts["available"] = [torch.hpu.is_available(), htorch.hpu.device_count(), hthpu.get_device_name()]
facts["version"] = get_habana_frameworks_version().major
with torch.hpu.stream(torch.hpu.Stream()):
    torch.hpu.synchronize()
graph = hthpu.HPUGraph()
with hthpu.graph(graph):
    layer(tensors[0])
try:
    graph.replay()
except RuntimeError as error:
    facts["replay"] = str(error)
try:
    check_optimum_habana_min_version("99.0")
except ImportError as error:
    facts["too_new"] = str(error)

# Libraries still see a machine without a Gaudi, and generate takes what Gaudi's takes.
facts["library_sees_hpu"] = transformers.utils.is_torch_hpu_available()
adapt_transformers_to_gaudi()
adapt_transformers_to_gaudi()
set_seed(42)
model = transformers.AutoModelForCausalLM.from_pretrained(model_folder).eval().to("hpu")
tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder, padding_side="left")
tokenizer.pad_token = tokenizer.eos_token
tokens = tokenizer.batch_encode_plus(["I am", "you are going"], return_tensors="pt", padding=True)
plain = dict(tokens, max_new_tokens=4, do_sample=False)
gaudi = {"lazy_mode": True, "hpu_graphs": True, "profiling_steps": 0, "profiling_warmup_steps": 0}
types = torch.zeros_like(tokens["input_ids"])
answers = [
    model.generate(**plain, **gaudi, token_type_ids=types).tolist(),
    model.generate(**plain).tolist(),
]
facts["same_answer"] = answers[0] == answers[1]
facts["tokens"] = [len(row) - tokens["input_ids"].shape[1] for row in answers[0]]
try:
    model.generate(**plain, no_such_option=1)
except (ValueError, TypeError) as error:
    facts["refused"] = "no_such_option" in str(error)
print(json.dumps(facts))
