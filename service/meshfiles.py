"""Mesh files to vertices and faces: PLY, OBJ, OFF, STL and binary glTF, read by trimesh."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.errors import Invalid, TooLarge

MEDIA_TYPES = {
    "model/ply": "ply",
    "application/ply": "ply",
    "application/x-ply": "ply",
    "model/obj": "obj",
    "application/x-tgif": "obj",
    "model/off": "off",
    "application/x-off": "off",
    "model/stl": "stl",
    "application/sla": "stl",
    "application/vnd.ms-pki.stl": "stl",
    "model/gltf-binary": "glb",
}
# A comment begins with # and ends with its line: were the two allowed to overlap, the time to find
# that a file does not match would double with each comment.
_OFF_COUNTS = re.compile(rb"\s*[STCN4n]*OFF\s+(?:#[^\n]*\n\s*)*(\d{1,18})\s+(\d{1,18})")
_TRIANGLES = re.compile(
    rb"ply\nformat binary_little_endian 1\.0\n(?:comment [^\n]*\n)*element vertex (\d{1,9})\n"
    rb"property float x\nproperty float y\nproperty float z\nelement face (\d{1,9})\n"
    rb"property list uchar int vertex_ind(?:ices|ex)\nend_header\n"
)
FORMATS = ("ply", "obj", "off", "stl", "glb")
_MOST_PARTS = 256  # trimesh joins parts one by one, each along all nodes above it
_MOST_NODES = 2048


def read_mesh(
    data: bytes, kind: str, max_vertices: int, max_faces: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Vertices [V, 3] in the order of the file and faces [F, 3]; quads become triangles."""
    claimed = _claims(data, kind)
    _check_sizes(claimed, max_vertices, max_faces)
    if kind == "ply" and (plain := _read_triangles(data)) is not None:
        return plain
    if kind == "obj":
        # trimesh gives every material a mesh of its own, each with all vertices of the file
        data = data.replace(b"usemtl ", b"#")
    import trimesh  # here, for it takes a while and many services never see another file

    try:
        loaded: Any = trimesh.load(
            io.BytesIO(data),
            file_type=kind,
            process=False,
            maintain_order=True,
            skip_materials=True,
            fix_texture=False,
        )
        mesh = loaded.to_mesh() if isinstance(loaded, trimesh.Scene) else loaded
        if kind == "stl" and isinstance(mesh, trimesh.Trimesh):
            mesh.merge_vertices()  # the format repeats each vertex in each of its triangles
        vertices = np.asarray(mesh.vertices, dtype=np.float64)
        faces = np.asarray(getattr(mesh, "faces", np.empty((0, 3))), dtype=np.int64)
    except MemoryError:
        raise TooLarge(f"the {kind.upper()} file needs too much memory", path="mesh") from None
    except Exception:  # a parser may fail in any way on bytes it does not expect
        why = _diagnose(data, kind)
        raise Invalid(
            f"the body is not a readable {kind.upper()} file: {why}", path="mesh"
        ) from None
    if kind == "stl" and not vertices.size:
        why = _diagnose(data, kind)
        raise Invalid(f"the body is not a readable STL file: {why}", path="mesh")
    if kind == "obj" and claimed[0] and not claimed[1]:  # of which trimesh makes nothing at all
        raise Invalid("the OBJ file holds no faces", path="mesh.faces")
    if vertices.ndim != 2 or vertices.shape[1] != 3 or not len(vertices):
        raise Invalid(f"the {kind.upper()} file holds no vertices", path="mesh.vertices")
    if faces.ndim != 2 or faces.shape[1] != 3 or not len(faces):
        raise Invalid(f"the {kind.upper()} file holds no faces", path="mesh.faces")
    _check_sizes((len(vertices), len(faces)), max_vertices, max_faces)
    return vertices, faces


