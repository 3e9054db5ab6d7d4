"""The mesh tab: files of every kind, partners, ways of showing, two meshes, errors."""

from __future__ import annotations

import io
import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh
from PIL import Image

FORMATS = ["ply", "obj", "stl", "off", "glb"]


def _sphere(shuffled: bool = False) -> Any:
    sphere = trimesh.creation.icosphere(2)  # 162 vertices, 320 faces
    if not shuffled:
        return sphere
    order = np.random.default_rng(3).permutation(len(sphere.vertices))
    place = np.argsort(order)
    return trimesh.Trimesh(sphere.vertices[order] * [1, 1, 1.7], place[sphere.faces], process=False)


def _upload(visit: Any, path: Path, slot: str = "a") -> None:
    visit.page.set_input_files(f"#mesh-file-{slot}", path)
    visit.page.wait_for_function(
        "([id, name]) => document.getElementById(id).textContent === name",
        arg=[f"title-{slot}", path.name],
    )
    visit.wait_for("mesh")


def _colours(picture: bytes, box: dict[str, float]) -> int:
    corners = (box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"])
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB").crop(corners))
    return len(np.unique(pixels.reshape(-1, 3), axis=0))


def test_sample_is_answered_and_drawn_beside_its_reference(visit: Callable[..., Any]) -> None:
    seen = visit(reduced_motion="no-preference", viewport={"width": 1280, "height": 800})
    seen.wait_for("mesh")
    assert "42 vertices · 80 faces" in seen.page.inner_text("#size-a")
    assert "toy-body" in seen.page.inner_text("#title-reference")
    assert re.search(r"run\s+[\d.]+ ms", seen.page.inner_text("#mesh-strip .times"))
    seen.page.wait_for_timeout(1200)  # the turn into place
    picture = seen.shoot("mesh")
    for frame in ("#frame-a", "#frame-reference"):
        assert _colours(picture, seen.page.locator(frame).bounding_box()) > 500, frame


def test_file_of_every_kind_keeps_its_vertices_and_faces(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    seen = visit()
    seen.wait_for("mesh")
    for kind in FORMATS:
        path = tmp_path / f"ball.{kind}"
        _sphere().export(path)
        _upload(seen, path)
        assert seen.page.inner_text("#size-a") == "162 vertices · 320 faces", kind
        assert f"@'ball.{kind}'" in seen.page.text_content("#mesh-strip code")


def test_text_ply_with_polygons_is_read(visit: Callable[..., Any], tmp_path: Path) -> None:
    header = "ply\nformat ascii 1.0\nelement vertex 5\nproperty double x\nproperty double y\n"
    header += "property double z\nproperty uchar red\nelement face 5\n"
    header += "property list uchar int vertex_indices\nend_header\n"
    corners = "0 0 0 9\n1 0 0 9\n1 1 0 9\n0 1 0 9\n0.5 0.5 1 9\n"
    (tmp_path / "tent.ply").write_text(
        header + corners + "4 0 3 2 1\n3 0 1 4\n3 1 2 4\n3 2 3 4\n3 3 0 4\n"
    )
    seen = visit()
    seen.wait_for("mesh")
    _upload(seen, tmp_path / "tent.ply")
    assert seen.page.inner_text("#size-a") == "5 vertices · 6 faces"


def test_vertex_number_shows_the_partner_the_service_gave(
    visit: Callable[..., Any], site: str, tmp_path: Path
) -> None:
    mesh = _sphere(shuffled=True)
    mesh.export(tmp_path / "shuffled.obj")
    body = {"mesh": {"vertices": mesh.vertices.tolist(), "faces": mesh.faces.tolist()}}
    request = urllib.request.Request(
        f"{site}v1/correspondence",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        partners = json.load(response)["correspondence"]
    seen = visit()
    seen.wait_for("mesh")
    _upload(seen, tmp_path / "shuffled.obj")
    for vertex in (0, 7, 161):
        seen.page.fill("#mesh-vertex", str(vertex))
        words = seen.page.inner_text("#mesh-partner").split()
        assert words[words.index("Posted") + 1] == f"#{vertex}"
        assert words[words.index("Reference") + 1] == f"#{partners[vertex]}"


def test_hover_marks_both_partners_and_says_how_sure(visit: Callable[..., Any]) -> None:
    seen = visit()
    seen.wait_for("mesh")
    assert seen.page.locator("#stage-overlay .ring").count() == 0
    frame = seen.page.locator("#frame-a").bounding_box()
    seen.page.mouse.move(frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2)
    seen.page.wait_for_selector("#stage-overlay .thread", state="attached")
    assert seen.page.locator("#stage-overlay .ring").count() == 2
    names = seen.page.locator("#stage-overlay .mark-name").all_text_contents()
    assert re.fullmatch(r"#\d+ · [<>\d. ]+ %", names[0]) and re.fullmatch(r"#\d+", names[1])
    assert re.search(
        r"Posted\s+#\d+\s+[<>\d. ]+ %\s+Reference\s+#\d+", seen.page.inner_text("#mesh-partner")
    )
    seen.shoot("mesh-hover")
    seen.page.mouse.move(5, 5)
    seen.page.wait_for_selector("#stage-overlay .thread", state="detached")


def _choose(visit: Any, model: str) -> None:
    visit.page.select_option("#mesh-model", model)
    visit.page.wait_for_function(
        "name => document.getElementById('title-reference').textContent.endsWith(name)", arg=model
    )
    visit.wait_for("mesh")


def test_each_way_of_showing_looks_different(visit: Callable[..., Any], tmp_path: Path) -> None:
    _sphere().export(tmp_path / "ball.ply")
    seen = visit()
    seen.wait_for("mesh")
    _choose(seen, "nearest")
    _upload(seen, tmp_path / "ball.ply")
    pictures = set()
    for way in ("correspondence", "confidence", "segments", "landmarks", "texture"):
        seen.page.check(f'input[name="show"][value="{way}"]', force=True)
        if way == "landmarks":
            seen.page.wait_for_selector("#stage-overlay .landmark", state="attached")
            assert seen.page.locator("#mesh-legend li").all_inner_texts() == ["top", "bottom"]
            names = seen.page.locator("#stage-overlay .landmark-name").all_text_contents()
            assert "top" in names
        if way == "segments":
            assert seen.page.locator("#mesh-legend li").all_inner_texts() == ["south", "north"]
        seen.page.wait_for_timeout(120)
        seen.shoot(f"mesh-{way}")
        pictures.add(seen.page.locator("#stage").screenshot())
    assert len(pictures) == 5


def test_second_mesh_is_reached_through_the_reference(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    _sphere(shuffled=True).export(tmp_path / "second.ply")
    seen = visit()
    seen.wait_for("mesh")
    _upload(seen, tmp_path / "second.ply", slot="b")
    assert seen.page.inner_text("#size-b") == "162 vertices · 320 faces"
    seen.page.fill("#mesh-vertex", "4")
    assert re.search(
        r"Posted\s+#4\s.*Reference\s+#\d+\s+Second\s+#\d+",
        seen.page.inner_text("#mesh-partner"),
        re.DOTALL,
    )
    seen.page.wait_for_selector("#stage-overlay .thread", state="attached")
    assert seen.page.locator("#stage-overlay .ring").count() == 3
    seen.shoot("mesh-second")
    seen.page.click("#mesh-remove")
    assert not seen.page.is_visible("#frame-b")


def test_what_a_reference_does_not_have_cannot_be_shown(visit: Callable[..., Any]) -> None:
    seen = visit()
    seen.wait_for("mesh")
    assert seen.page.input_value("#mesh-model") == "toy-body"  # the default of the service
    for way in ("segments", "landmarks"):
        assert seen.page.is_disabled(f'input[name="show"][value="{way}"]')
    assert not seen.page.is_visible("#mesh-refine")
    _choose(seen, "nearest")
    seen.page.check('input[name="show"][value="landmarks"]', force=True)
    _choose(seen, "toy-body")
    assert seen.page.is_checked('input[name="show"][value="correspondence"]')


def test_a_landmark_that_is_not_on_the_mesh_is_struck_out(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    whole = _sphere()
    north = whole.faces[whole.triangles[:, :, 2].min(1) > -0.1]
    half = trimesh.Trimesh(whole.vertices, north, process=False)
    half.remove_unreferenced_vertices()
    half.export(tmp_path / "half.ply")
    seen = visit()
    seen.wait_for("mesh")
    _choose(seen, "nearest")
    _upload(seen, tmp_path / "half.ply")
    seen.page.check('input[name="show"][value="landmarks"]', force=True)
    assert seen.page.locator("#mesh-legend .missing").all_inner_texts() == ["bottom"]
    top = int(trimesh.creation.icosphere(3).vertices[:, 2].argmax())
    seen.page.focus("#mesh-legend li:first-child button")
    words = seen.page.inner_text("#mesh-partner").split()
    assert words[words.index("Reference") + 1] == f"#{top}"
    seen.page.focus("#mesh-legend li:last-child button")
    assert re.search(r"Posted\s+none", seen.page.inner_text("#mesh-partner"))


def test_refining_asks_again_and_says_so_in_curl(visit: Callable[..., Any], tmp_path: Path) -> None:
    large = _sphere()
    large.apply_scale(1.2)
    large.export(tmp_path / "large.ply")
    seen = visit()
    seen.wait_for("mesh")
    _choose(seen, "nearest")
    _upload(seen, tmp_path / "large.ply")
    seen.page.check('input[name="show"][value="confidence"]', force=True)
    assert "include=landmarks,segments" in seen.page.text_content("#mesh-strip code")
    plain = seen.page.inner_text("#mesh-legend .note")
    with seen.page.expect_response("**/v1/correspondence*"):
        seen.page.check("#mesh-refine")
    seen.wait_for("mesh")
    assert seen.page.inner_text("#mesh-legend .note") != plain  # the toy is less sure then
    assert "refine=true" in seen.page.text_content("#mesh-strip code")


def test_a_mesh_the_model_does_not_know_is_warned_of(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    far = _sphere()
    far.apply_translation([9, 0, 0])
    far.export(tmp_path / "far.ply")
    seen = visit()
    seen.wait_for("mesh")
    _choose(seen, "nearest")
    assert not seen.page.is_visible("#mesh-strip .problem")
    _upload(seen, tmp_path / "far.ply")
    words = seen.page.inner_text("#mesh-strip .problem")
    assert "does not look like what the model" in words and "guess" in words
    seen.shoot("mesh-warning")


def test_both_shapes_turn_together(visit: Callable[..., Any]) -> None:
    seen = visit()
    seen.wait_for("mesh")
    before = [seen.page.locator(f).screenshot() for f in ("#frame-a", "#frame-reference")]
    seen.page.focus("#stage-canvas")
    for _ in range(3):
        seen.page.keyboard.press("ArrowRight")
    seen.page.wait_for_timeout(120)
    after = [seen.page.locator(f).screenshot() for f in ("#frame-a", "#frame-reference")]
    assert before[0] != after[0] and before[1] != after[1]


def test_bad_index_is_told_in_the_services_words(visit: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "bad.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n")
    seen = visit()
    seen.wait_for("mesh")
    seen.expected.append("status of 422")
    seen.page.set_input_files("#mesh-file-a", tmp_path / "bad.obj")
    seen.wait_for("mesh", "failed")
    words = seen.page.inner_text("#mesh-strip .problem")
    assert "422" in words
    assert "mesh.faces[0]" in words
    assert "request " in words
    seen.shoot("mesh-error")


def test_file_that_is_no_mesh_is_refused_before_it_is_sent(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "notes.ply").write_text("not a mesh")
    seen = visit()
    seen.wait_for("mesh")
    seen.page.set_input_files("#mesh-file-a", tmp_path / "notes.ply")
    seen.wait_for("mesh", "failed")
    assert "This is not a PLY file." in seen.page.inner_text("#mesh-strip .problem")


# every frame comes late, as it does where graphics are drawn without a GPU
LATE = """
  const real = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (call) => real(() => setTimeout(() => real(call), 60));
"""


@pytest.mark.slow
def test_mesh_of_a_hundred_thousand_vertices_is_answered_turned_and_hovered(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    trimesh.creation.icosphere(7).export(tmp_path / "large.ply")
    seen = visit()
    seen.wait_for("mesh")
    seen.page.add_init_script(LATE)
    seen.page.reload()
    seen.wait_for("mesh")
    _upload(seen, tmp_path / "large.ply")
    assert seen.page.inner_text("#size-a") == "163,842 vertices · 327,680 faces"
    seen.page.wait_for_selector('#stage[data-triangles="327760"]')  # the reference has 80
    seen.page.check("#mesh-turning")
    few = "() => +document.getElementById('stage').dataset.triangles < 30000"
    seen.page.wait_for_function(few)
    assert _colours(seen.shoot("mesh-large"), seen.page.locator("#frame-a").bounding_box()) > 500
    seen.page.uncheck("#mesh-turning")
    seen.page.wait_for_selector('#stage[data-triangles="327760"]')  # at rest, all of them again
    frame = seen.page.locator("#frame-a").bounding_box()
    seen.page.mouse.move(frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2)
    seen.page.wait_for_selector("#stage-overlay .ring", state="attached")


def test_a_mesh_is_sent_and_answered_in_binary(visit: Callable[..., Any]) -> None:
    seen = visit()
    seen.wait_for("mesh")
    with seen.page.expect_response("**/v1/correspondence*") as answered:
        seen.page.click("#mesh-sample")
    request = answered.value.request
    assert request.headers["content-type"] == "model/ply"
    assert answered.value.headers["content-type"] == "application/octet-stream"


def test_segments_meet_in_a_line_and_are_not_blended(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    _sphere().export(tmp_path / "ball.ply")
    seen = visit(color_scheme="light")
    seen.wait_for("mesh")
    _choose(seen, "nearest")
    _upload(seen, tmp_path / "ball.ply")
    seen.page.check('input[name="show"][value="segments"]', force=True)
    dots = seen.page.locator("#mesh-legend .dot")
    colours = [dots.nth(i).evaluate("(e) => getComputedStyle(e).backgroundColor") for i in (0, 1)]
    south, north = (np.array(re.findall(r"\d+", colour), float) for colour in colours)
    seen.page.focus("#stage-canvas")
    for _ in range(6):  # until both halves are in sight
        seen.page.keyboard.press("ArrowRight")
    seen.page.wait_for_timeout(200)
    shot = Image.open(io.BytesIO(seen.page.locator("#frame-a").screenshot())).convert("RGB")
    height, width = shot.height, shot.width
    middle = shot.crop((width // 2 - 60, height // 2 - 60, width // 2 + 60, height // 2 + 60))
    pixels = np.asarray(middle, float).reshape(-1, 3)
    # light changes how bright a colour is, not which way it points
    way = pixels / np.linalg.norm(pixels, axis=1, keepdims=True)
    near = [way @ (colour / np.linalg.norm(colour)) > 0.995 for colour in (south, north)]
    assert min(near[0].sum(), near[1].sum()) > 1000
    assert (near[0] | near[1]).mean() > 0.97
