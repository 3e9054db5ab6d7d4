// What the service found for a posted mesh, and what it knows of the reference.

import type { Arrays } from "../call";

/** Of a reference; empty where its model has none. */
export interface Attributes {
  landmarks: Record<string, number>; // reference vertices
  segments: { names: string[]; of_vertex: number[] };
}

export const NO_ATTRIBUTES: Attributes = { landmarks: {}, segments: { names: [], of_vertex: [] } };

export interface Correspondence {
  correspondence: Int32Array; // [V]
  confidence: Float32Array; // [V]
  candidates: { index: Int32Array; confidence: Float32Array; each: number } | null; // [V * each]
  segments: Int32Array | null; // [V]
  points: { face: Int32Array; barycentric: Float32Array } | null; // of each posted vertex, on the reference
  landmarks: Map<string, Float32Array>; // where on the posted mesh; only those that are there
  back: Way | null;
}

/** For each reference vertex the nearest posted one, -1 where that part was not posted, and how sure. */
export interface Way {
  vertex: Int32Array;
  confidence: Float32Array;
}

export function readAnswer({ arrays, names }: Arrays): Correspondence {
  const whole = (name: string): Int32Array | undefined => arrays[name] as Int32Array | undefined;
  const real = (name: string): Float32Array | undefined => arrays[name] as Float32Array | undefined;
  const correspondence = whole("correspondence")!;
  const [index, chance] = [whole("candidates.index"), real("candidates.confidence")];
  const [face, barycentric] = [whole("points.face"), real("points.barycentric")];
  const [back, sure] = [whole("reverse.vertex"), real("reverse.confidence")];
  const landmarks = new Map<string, Float32Array>();
  names["landmarks.vertex"]?.forEach((name, i) => {
    if (whole("landmarks.vertex")![i]! >= 0) landmarks.set(name, real("landmarks.position")!.subarray(3 * i, 3 * i + 3));
  });
  return {
    correspondence,
    confidence: real("confidence")!,
    candidates: index && chance ? { index, confidence: chance, each: index.length / correspondence.length } : null,
    segments: whole("segments") ?? null,
    points: face && barycentric ? { face, barycentric } : null,
    landmarks,
    back: back && sure ? { vertex: back, confidence: sure } : null,
  };
}
