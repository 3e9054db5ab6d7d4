"""MLServer. Its adaptive batching joins tensors of different graphs into one, so it stays off."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from network import Network


class Peer(MLModel):
    async def load(self) -> bool:
        self.network = Network()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        graph = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        answer = self.network([graph])[0]
        outputs = [NumpyCodec.encode_output(name, array) for name, array in answer.items()]
        return InferenceResponse(model_name=self.name, outputs=outputs)
