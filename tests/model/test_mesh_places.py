"""Places on meshes: nearest points against trimesh's, maps there and back, and what is missing."""

import numpy as np
import pytest
import trimesh

from model.places import Places, Shape, find_on, place_between

TRIANGLE = Shape(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.array([[0, 1, 2]]))


@pytest.mark.parametrize(
    "point, barycentric, distance",
    [
        ((0.25, 0.25, 2), (0.5, 0.25, 0.25), 2),
        ((0.5, -1, 0), (0.5, 0.5, 0), 1),
        ((-1, 0.5, 0), (0.5, 0, 0.5), 1),
        ((1, 1, 0), (0, 0.5, 0.5), np.sqrt(0.5)),
        ((-1, -1, 0), (1, 0, 0), np.sqrt(2)),
        ((3, 0, 0), (0, 1, 0), 2),
        ((0, 3, 0), (0, 0, 1), 2),
    ],
)
def test_the_nearest_place_on_a_triangle(point, barycentric, distance):
    places, away = TRIANGLE.nearest(np.array([point], float), np.array([[0, -1]]))
    assert places.face.tolist() == [0]
    assert places.barycentric[0] == pytest.approx(barycentric) and away[0] == pytest.approx(
        distance
    )


@pytest.mark.parametrize("corners", [[[0, 0, 0]] * 3, [[0, 0, 0], [1, 0, 0], [2, 0, 0]]])
def test_a_triangle_without_area_has_nearest_places_too(corners):
    flat = Shape(np.array(corners, float), np.array([[0, 1, 2]]))
    places, away = flat.nearest(np.array([[0.0, 0, 3]]), np.array([[0]]))
    assert flat.at(places)[0] == pytest.approx([0, 0, 0]) and away[0] == pytest.approx(3)


def test_nearest_places_are_those_of_trimesh():
    rng = np.random.default_rng(0)
    shape = Shape(
        rng.normal(size=(60, 3)), rng.permuted(np.tile(np.arange(60), (50, 1)), axis=1)[:, :3]
    )
    points, faces = rng.normal(size=(40, 3)), rng.integers(-1, 50, (40, 7))
    faces[:, 0] = 1  # at least one
    places, distance = shape.nearest(points, faces)
    for n, point in enumerate(points):
        own = faces[n][faces[n] >= 0]
        triangles = shape.vertices[shape.faces[own]]
        closest = trimesh.triangles.closest_point(triangles, np.tile(point, (len(own), 1)))
        assert distance[n] == pytest.approx(np.linalg.norm(closest - point, axis=1).min())
    assert np.linalg.norm(shape.at(places) - points, axis=1) == pytest.approx(distance)


def test_a_point_without_faces_is_nowhere():
    places, away = TRIANGLE.nearest(np.zeros((2, 3)), np.array([[0], [-1]]))
    assert places.face.tolist() == [0, -1] and np.isinf(away[1])
    assert np.isnan(TRIANGLE.at(places)[1]).all()


def test_candidates_blend_when_near_and_not_across_the_body():
    ball = trimesh.creation.icosphere(4)
    reference = Shape(ball.vertices, ball.faces)
    a, b, c = ball.faces[0]
    far = int(np.argmin(ball.vertices @ ball.vertices[a]))
    places = place_between(
        reference, np.array([[a, b, c, far], [a, far, b, c]]), np.array([[0.5, 0.5, 0.1, 0.1]] * 2)
    )
    between, lone = reference.at(places)
    assert between == pytest.approx((ball.vertices[a] + ball.vertices[b]) / 2, abs=1e-6)
    assert lone == pytest.approx(ball.vertices[a])


def test_equal_candidates_mean_the_first():
    ball = trimesh.creation.icosphere(2)
    reference = Shape(ball.vertices, ball.faces)
    point = reference.at(place_between(reference, np.array([[5, 9]]), np.array([[0.3, 0.3]])))
    assert point[0] == pytest.approx(ball.vertices[5])


