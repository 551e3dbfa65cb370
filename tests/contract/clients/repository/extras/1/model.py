"""One behaviour of the utilities per name."""

import json
import os

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.is_ready_flag = True
        self.waiting = {}
        family = pb_utils.MetricFamily("trips", "Trips so far", pb_utils.MetricFamily.COUNTER)
        self.family = family
        self.trips = family.Metric(labels={"model": args["model_name"]})
        self.histogram_family = pb_utils.MetricFamily("lengths", "Lengths", pb_utils.MetricFamily.HISTOGRAM)
        self.lengths = self.histogram_family.Metric(labels={}, buckets=[1.0, 10.0])
        pb_utils.Logger.log_info(f"extras in {args['model_instance_name']}")

    def is_ready(self):
        return self.is_ready_flag

    def execute(self, requests):
        responses = []
        for request in requests:
            way = request.inputs()[0].as_numpy()[0].decode()
            found = getattr(self, way)(request)
            responses.append(None if found is None else self._response(found))
        return responses

    def _response(self, found):
        return pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", np.array([json.dumps(found)], dtype=object))])

    def metrics(self, request):
        self.trips.increment(2)
        self.lengths.observe(5)
        return self.trips.value()

    def log(self, request):
        pb_utils.Logger.log_warn("wind from the north")
        pb_utils.Logger.log("wind from the south", pb_utils.Logger.ERROR)
        pb_utils.Logger.log_verbose("a calm")
        print("printed by a model", flush=True)
        return True

    def reschedule(self, request):
        runs = self.waiting[request.request_id()] = self.waiting.get(request.request_id(), 0) + 1
        if runs < 3:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        return runs

    def sender(self, request):
        sender = request.get_response_sender()
        sender.send(self._response("sent"), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def sender_in_two(self, request):
        sender = request.get_response_sender()
        sender.send(self._response("sent"))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def sender_twice(self, request):
        sender = request.get_response_sender()
        sender.send(self._response("first"))
        try:
            sender.send(self._response("second"))
        except Exception as error:
            pb_utils.Logger.log_warn(f"refused: {error}")
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def sender_with_two(self, request):
        sender = request.get_response_sender()
        sender.send(self._response("first"))
        sender.send(self._response("second"), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def unready(self, request):
        self.is_ready_flag = False
        return True

    def ready(self, request):
        self.is_ready_flag = True
        return True

    def control(self, request):
        steps = [pb_utils.is_model_ready("spare")]
        pb_utils.load_model("spare")
        steps.append(pb_utils.is_model_ready("spare"))
        steps.append(pb_utils.is_model_ready("spare", "1"))
        pb_utils.unload_model("spare")
        steps.append(pb_utils.is_model_ready("spare"))
        try:
            pb_utils.load_model("nosuch")
        except pb_utils.TritonModelException as error:
            steps.append(str(error))
        return steps

    def place(self, request):
        return [pb_utils.get_model_dir(), os.getpid()]
