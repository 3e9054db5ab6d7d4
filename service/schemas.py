"""What our own JSON may say: the envelope of a request, checked here, and the shape of answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Ask(BaseModel):
    """The part of a request that is not bulk numbers."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(default=None, max_length=200, description="Name, or name@version.")
    top_k: int = Field(default=1, ge=1, description="Candidates per vertex, best first.")
    include: list[str] = Field(
        default=[], description="What else to answer; `include` of the model says what there is."
    )
    refine: bool = Field(
        default=False, description="A better answer for more time, from models that offer it."
    )


class Mesh(BaseModel):
    vertices: list[list[float]] = Field(description="One [x, y, z] per vertex.")
    faces: list[list[int]] = Field(description="One [a, b, c] per triangle, counted from 0.")


class CorrespondenceRequest(Ask):
    mesh: Mesh


class SparseFeatureRows(BaseModel):
    size: int = Field(description="Features per node.")
    indices: list[list[int]] = Field(description="Per node, the features that are not zero.")
    values: list[list[float]] | None = Field(
        default=None, description="Their values; 1 if left out."
    )


class GraphBody(BaseModel):
    num_nodes: int
    edges: list[list[int]] = Field(description="One [source, target] per edge.")
    undirected: bool = Field(
        default=True, description="Whether each edge also stands for its reverse."
    )
    features: list[list[float]] | SparseFeatureRows
    positions: list[list[float]] | None = Field(
        default=None, description="One [x, y] or [x, y, z] per node, where the model takes them."
    )
    pseudo: list[list[float]] | None = Field(
        default=None,
        description="One row in [0, 1] per edge, where the model takes them, of directed edges.",
    )


class GraphRequest(BaseModel):
    model: str | None = Field(default=None, description="Name, or name@version.")
    include: list[str] = Field(
        default=[], description="What else to answer; `include` of the model says what there is."
    )
    graph: GraphBody


class ModelName(BaseModel):
    name: str
    version: str


class Reference(BaseModel):
    vertices: int
    href: str


class Candidates(BaseModel):
    index: list[list[int]]
    confidence: list[list[float]]


class Segments(BaseModel):
    names: list[str]
    of_vertex: list[int] = Field(description="Which of the names each posted vertex belongs to.")


class Landmark(BaseModel):
    vertex: int = Field(description="The nearest posted vertex.")
    position: list[float] = Field(description="[x, y, z] on the posted mesh.")
    confidence: float


class Points(BaseModel):
    face: list[int] = Field(description="A face of the other mesh, -1 where there is none.")
    barycentric: list[list[float]] = Field(description="How much of each corner of that face.")


class Reverse(Points):
    vertex: list[int] = Field(description="The nearest posted vertex, -1 where there is none.")
    confidence: list[float]


class Prediction(BaseModel):
    model: ModelName
    request_id: str
    timings_ms: dict[str, float] = Field(description="decode, queue, run and encode.")
    warning: str | None = Field(
        default=None, description="Only when the model does not seem to know what was posted."
    )


class Correspondence(Prediction):
    reference: Reference
    correspondence: list[int] = Field(description="Reference vertex of each vertex.")
    confidence: list[float]
    candidates: Candidates | None = Field(default=None, description="Only when top_k exceeds 1.")
    landmarks: dict[str, Landmark | None] | None = Field(
        default=None, description="With include: by name; null if that part is not on the mesh."
    )
    segments: Segments | None = Field(default=None, description="With include.")
    points: Points | None = Field(
        default=None, description="With include: the place on the reference of each posted vertex."
    )
    reverse: Reverse | None = Field(
        default=None,
        description="With include: the place on the posted mesh of each reference vertex.",
    )


class NodeLabels(Prediction):
    labels: list[int]
    names: list[str] | None = None
    confidence: list[float]
    probabilities: list[list[float]] | None = Field(
        default=None, description="With include=probabilities."
    )


class GraphLabel(Prediction):
    label: int
    name: str | None = None
    confidence: float
    probabilities: list[float]
    graph: dict[str, Any] | None = Field(default=None, description="With include=graph.")


class FieldProblem(BaseModel):
    path: str
    message: str


class ProblemBody(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[FieldProblem] | None = None