def other_ball(count: int = 24) -> Shape:
    """A ball of quite another triangulation."""
    ball = trimesh.creation.uv_sphere(count=[count, count])
    return Shape(ball.vertices, ball.faces)


def test_the_way_back_leads_to_the_same_points():
    reference = Shape(*_arrays(trimesh.creation.icosphere(3)))
    posted = other_ball()
    sure = np.full(len(posted.vertices), 0.9)
    found = find_on(posted, posted.vertices, sure, reference, np.arange(642))
    back = posted.at(found.places)
    assert np.linalg.norm(back - reference.vertices, axis=1).max() < 0.02
    assert found.confidence.min() > 0.7 and found.confidence.max() <= 0.9
    near = posted.vertices[found.vertex]
    assert (np.linalg.norm(near - back, axis=1) < 0.2).all()


def test_what_is_not_on_the_mesh_is_nowhere():
    reference = Shape(*_arrays(trimesh.creation.icosphere(3)))
    whole = other_ball()
    upper = whole.faces[(whole.vertices[whole.faces][:, :, 2] > 0).all(1)]
    posted = Shape(whole.vertices, upper)
    found = find_on(
        posted, posted.vertices, np.ones(len(posted.vertices)), reference, np.arange(642)
    )
    height = reference.vertices[:, 2]
    assert (found.places.face[height > 0.15] >= 0).all()
    below = height < -0.2
    assert (found.places.face[below] == -1).all() and (found.vertex[below] == -1).all()
    assert not found.confidence[below].any() and not found.places.barycentric[below].any()


def test_a_vertex_sent_across_the_body_does_not_catch_what_lies_between():
    """Its faces span the ball; places must be taken from the honest faces."""
    reference = Shape(*_arrays(trimesh.creation.icosphere(3)))
    posted = other_ball()
    image = posted.vertices.copy()
    wrong = int(np.argmax(image[:, 0]))
    image[wrong] *= -1
    found = find_on(posted, image, np.ones(len(image)), reference, np.arange(642))
    away = np.linalg.norm(posted.at(found.places) - reference.vertices, axis=1)
    assert np.nanmax(away[reference.vertices[:, 0] < 0.9]) < 0.1


def test_a_vertex_of_very_many_faces_takes_no_more_memory_than_others():
    fan = np.stack([np.zeros(5000, int), np.arange(1, 5001), np.arange(2, 5002)], 1)
    angle = np.linspace(0, 6, 5001)
    rim = np.stack([np.cos(angle), np.sin(angle), 0 * angle], 1)
    assert Shape(np.concatenate([[[0, 0, 0]], rim]), fan).around.shape[1] <= 24


def test_nothing_known_is_nothing_found():
    posted = other_ball()
    nowhere = np.full((len(posted.vertices), 3), np.nan)
    found = find_on(posted, nowhere, np.ones(len(nowhere)), posted, np.arange(3))
    assert found.vertex.tolist() == [-1, -1, -1] and not found.confidence.any()
    assert isinstance(found.places, Places)


def _arrays(mesh: trimesh.Trimesh) -> tuple[np.ndarray, np.ndarray]:
    return mesh.vertices, mesh.faces


def test_a_mesh_that_repeats_its_vertices_is_found_like_one_that_does_not():
    reference = Shape(*_arrays(trimesh.creation.icosphere(3)))
    posted = other_ball()
    corners = posted.vertices[posted.faces].reshape(-1, 3)
    split = Shape(corners, np.arange(len(corners)).reshape(-1, 3))
    found = find_on(split, split.vertices, np.ones(len(corners)), reference, np.arange(642))
    joined = find_on(
        posted, posted.vertices, np.ones(len(posted.vertices)), reference, np.arange(642)
    )
    assert split.at(found.places) == pytest.approx(posted.at(joined.places), abs=1e-9)
