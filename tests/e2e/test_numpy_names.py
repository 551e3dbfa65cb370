"""A model file written for numpy 1, with numpy 2: it works with the compatibility option, which the error names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from running_server import INT_CONFIG, RunningServer, write_model

pytestmark = pytest.mark.skipif(np.__version__.startswith("1."), reason="numpy 1 has the names itself")

OLD = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        values = [np.NINF, np.PINF, np.float_(1), np.int0(2), np.product([1, 5]), np.asfarray([6])[0]]
        known = [np.alltrue([True]), np.sometrue([0, 1]), np.in1d([1], [1]).all(), np.unicode_("a") == "a"]
        assert all(known) and np.NaN != np.NAN and values[0] == -values[1]
        assert np.find_common_type([np.float32], [np.int64]) == np.float32
        found = np.array([values[2:]], dtype=np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", found)]) for _ in requests]
"""
FROM_THE_FIRST_LINE = OLD.replace("class ", "START = np.NINF\nclass ", 1)
ASKED = INT_CONFIG + 'parameters { key: "compat" value: { string_value: "numpy1" } }\n'


def test_names_that_numpy_lost_are_there_on_request_and_else_the_error_names_the_option(tmp_path: Path) -> None:
    write_model(tmp_path, "old", FROM_THE_FIRST_LINE, ASKED)
    write_model(tmp_path, "unasked", OLD)
    write_model(tmp_path, "broken", FROM_THE_FIRST_LINE)
    with RunningServer(tmp_path, "--exit-on-error=false") as server:
        server.wait_until_listening()
        status, answer = server.infer("old", 1)
        assert (status, answer["outputs"][0]["data"]) == (200, [1, 2, 5, 6])
        status, answer = server.infer("unasked", 1)
        for text in (answer["error"], server.index()["broken"]["reason"]):
            assert "AttributeError: `np.NINF` was removed in the NumPy 2.0 release" in text
            assert "the compatibility option 'numpy1' brings it back: --compat=numpy1, or parameters" in text
