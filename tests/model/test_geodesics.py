import numpy as np
import pytest

from model.datasets.files import InvalidData
from model.geodesics import Surface, princeton_curve

CORNERS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1], [5, 5, 5]], np.float32)


def test_a_geodesic_on_a_flat_square_is_straight():
    u, v = np.meshgrid(np.arange(4.0), np.arange(4.0))
    vertices = np.stack([u.ravel(), v.ravel(), 0 * u.ravel()], 1).astype(np.float32)
    quad = np.array([a for a in range(12) if a % 4 < 3])
    faces = np.concatenate(
        [np.stack([quad, quad + 1, quad + 5], 1), np.stack([quad, quad + 5, quad + 4], 1)]
    )
    surface = Surface(vertices, faces)
    assert surface.distance(3, 12) == pytest.approx(3 * 2**0.5)
    assert surface.diameter == pytest.approx(3 * 2**0.5)
    found = np.arange(16)
    found[3] = 12
    errors = surface.errors(found)
    assert errors[3] == pytest.approx(1) and errors.sum() == errors[3]
    assert princeton_curve(errors, np.array([0, 0.5, 1.1])) == pytest.approx([93.75, 93.75, 100])


@pytest.mark.parametrize(
    "faces, message",
    [
        ([[0, 1, 2], [0, 1, 3], [0, 1, 4]], r"manifold reference: edge \(0, 1\) has 3 faces"),
        ([[0, 1, 2], [0, 2, 3], [0, 3, 4]], "one piece, got 2 pieces"),
    ],
)
def test_what_is_no_surface_is_refused(faces: list[list[int]], message: str):
    with pytest.raises(InvalidData, match=message):
        Surface(CORNERS, np.array(faces))
