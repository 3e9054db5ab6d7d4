"""LitServe, with its own batching: `batch` and `unbatch` are where its pages say to pack."""

import os
import sys

import litserve as ls
from network import SMALL, Network, read, write


class Api(ls.LitAPI):
    def setup(self, device):
        self.network = Network()

    def decode_request(self, request):
        return read(request)

    def batch(self, inputs):
        return inputs

    def predict(self, inputs):
        return self.network(inputs) if SMALL else self.network([inputs])[0]

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return write(output)


if __name__ == "__main__":
    api = Api(max_batch_size=16, batch_timeout=0.001) if SMALL else Api()
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="error"
    )
    os._exit(0)