def read_exported(data: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    """A PLY file of a bundle, whose hash was checked: it may have any size."""
    return read_mesh(data, "ply", 1 << 31, 1 << 31)


def _read_triangles(data: bytes) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The commonest PLY, binary floats and triangles, without trimesh; None for any other."""
    found = _TRIANGLES.match(data)
    if found is None:
        return None
    count, faces = int(found[1]), int(found[2])
    row = np.dtype([("corners", "u1"), ("vertex", "<i4", 3)])
    if not count or not faces or len(data) != found.end() + 12 * count + row.itemsize * faces:
        return None
    vertices = np.frombuffer(data, "<f4", 3 * count, found.end()).reshape(count, 3)
    rows = np.frombuffer(data, row, faces, found.end() + vertices.nbytes)
    if (rows["corners"] != 3).any():
        return None
    return vertices.astype(np.float64), rows["vertex"].astype(np.int64)


def _diagnose(data: bytes, kind: str) -> str:
    """Why a file cannot be read, as far as its first bytes tell; a parser's own words tell less."""
    begins = {"ply": b"ply", "glb": b"glTF"}.get(kind)
    if begins and not data.startswith(begins):
        return f"it does not begin with '{begins.decode()}'"
    if kind == "ply" and b"end_header" not in data[:65536]:
        return "its header has no end_header"
    if kind == "stl" and data[:5].lower() != b"solid":
        need = 84 + 50 * _claims(data, kind)[1]
        if len(data) < need:
            return f"by its header it has {need} bytes, but {len(data)} came"
    if kind == "off" and not re.match(rb"\s*(?:ST|C|N|4|n)*OFF", data[:4096]):
        return "it does not begin with 'OFF'"
    if kind == "obj" and (bad := _bad_face(data)):
        return bad
    return "it is cut short, damaged, or not what its header says"


def _bad_face(data: bytes) -> str | None:
    """The first face of an OBJ file that names a vertex which is not there."""
    vertices = 0
    for number, line in enumerate(data.splitlines(), 1):
        words = line.split()
        vertices += words[:1] == [b"v"]
        if words[:1] != [b"f"]:
            continue
        for corner in words[1:]:
            name = corner.partition(b"/")[0]
            if not re.fullmatch(rb"-?\d{1,18}", name):
                return f"line {number}: a face must name vertices by number"
            if not 1 <= abs(int(name)) <= vertices:
                return f"line {number}: a face names vertex {int(name)} of {vertices}"
    return None


def _check_sizes(sizes: tuple[int, int], max_vertices: int, max_faces: int) -> None:
    vertices, faces = sizes
    if vertices > max_vertices:
        raise TooLarge(
            f"mesh.vertices must have at most {max_vertices} rows, got {vertices}",
            path="mesh.vertices",
        )
    if faces > max_faces:
        raise TooLarge(
            f"mesh.faces must have at most {max_faces} rows, got {faces}", path="mesh.faces"
        )


def _claims(data: bytes, kind: str) -> tuple[int, int]:
    """How many vertices and faces the file says it has, before anything is allocated for them."""
    if kind == "ply":
        header = data[:65536].partition(b"end_header")[0]
        return _ply_count(header, b"vertex"), _ply_count(header, b"face")
    if kind == "off":
        counts = _OFF_COUNTS.match(data[:4096])
        return (int(counts[1]), int(counts[2])) if counts else (0, 0)
    if kind == "obj":
        return data.count(b"\nv "), data.count(b"\nf ")
    if kind == "stl":
        if data[:5].lower() == b"solid" and b"facet" in data[:1024]:
            small = data.lower()
            _check_parts(small.count(b"endsolid"), _MOST_PARTS, "solids")
            return 0, small.count(b"endfacet")
        return 0, int.from_bytes(data[80:84], "little")
    return _glb_counts(data)


def _ply_count(header: bytes, element: bytes) -> int:
    found = re.search(rb"element\s+" + element + rb"\s+(\d{1,18})", header)
    return int(found[1]) if found else 0


def _glb_counts(data: bytes) -> tuple[int, int]:
    """Sizes from the glTF accessors, counted once per use of a mesh in the scene."""
    try:
        length = int.from_bytes(data[12:16], "little")
        tree = orjson.loads(data[20 : 20 + length])
        accessors = tree["accessors"]
        if any(accessor["count"] > 1 << 31 for accessor in accessors):
            return 1 << 31, 0
        nodes, meshes = tree.get("nodes", []), [mesh["primitives"] for mesh in tree["meshes"]]
        _check_parts(len(nodes), _MOST_NODES, "nodes")
        uses = [meshes[node["mesh"]] for node in nodes if "mesh" in node]
        for parts in (meshes, uses):
            _check_parts(sum(len(primitives) for primitives in parts), _MOST_PARTS, "parts")
        vertices = indices = 0
        for primitive in (primitive for primitives in uses for primitive in primitives):
            count = accessors[primitive["attributes"]["POSITION"]]["count"]
            vertices += count
            indices += accessors[primitive["indices"]]["count"] if "indices" in primitive else count
        return vertices, indices // 3
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        raise Invalid("the body is not a readable GLB file", path="mesh") from None


def _check_parts(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise TooLarge(f"the mesh must have at most {limit} {what}, got {count}", path="mesh")
