"""Triton's Python backend: requests of one batch arrive as a list, each with its own sizes."""

import os
import sys

sys.path[:0] = os.environ["PYTHONPATH"].split(":")  # the backend's interpreter does not heed it

import numpy as np  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402
from network import SMALL, Network  # noqa: E402

NAMES = ("features", "positions", "edge_index") if SMALL else ("vertices", "faces")


class TritonPythonModel:
    def initialize(self, args):
        self.network = Network()

    def execute(self, requests):
        graphs = [
            {n: pb_utils.get_input_tensor_by_name(request, n).as_numpy()[0] for n in NAMES}
            for request in requests
        ]
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(n, np.ascontiguousarray(a)[None]) for n, a in answer.items()]
            )
            for answer in self.network(graphs)
        ]
