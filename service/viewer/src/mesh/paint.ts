// Which colour each vertex has, for each way of showing a correspondence.

import { classColour, confidenceColour, positionColours } from "../colour";
import type { Way } from "./correspond";
import type { Regions } from "./regions";
import type { Shape } from "./shape";

export type Show = "correspondence" | "confidence" | "segments" | "landmarks" | "texture";

export interface Correspondence {
  correspondence: number[];
  confidence: number[];
  candidates?: { index: number[][]; confidence: number[][] };
}

const CELLS = 26; // of the checker, along the longest side of the reference
const PALE = 186;

/** Colours of the reference itself, made once; posted meshes fetch theirs from here. */
export class Paint {
  readonly places: Float32Array;
  private readonly colours: Uint8Array;
  private cells: Uint8Array;

  constructor(shape: Shape) {
    this.colours = positionColours(shape.vertices);
    this.cells = new Uint8Array(this.colours.length).fill(PALE);
    let span = 0;
    for (let axis = 0; axis < 3; axis++) {
      let [low, high] = [Infinity, -Infinity];
      for (let i = axis; i < shape.vertices.length; i += 3) {
        low = Math.min(low, shape.vertices[i]!);
        high = Math.max(high, shape.vertices[i]!);
      }
      span = Math.max(span, high - low);
    }
    this.places = shape.vertices.map((value) => (CELLS * value) / (span || 1));
  }

  setRegions({ segments, numSegments }: Regions): void {
    this.cells = paint(segments, (cell) => classColour(cell, numSegments));
  }

  reference(show: Show, way: Way | null, answer: Correspondence | null): Uint8Array {
    if (show === "landmarks") return new Uint8Array(this.colours.length).fill(PALE);
    if (show === "segments") return this.cells;
    if (show !== "confidence") return this.colours;
    if (!way || !answer) return new Uint8Array(this.colours.length).fill(PALE);
    return paint(way.vertex, (vertex, i) =>
      way.direct[i] ? confidenceColour(answer.confidence[vertex]!) : [PALE, PALE, PALE],
    );
  }

  posted(show: Show, answer: Correspondence): Uint8Array {
    if (show === "confidence") return paint(answer.confidence, confidenceColour);
    if (show === "landmarks") return new Uint8Array(4 * answer.correspondence.length).fill(PALE);
    return gather(show === "segments" ? this.cells : this.colours, answer.correspondence);
  }

  postedPlaces({ correspondence }: Correspondence): Float32Array {
    const places = new Float32Array(3 * correspondence.length);
    correspondence.forEach((partner, i) => {
      for (let axis = 0; axis < 3; axis++) places[3 * i + axis] = this.places[3 * partner + axis]!;
    });
    return places;
  }
}

function paint<T extends ArrayLike<number>>(values: T, colour: (value: number, i: number) => number[]): Uint8Array {
  const colours = new Uint8Array(4 * values.length).fill(255);
  for (let i = 0; i < values.length; i++) colours.set(colour(values[i]!, i), 4 * i);
  return colours;
}

function gather(colours: Uint8Array, index: number[]): Uint8Array {
  const words = new Uint32Array(colours.buffer, colours.byteOffset, colours.length / 4);
  return new Uint8Array(Uint32Array.from(index, (i) => words[i]!).buffer);
}
