// A mesh made ready to draw: normals, a picking tree, its centre and size.

import { buildBvh, type Bvh } from "./bvh";
import { coarseFaces } from "./coarse";
import type { Mesh } from "./parse";

export interface Shape extends Mesh {
  normals: Float32Array; // [V * 3]
  bvh: Bvh;
  drawn: Uint32Array; // the faces as the picking tree sorts them: neighbours share vertices just transformed
  coarse: Uint32Array | null; // fewer faces over the same vertices, where there are very many
  centre: [number, number, number];
  size: number; // 0.4 √area: a body keeps its size when it moves, unlike its bounding box
}

/** null when the mesh cannot be drawn: an index out of range or a coordinate that is no number. */
export function prepareShape(mesh: Mesh): Shape | null {
  const count = mesh.vertices.length / 3;
  if (mesh.faces.length % 3 !== 0 || mesh.vertices.length % 3 !== 0) return null;
  if (mesh.faces.some((i) => i >= count) || !mesh.vertices.every(Number.isFinite)) return null;
  const bvh = buildBvh(mesh);
  const total = area(mesh);
  return {
    ...mesh,
    normals: vertexNormals(mesh),
    bvh,
    drawn: sortFaces(mesh.faces, bvh.order),
    coarse: coarseFaces(mesh, total),
    centre: middle(mesh.vertices),
    size: 0.4 * Math.sqrt(total) || 1,
  };
}

function sortFaces(faces: Uint32Array, order: Uint32Array): Uint32Array {
  const sorted = new Uint32Array(faces.length);
  order.forEach((face, i) => {
    for (let corner = 0; corner < 3; corner++) sorted[3 * i + corner] = faces[3 * face + corner]!;
  });
  return sorted;
}

/** Area-weighted means of the faces around each vertex. */
function vertexNormals({ vertices, faces }: Mesh): Float32Array {
  const normals = new Float32Array(vertices.length);
  for (let i = 0; i < faces.length; i += 3) {
    const cross = crossOfSides(vertices, faces, i);
    for (let corner = 0; corner < 3; corner++) {
      for (let axis = 0; axis < 3; axis++) normals[3 * faces[i + corner]! + axis]! += cross[axis]!;
    }
  }
  for (let i = 0; i < normals.length; i += 3) {
    const length = Math.hypot(normals[i]!, normals[i + 1]!, normals[i + 2]!) || 1;
    for (let axis = 0; axis < 3; axis++) normals[i + axis]! /= length;
  }
  return normals;
}

function middle(vertices: Float32Array): [number, number, number] {
  const low = [Infinity, Infinity, Infinity];
  const high = [-Infinity, -Infinity, -Infinity];
  vertices.forEach((value, i) => {
    low[i % 3] = Math.min(low[i % 3]!, value);
    high[i % 3] = Math.max(high[i % 3]!, value);
  });
  return low.map((value, axis) => (value + high[axis]!) / 2) as [number, number, number];
}

function area({ vertices, faces }: Mesh): number {
  let area = 0;
  for (let i = 0; i < faces.length; i += 3) area += 0.5 * Math.hypot(...crossOfSides(vertices, faces, i));
  return area;
}

/** Perpendicular to a triangle, and as long as twice its area. */
function crossOfSides(vertices: Float32Array, faces: Uint32Array, at: number): [number, number, number] {
  const [a, b, c] = [3 * faces[at]!, 3 * faces[at + 1]!, 3 * faces[at + 2]!];
  const [ax, ay, az] = [vertices[a]!, vertices[a + 1]!, vertices[a + 2]!];
  const [ux, uy, uz] = [vertices[b]! - ax, vertices[b + 1]! - ay, vertices[b + 2]! - az];
  const [vx, vy, vz] = [vertices[c]! - ax, vertices[c + 1]! - ay, vertices[c + 2]! - az];
  return [uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx];
}
