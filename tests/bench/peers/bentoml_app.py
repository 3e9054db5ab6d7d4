"""BentoML, with adaptive batching over lists of graphs."""

from typing import Any

import bentoml
from network import SMALL, Network, read, write


@bentoml.service(workers=1, traffic={"timeout": 300})
class Peer:
    def __init__(self) -> None:
        self.network = Network()

    if SMALL:

        @bentoml.api(batchable=True, max_batch_size=16, max_latency_ms=60000)
        def predict(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [write(answer) for answer in self.network([read(body) for body in requests])]

    else:

        @bentoml.api
        def predict(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [write(answer) for answer in self.network([read(body) for body in requests])]
