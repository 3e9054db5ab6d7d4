"""The page's sources: types hold, and the lock file names no host."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.app import VIEWER

SOURCES = VIEWER.parent


def test_types_hold() -> None:
    compiler = SOURCES / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        pytest.skip("the page was built elsewhere: its TypeScript compiler is not here")
    done = subprocess.run([compiler, "--noEmit"], cwd=SOURCES, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_lock_file_pins_every_package_by_hash_and_names_no_host() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages["node_modules/three"]["version"] == "0.187.0"
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not any("resolved" in entry for entry in packages.values())


def test_every_source_says_in_one_line_what_it_is_for() -> None:
    for path in (SOURCES / "src").rglob("*.ts"):
        first = Path(path).read_text().splitlines()[0]
        assert first.startswith("// ") and first.endswith("."), path.name


# a bumpy sheet of 200,000 triangles, and how many boxes of the tree rays through it look at
PICKING = """
import { build } from "esbuild";
const made = await build({
  entryPoints: ["src/mesh/bvh.ts"], bundle: true, format: "esm", write: false, logLevel: "error" });
const url = "data:text/javascript," + encodeURIComponent(made.outputFiles[0].text);
const { buildBvh, castRay } = await import(url);
const side = 317, vertices = new Float32Array(3 * side * side), faces = [];
for (let i = 0; i < side * side; i++) {
  const [x, y] = [i % side, Math.floor(i / side)];
  vertices.set([x, y, Math.sin(x / 9) + Math.cos(y / 7)], 3 * i);
  if (x && y) faces.push(i, i - 1, i - side, i - 1, i - side - 1, i - side);
}
const mesh = { vertices, faces: Uint32Array.from(faces) };
const bvh = buildBvh(mesh);
let reads = 0;
const boxes = new Proxy(bvh.boxes, { get: (array, key) => (reads++, array[key]) });
const rays = Array.from({ length: 50 }, (_, i) => [6.1 * i + 1.3, 5.3 * i + 2.2]);
const hits = rays.filter(([x, y]) => {
  const hit = castRay(mesh, { ...bvh, boxes }, [x, y, 50], [0, 0, -1]);
  return hit && Math.hypot(vertices[3 * hit.vertex] - x, vertices[3 * hit.vertex + 1] - y) < 1.5;
});
console.log(JSON.stringify([faces.length / 3, hits.length, reads / 6 / rays.length]));
"""


def test_pointing_at_a_large_mesh_looks_at_few_of_its_triangles() -> None:
    node = shutil.which("node", path=f"{os.environ['PATH']}:{Path(sys.executable).parent}")
    if node is None or not (SOURCES / "node_modules" / "esbuild").exists():
        pytest.skip("the page was built elsewhere: node and esbuild are not here")
    done = subprocess.run(
        [node, "--input-type=module", "--eval", PICKING],
        cwd=SOURCES,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    triangles, hits, looked_at = json.loads(done.stdout)
    assert triangles > 199_000
    assert hits == 50
    assert looked_at < 200


def _luminance(colour: str) -> float:
    """WCAG 2's relative luminance of "#rrggbb"."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_stand_out_from_what_they_are_written_on(theme: str) -> None:
    style = (SOURCES / "src" / "style.css").read_text()
    tokens = {
        name: light if theme == "light" else dark
        for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", style)
    }
    pairs = [(ink, ground) for ink in ("ink", "soft", "faint", "accent", "danger")
             for ground in ("ground", "surface", "raised")]  # fmt: skip
    pairs += [("on-accent", "accent"), ("danger", "danger-soft"), ("ink", "note-soft")]
    for ink, ground in pairs:
        bright, dim = sorted((_luminance(tokens[ink]), _luminance(tokens[ground])), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, f"{ink} on {ground}"
