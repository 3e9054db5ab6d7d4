// A bounding-volume tree over triangles, so that one hover costs microseconds on a 100,000-vertex mesh.

import type { Mesh } from "./parse";

export interface Bvh {
  boxes: Float32Array; // [nodes * 6] minimum and maximum corner
  links: Int32Array; // [nodes * 2] inner: left child, right child; leaf: ~first triangle, end
  order: Uint32Array; // triangles, sorted so that each leaf is one run
}

export interface Hit {
  face: number;
  distance: number;
  vertex: number; // the corner of the face nearest to the hit
}

const LEAF = 6;

export function buildBvh({ vertices, faces }: Mesh): Bvh {
  const count = faces.length / 3;
  const centres = new Float32Array(3 * count);
  for (let face = 0; face < count; face++) {
    for (let axis = 0; axis < 3; axis++) {
      for (let corner = 0; corner < 3; corner++) {
        centres[3 * face + axis]! += vertices[3 * faces[3 * face + corner]! + axis]! / 3;
      }
    }
  }
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  const boxes: number[] = [];
  const links: number[] = [];

  const build = (start: number, end: number): number => {
    const node = links.length / 2;
    links.push(0, 0);
    boxes.push(...boundsOfFaces(vertices, faces, order, start, end));
    if (end - start <= LEAF) {
      links[2 * node] = ~start;
      links[2 * node + 1] = end;
      return node;
    }
    const middle = split(centres, order, start, end);
    links[2 * node] = build(start, middle);
    links[2 * node + 1] = build(middle, end);
    return node;
  };
  build(0, count);
  return { boxes: Float32Array.from(boxes), links: Int32Array.from(links), order };
}

type Box = [number, number, number, number, number, number];

function boundsOfFaces(
  vertices: Float32Array,
  faces: Uint32Array,
  order: Uint32Array,
  start: number,
  end: number,
): Box {
  const box: Box = [Infinity, Infinity, Infinity, -Infinity, -Infinity, -Infinity];
  for (let i = start; i < end; i++) {
    for (let corner = 0; corner < 3; corner++) {
      const at = 3 * faces[3 * order[i]! + corner]!;
      for (let axis = 0; axis < 3; axis++) {
        const value = vertices[at + axis]!;
        if (value < box[axis]!) box[axis] = value;
        if (value > box[axis + 3]!) box[axis + 3] = value;
      }
    }
  }
  return box;
}

/** Sorts a run around the middle of its widest axis; a run that will not part is cut in half. */
function split(centres: Float32Array, order: Uint32Array, start: number, end: number): number {
  const low = [Infinity, Infinity, Infinity];
  const high = [-Infinity, -Infinity, -Infinity];
  for (let i = start; i < end; i++) {
    for (let axis = 0; axis < 3; axis++) {
      const value = centres[3 * order[i]! + axis]!;
      low[axis] = Math.min(low[axis]!, value);
      high[axis] = Math.max(high[axis]!, value);
    }
  }
  const widths = high.map((value, axis) => value - low[axis]!);
  const axis = widths.indexOf(Math.max(...widths));
  const threshold = (low[axis]! + high[axis]!) / 2;
  let left = start;
  let right = end - 1;
  while (left <= right) {
    if (centres[3 * order[left]! + axis]! < threshold) left++;
    else {
      const swapped = order[left]!;
      order[left] = order[right]!;
      order[right--] = swapped;
    }
  }
  return left === start || left === end ? (start + end) >> 1 : left;
}

type Triple = [number, number, number];

/** The nearest triangle along a ray, seen from either side. */
export function castRay(mesh: Mesh, bvh: Bvh, origin: Triple, direction: Triple): Hit | null {
  const inverse: Triple = [1 / direction[0], 1 / direction[1], 1 / direction[2]];
  const stack = [0];
  let best = Infinity;
  let bestFace = -1;
  while (stack.length > 0) {
    const node = stack.pop()!;
    if (enter(bvh.boxes, 6 * node, origin, inverse) >= best) continue;
    const left = bvh.links[2 * node]!;
    const right = bvh.links[2 * node + 1]!;
    if (left >= 0) {
      stack.push(left, right);
      continue;
    }
    for (let i = ~left; i < right; i++) {
      const distance = hitTriangle(mesh, bvh.order[i]!, origin, direction);
      if (distance < best) {
        best = distance;
        bestFace = bvh.order[i]!;
      }
    }
  }
  if (bestFace < 0) return null;
  return { face: bestFace, distance: best, vertex: nearestCorner(mesh, bestFace, origin, direction, best) };
}

function enter(boxes: Float32Array, at: number, origin: Triple, inverse: Triple): number {
  let near = 0;
  let far = Infinity;
  for (let axis = 0; axis < 3; axis++) {
    const a = (boxes[at + axis]! - origin[axis]!) * inverse[axis]!;
    const b = (boxes[at + axis + 3]! - origin[axis]!) * inverse[axis]!;
    if (Number.isNaN(a) || Number.isNaN(b)) continue; // along a side of the box, within it as far as this axis tells
    near = Math.max(near, Math.min(a, b));
    far = Math.min(far, Math.max(a, b));
  }
  return near <= far ? near : Infinity;
}

/** Möller and Trumbore's test; Infinity for a miss. */
function hitTriangle({ vertices, faces }: Mesh, face: number, o: Triple, d: Triple): number {
  const [a, b, c] = [3 * faces[3 * face]!, 3 * faces[3 * face + 1]!, 3 * faces[3 * face + 2]!];
  const ax = vertices[a]!, ay = vertices[a + 1]!, az = vertices[a + 2]!;
  const ux = vertices[b]! - ax, uy = vertices[b + 1]! - ay, uz = vertices[b + 2]! - az;
  const vx = vertices[c]! - ax, vy = vertices[c + 1]! - ay, vz = vertices[c + 2]! - az;
  const px = d[1] * vz - d[2] * vy, py = d[2] * vx - d[0] * vz, pz = d[0] * vy - d[1] * vx;
  const determinant = ux * px + uy * py + uz * pz;
  if (determinant === 0) return Infinity;
  const sx = o[0] - ax, sy = o[1] - ay, sz = o[2] - az;
  const s = (sx * px + sy * py + sz * pz) / determinant;
  if (s < 0 || s > 1) return Infinity;
  const qx = sy * uz - sz * uy, qy = sz * ux - sx * uz, qz = sx * uy - sy * ux;
  const t = (d[0] * qx + d[1] * qy + d[2] * qz) / determinant;
  if (t < 0 || s + t > 1) return Infinity;
  const distance = (vx * qx + vy * qy + vz * qz) / determinant;
  return distance > 0 ? distance : Infinity;
}

function nearestCorner(mesh: Mesh, face: number, o: Triple, d: Triple, distance: number): number {
  let best = Infinity;
  let nearest = 0;
  for (let corner = 0; corner < 3; corner++) {
    const vertex = mesh.faces[3 * face + corner]!;
    let squared = 0;
    for (let axis = 0; axis < 3; axis++) {
      squared += (mesh.vertices[3 * vertex + axis]! - o[axis]! - distance * d[axis]!) ** 2;
    }
    if (squared < best) {
      best = squared;
      nearest = vertex;
    }
  }
  return nearest;
}
