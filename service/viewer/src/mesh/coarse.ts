// A coarser drawing of a large mesh, for while it moves on a machine that cannot draw all of it in time.

import type { Mesh } from "./parse";

const LARGE = 60_000; // triangles that any machine draws in time
const CELLS = 8_000; // patches the surface is cut into

/**
 * Faces over the same vertices, a fraction of them: vertices of one cell of a grid become one of them.
 * null for a mesh that is small enough as it is.
 */
export function coarseFaces({ vertices, faces }: Mesh, area: number): Uint32Array | null {
  if (faces.length <= 3 * LARGE) return null;
  const cell = Math.sqrt(area / CELLS) || 1;
  const first = new Map<number, number>(); // cell → its first vertex
  const merged = new Uint32Array(vertices.length / 3);
  for (let i = 0; i < merged.length; i++) {
    const [x, y, z] = [0, 1, 2].map((axis) => Math.floor(vertices[3 * i + axis]! / cell) & 0xffff) as [number, number, number];
    const key = x + 0x1_0000 * y + 0x1_0000_0000 * z;
    const known = first.get(key);
    if (known === undefined) first.set(key, i);
    merged[i] = known ?? i;
  }
  const kept = new Uint32Array(faces.length);
  let end = 0;
  for (let i = 0; i < faces.length; i += 3) {
    const [a, b, c] = [merged[faces[i]!]!, merged[faces[i + 1]!]!, merged[faces[i + 2]!]!];
    if (a === b || b === c || c === a) continue;
    kept[end] = a;
    kept[end + 1] = b;
    kept[end + 2] = c;
    end += 3;
  }
  return kept.slice(0, end);
}
