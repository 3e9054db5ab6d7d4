// Landmarks and segments of a reference, from its own geometry: far points along the surface, and their cells.

import type { Mesh } from "./parse";
import { neighbours, type Neighbours } from "./shape";

export interface Regions {
  landmarks: { name: string; vertex: number }[];
  segments: Uint8Array; // [V] which cell
  numSegments: number;
}

const LANDMARKS = 12;
const SEGMENTS = 16;

/** Each new point lies as far from all earlier ones as the surface allows. */
export function findRegions(mesh: Mesh): Regions {
  const graph = neighbours(mesh);
  const count = mesh.vertices.length / 3;
  const nearest = new Float64Array(count).fill(Infinity);
  const segments = new Uint8Array(count);
  const seeds: number[] = [];
  let next = farthest(distances(mesh, graph, [0]));
  while (seeds.length < Math.min(SEGMENTS, count)) {
    const own = distances(mesh, graph, [next]);
    own.forEach((distance, i) => {
      if (distance < nearest[i]!) {
        nearest[i] = distance;
        segments[i] = seeds.length;
      }
    });
    seeds.push(next);
    next = farthest(nearest);
  }
  const marks = seeds.slice(0, LANDMARKS);
  const names = bodyNames(mesh, marks) ?? marks.map((_, i) => `Point ${i + 1}`);
  const landmarks = marks.map((vertex, i) => ({ name: names[i] ?? `Point ${i + 1}`, vertex }));
  return { landmarks, segments, numSegments: seeds.length };
}

function farthest(distance: Float64Array): number {
  let best = 0;
  distance.forEach((value, i) => {
    if (value > distance[best]!) best = i;
  });
  return best;
}

/** Dijkstra along the edges, with a binary heap. */
function distances(mesh: Mesh, graph: Neighbours, sources: number[]): Float64Array {
  const distance = new Float64Array(mesh.vertices.length / 3).fill(Infinity);
  const heap: [number, number][] = []; // [distance, vertex], smallest first
  const push = (d: number, vertex: number): void => {
    if (d >= distance[vertex]!) return;
    distance[vertex] = d;
    let at = heap.push([d, vertex]) - 1;
    while (at > 0 && heap[(at - 1) >> 1]![0] > heap[at]![0]) at = swap(heap, at, (at - 1) >> 1);
  };
  sources.forEach((vertex) => push(0, vertex));
  while (heap.length > 0) {
    const [d, vertex] = popSmallest(heap);
    if (d > distance[vertex]!) continue; // an older, longer way
    for (let k = graph.start[vertex]!; k < graph.start[vertex + 1]!; k++) {
      push(d + gap(mesh.vertices, vertex, graph.index[k]!), graph.index[k]!);
    }
  }
  return distance;
}

function popSmallest(heap: [number, number][]): [number, number] {
  const smallest = heap[0]!;
  const last = heap.pop()!;
  if (heap.length === 0) return smallest;
  heap[0] = last;
  for (let at = 0; ; ) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && heap[child + 1]![0] < heap[child]![0]) child++;
    if (heap[child]![0] >= heap[at]![0]) break;
    at = swap(heap, at, child);
  }
  return smallest;
}

function swap(heap: [number, number][], from: number, to: number): number {
  [heap[from], heap[to]] = [heap[to]!, heap[from]!];
  return to;
}

function gap(vertices: Float32Array, a: number, b: number): number {
  return Math.hypot(
    vertices[3 * a]! - vertices[3 * b]!,
    vertices[3 * a + 1]! - vertices[3 * b + 1]!,
    vertices[3 * a + 2]! - vertices[3 * b + 2]!,
  );
}

/** The first five far points of an upright body are its head, hands and feet; null for any other shape. */
function bodyNames({ vertices }: Mesh, marks: number[]): string[] | null {
  if (marks.length < 5) return null;
  const range = (axis: number): [number, number] => {
    let [low, high] = [Infinity, -Infinity];
    for (let i = axis; i < vertices.length; i += 3) {
      low = Math.min(low, vertices[i]!);
      high = Math.max(high, vertices[i]!);
    }
    return [low, high];
  };
  const extents = [0, 1, 2].map((axis) => range(axis)[1] - range(axis)[0]);
  const up = extents.indexOf(Math.max(...extents));
  const [floor, top] = range(up);
  const at = (mark: number, axis: number): number => vertices[3 * marks[mark]! + axis]!;
  const byHeight = [0, 1, 2, 3, 4].sort((p, q) => at(p, up) - at(q, up));
  const [footA, footB, handA, handB, head] = byHeight as [number, number, number, number, number];
  const across = (axis: number): number => Math.abs(at(handA, axis) - at(handB, axis));
  const side = [0, 1, 2].filter((axis) => axis !== up).sort((p, q) => across(q) - across(p))[0]!;
  const front = 3 - up - side;
  const near = (value: number, wanted: number): boolean => Math.abs(value - wanted) < 0.12 * (top - floor);
  const fits =
    near(at(head, up), top) &&
    near(at(footA, up), floor) &&
    near(at(footB, up), floor) &&
    near(at(handA, up), at(handB, up)) &&
    near(at(handA, side), -at(handB, side) + 2 * at(head, side)) &&
    at(handA, up) > floor + 0.25 * (top - floor);
  if (!fits) return null;
  // Toes point forward: past the middle of the feet.
  let [sum, count] = [0, 0];
  for (let i = 0; i < vertices.length; i += 3) {
    if (vertices[i + up]! > floor + 0.06 * (top - floor)) continue;
    sum += vertices[i + front]!;
    count++;
  }
  const forward = Math.sign(at(footA, front) + at(footB, front) - (2 * sum) / count);
  const turn = (up + 1) % 3 === front ? 1 : -1; // left = up × front
  const isLeft = (mark: number): boolean => (at(mark, side) - at(head, side)) * forward * turn > 0;
  const names: string[] = [];
  names[head] = "Head";
  for (const mark of [handA, handB]) names[mark] = isLeft(mark) ? "Left hand" : "Right hand";
  for (const mark of [footA, footB]) names[mark] = isLeft(mark) ? "Left foot" : "Right foot";
  return names;
}
