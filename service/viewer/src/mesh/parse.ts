// Mesh files to arrays, keeping the vertex order of the file so that indices mean the same to the service.

import { parseGlb } from "./glb";
import { parsePly } from "./ply";
import { weld } from "./weld";

export interface Mesh {
  vertices: Float32Array; // [V * 3]
  faces: Uint32Array; // [F * 3]
}

export const EXTENSIONS = ["ply", "obj", "stl", "off", "glb", "json"] as const;

/** The mesh in a file, whose format is told by its name. */
export function parseMesh(name: string, buffer: ArrayBuffer): Mesh {
  const extension = name.toLowerCase().split(".").pop() ?? "";
  switch (extension) {
    case "ply":
      return parsePly(buffer);
    case "obj":
      return parseObj(text(buffer));
    case "stl":
      return parseStl(buffer);
    case "off":
      return parseOff(text(buffer));
    case "glb":
      return parseGlb(buffer);
    case "json":
      return parseJson(text(buffer));
    default:
      throw new Error(`“${name}” is not one of ${EXTENSIONS.join(", ").toUpperCase()}.`);
  }
}

export function text(buffer: ArrayBuffer): string {
  return new TextDecoder().decode(buffer);
}

/** A polygon as a fan of triangles around its first corner. */
export function pushFan(faces: number[], corners: ArrayLike<number>): void {
  for (let i = 2; i < corners.length; i++) faces.push(corners[0]!, corners[i - 1]!, corners[i]!);
}

function parseObj(source: string): Mesh {
  const vertices: number[] = [];
  const faces: number[] = [];
  for (const line of lines(source)) {
    if (line.startsWith("v ")) {
      const [, x, y, z] = line.split(/\s+/);
      vertices.push(Number(x), Number(y), Number(z));
    } else if (line.startsWith("f ")) {
      const count = vertices.length / 3;
      const corners = line
        .split(/\s+/)
        .slice(1)
        .map((corner) => parseInt(corner, 10)) // "7/1/3" → 7
        .map((index) => (index < 0 ? count + index : index - 1)); // negative counts from the end
      pushFan(faces, corners);
    }
  }
  return finish("OBJ", vertices, faces);
}

function parseOff(source: string): Mesh {
  const tokens = lines(source)
    .map((line) => line.split("#")[0]!.trim())
    .filter(Boolean);
  const first = tokens.shift() ?? "";
  const header = /^(ST)?(C)?(N)?OFF\b\s*(.*)$/.exec(first);
  if (!header) throw new Error("This OFF file does not begin with “OFF”.");
  const counts = header[4] || tokens.shift() || "";
  const [numVertices = 0, numFaces = 0] = counts.split(/\s+/).map(Number);
  if (tokens.length < numVertices + numFaces) throw new Error("This OFF file ends too early.");
  const vertices: number[] = [];
  const faces: number[] = [];
  for (let i = 0; i < numVertices; i++) {
    const [x, y, z] = tokens[i]!.split(/\s+/);
    vertices.push(Number(x), Number(y), Number(z));
  }
  for (let i = 0; i < numFaces; i++) {
    const numbers = tokens[numVertices + i]!.split(/\s+/).map(Number);
    pushFan(faces, numbers.slice(1, 1 + numbers[0]!));
  }
  return finish("OFF", vertices, faces);
}

function parseStl(buffer: ArrayBuffer): Mesh {
  const view = new DataView(buffer);
  const count = buffer.byteLength >= 84 ? view.getUint32(80, true) : 0;
  const soup: number[] = [];
  if (count > 0 && buffer.byteLength === 84 + 50 * count) {
    for (let face = 0; face < count; face++) {
      for (let i = 0; i < 9; i++) soup.push(view.getFloat32(84 + 50 * face + 12 + 4 * i, true));
    }
  } else {
    const corner = /\bvertex\s+(\S+)\s+(\S+)\s+(\S+)/g;
    for (const [, x, y, z] of text(buffer).matchAll(corner)) {
      soup.push(Number(x), Number(y), Number(z));
    }
  }
  const corners = Uint32Array.from({ length: soup.length / 3 }, (_, i) => i);
  const mesh = weld({ vertices: Float32Array.from(soup), faces: corners });
  return finish("STL", mesh.vertices, mesh.faces);
}

function parseJson(source: string): Mesh {
  const body = JSON.parse(source) as { mesh?: unknown; vertices?: unknown; faces?: unknown };
  const { vertices, faces } = (body.mesh ?? body) as { vertices?: unknown; faces?: unknown };
  if (!Array.isArray(vertices) || !Array.isArray(faces)) {
    throw new Error("This JSON holds no “vertices” and “faces”.");
  }
  return finish("JSON", vertices.flat(), faces.flat());
}

export function finish(format: string, vertices: ArrayLike<number>, faces: ArrayLike<number>): Mesh {
  if (vertices.length === 0) throw new Error(`This ${format} file holds no vertices.`);
  if (faces.length === 0) throw new Error(`This ${format} file holds no faces.`);
  return { vertices: Float32Array.from(vertices), faces: Uint32Array.from(faces) };
}

function lines(source: string): string[] {
  return source.split(/\r?\n/).map((line) => line.trim());
}
