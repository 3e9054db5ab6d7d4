// How a shape stands on the stage: upright, and turned as the reference is where that can be known.

import { Quaternion, Vector3 } from "three";
import { align } from "./correspond";
import type { Correspondence } from "./answer";
import type { Shape } from "./shape";

const AGREES = 0.6; // below this a best rotation says nothing about how the shape stands

/** The turn that lays a posted shape along the reference, or null when its answer fits no turn. */
export function alongside(shape: Shape, reference: Shape, answer: Correspondence): Quaternion | null {
  const fit = align(shape.vertices, reference.vertices, answer.correspondence, answer.confidence);
  if (fit.agreement <= AGREES) return null;
  return stance(reference).multiply(new Quaternion(...fit.quaternion));
}

/** Puts the longest side upright: bodies from some tools stand along y, from others along z. */
export function stance({ vertices }: Shape): Quaternion {
  const extents = [0, 1, 2].map((axis) => {
    let [low, high] = [Infinity, -Infinity];
    for (let i = axis; i < vertices.length; i += 3) {
      low = Math.min(low, vertices[i]!);
      high = Math.max(high, vertices[i]!);
    }
    return high - low;
  });
  const tallest = extents.indexOf(Math.max(...extents));
  const turn = new Quaternion();
  if (tallest === 2) turn.setFromAxisAngle(new Vector3(1, 0, 0), -Math.PI / 2);
  if (tallest === 0 && extents[0]! > 1.6 * extents[1]! && extents[0]! > 1.6 * extents[2]!) {
    turn.setFromAxisAngle(new Vector3(0, 0, 1), Math.PI / 2);
  }
  return turn;
}
