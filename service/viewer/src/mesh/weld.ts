// Joins vertices at the same place: triangle soups and texture seams cut a surface that the net needs whole.

import type { Mesh } from "./parse";

export function weld({ vertices, faces }: Mesh): Mesh {
  const bits = new Uint32Array(vertices.buffer, vertices.byteOffset, vertices.length);
  const count = vertices.length / 3;
  let slots = 1;
  while (slots < 2 * count) slots *= 2;
  const table = new Int32Array(slots).fill(-1); // open addressing: slot → new index
  const renamed = new Uint32Array(count);
  const kept: number[] = []; // new index → old index
  for (let i = 0; i < count; i++) {
    const [x, y, z] = [bits[3 * i]!, bits[3 * i + 1]!, bits[3 * i + 2]!];
    let slot = (Math.imul(x, 73856093) ^ Math.imul(y, 19349663) ^ Math.imul(z, 83492791)) >>> 0;
    for (slot = (slot ^ (slot >>> 15)) & (slots - 1); ; slot = (slot + 1) & (slots - 1)) {
      const known = table[slot]!;
      if (known < 0) {
        table[slot] = kept.length;
        renamed[i] = kept.length;
        kept.push(i);
        break;
      }
      const old = 3 * kept[known]!;
      if (bits[old] === x && bits[old + 1] === y && bits[old + 2] === z) {
        renamed[i] = known;
        break;
      }
    }
  }
  const joined = new Float32Array(3 * kept.length);
  kept.forEach((old, i) => joined.set(vertices.subarray(3 * old, 3 * old + 3), 3 * i));
  return { vertices: joined, faces: withoutSlivers(faces.map((i) => renamed[i]!)) };
}

/** Triangles that welding folded onto an edge or a point are dropped. */
function withoutSlivers(faces: Uint32Array): Uint32Array {
  const kept = new Uint32Array(faces.length);
  let end = 0;
  for (let i = 0; i < faces.length; i += 3) {
    const [a, b, c] = [faces[i]!, faces[i + 1]!, faces[i + 2]!];
    if (a === b || b === c || c === a) continue;
    kept.set([a, b, c], end);
    end += 3;
  }
  return kept.slice(0, end);
}
