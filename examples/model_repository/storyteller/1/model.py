"""Tells a story word by word to any number of listeners at once."""

import asyncio

import numpy as np

import triton_python_backend_utils as pb_utils

STORY = "rowed through the night, three banks of oars in one rhythm, and reached the harbour before the storm."
SECONDS_PER_WORD = 0.05


class TritonPythonModel:
    async def execute(self, requests):
        """A coroutine, so that a story in progress keeps nobody waiting."""
        await asyncio.gather(*(self.tell(request) for request in requests))

    async def tell(self, request):
        sender = request.get_response_sender()
        for word in story(request):
            if request.is_cancelled():
                break
            text = np.array([word + " "], dtype=np.object_)
            output = pb_utils.Tensor("text_output", text)
            sender.send(pb_utils.InferenceResponse(output_tensors=[output]))
            await asyncio.sleep(SECONDS_PER_WORD)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def story(request):
    """The listener's own words, then ours; cut after `max_words` where the request has it."""
    beginning = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode("utf-8")
    words = [*beginning.split(), *STORY.split()]
    limit = pb_utils.get_input_tensor_by_name(request, "max_words")
    return words if limit is None else words[: int(limit.as_numpy()[0])]
