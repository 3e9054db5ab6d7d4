// Which colour each vertex has, for each way of showing a correspondence.

import { classColour, confidenceColour, positionColours, type Rgb } from "../colour";
import type { Attributes, Correspondence } from "./answer";
import type { Shape } from "./shape";

export type Show = "correspondence" | "confidence" | "segments" | "landmarks" | "texture";

const CELLS = 26; // of the checker, along the longest side of the reference
const PALE = 186;
const GREY: Rgb = [PALE, PALE, PALE];

/** Colours of the reference itself, made once; posted meshes fetch theirs from here. */
export class Paint {
  readonly places: Float32Array;
  private readonly colours: Uint8Array;

  constructor(
    private readonly shape: Shape,
    private readonly attributes: Attributes,
  ) {
    this.colours = positionColours(shape.vertices);
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

  reference(show: Show, answer: Correspondence | null): Uint8Array {
    if (show === "landmarks") return pale(this.colours.length);
    if (show === "segments") return this.parts(this.attributes.segments.of_vertex);
    if (show !== "confidence") return this.colours;
    const back = answer?.back;
    if (!back) return pale(this.colours.length);
    return paint(back.confidence, (sure, i) => (back.vertex[i]! < 0 ? GREY : confidenceColour(sure)));
  }

  posted(show: Show, answer: Correspondence): Uint8Array {
    if (show === "confidence") return paint(answer.confidence, confidenceColour);
    if (show === "landmarks") return pale(4 * answer.correspondence.length);
    if (show === "segments" && answer.segments) return this.parts(answer.segments);
    return new Uint8Array(this.carried(this.colours, 4, answer));
  }

  postedPlaces(answer: Correspondence): Float32Array {
    return this.carried(this.places, 3, answer);
  }

  private parts(segments: ArrayLike<number>): Uint8Array {
    const palette = this.attributes.segments.names.map((_, i, all) => classColour(i, all.length));
    const colours = paint(segments, (segment) => palette[segment]!);
    for (let i = 0; i < segments.length; i++) colours[4 * i + 3] = segments[i]!; // for sharp borders
    return colours;
  }

  /** Values of reference vertices at the places of posted ones, between vertices where those are known. */
  private carried(values: ArrayLike<number>, each: number, answer: Correspondence): Float32Array {
    const { correspondence, points } = answer;
    const carried = new Float32Array(each * correspondence.length);
    for (let i = 0; i < correspondence.length; i++) {
      const face = points ? points.face[i]! : -1;
      for (let k = 0; k < each; k++) {
        if (face < 0) carried[each * i + k] = values[each * correspondence[i]! + k]!;
        else
          for (let corner = 0; corner < 3; corner++) {
            const vertex = this.shape.faces[3 * face + corner]!;
            carried[each * i + k]! += points!.barycentric[3 * i + corner]! * values[each * vertex + k]!;
          }
      }
    }
    return carried;
  }
}

function pale(length: number): Uint8Array {
  return new Uint8Array(length).fill(PALE);
}

function paint(values: ArrayLike<number>, colour: (value: number, i: number) => Rgb): Uint8Array {
  const colours = new Uint8Array(4 * values.length).fill(255);
  for (let i = 0; i < values.length; i++) {
    const [r, g, b] = colour(values[i]!, i);
    colours[4 * i] = r;
    colours[4 * i + 1] = g;
    colours[4 * i + 2] = b;
  }
  return colours;
}
