"""Ray Serve, with its batching decorator; one replica."""

import sys
import time

from network import SMALL, Network, read, write
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=1, max_ongoing_requests=64, ray_actor_options={"num_cpus": 1})
class Peer:
    def __init__(self) -> None:
        self.network = Network()

    @serve.batch(max_batch_size=16, batch_wait_timeout_s=0.0)
    async def together(self, graphs):
        return self.network(graphs)

    async def __call__(self, request: Request):
        graph = read(await request.json())
        if SMALL:
            return write(await self.together(graph))
        return write(self.network([graph])[0])


if __name__ == "__main__":
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Peer.bind(), route_prefix="/predict")
    time.sleep(3600)
