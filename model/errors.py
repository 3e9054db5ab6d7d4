"""What can go wrong with graphs and bundles, by name."""


class SplineCNNError(Exception):
    """The parent of every error this package raises on purpose."""


class InvalidGraph(SplineCNNError):
    """A graph, mesh or image that cannot be used; `path` names the field, like "mesh.faces[3]"."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class BundleError(SplineCNNError):
    """A zoo entry or bundle that is incomplete, altered, or of another format."""


class UnsupportedTask(SplineCNNError):
    """A task this version does not know."""
