// Drawn over the stage: rings around chosen vertices, the thread between partners, landmarks and their names.

import type { ViewName } from "./stage";
import type { Spot } from "./view";

export interface Mark {
  view: ViewName;
  at: number | ArrayLike<number>; // a vertex, or a place on the surface
  name?: string;
  colour?: string;
}

type Locate = (view: ViewName, at: Mark["at"]) => Spot | null;

interface Box {
  left: number;
  right: number;
  y: number;
}

export class Overlay {
  selection: Mark[] = [];
  landmarks: Mark[] = [];

  constructor(private readonly svg: SVGSVGElement) {}

  draw(locate: Locate): void {
    const shapes: SVGElement[] = [];
    const labels: Box[] = [];
    for (const mark of this.landmarks) {
      const spot = locate(mark.view, mark.at);
      if (spot && !spot.hidden) shapes.push(...landmark(mark, spot, labels));
    }
    const spots = this.selection.flatMap(({ view, at }) => locate(view, at) ?? []);
    for (let i = 1; i < spots.length; i++) shapes.push(thread(spots[i - 1]!, spots[i]!));
    for (const spot of spots) shapes.push(ring(spot, "ring-halo", 7), ring(spot, "ring", 7), ring(spot, "dot", 2));
    this.svg.replaceChildren(...shapes);
  }
}

function ring({ x, y, hidden }: Spot, kind: string, r: number): SVGElement {
  return svg("circle", { cx: x, cy: y, r, class: hidden ? `${kind} behind` : kind });
}

/** A dot, and its name where no other name stands yet. */
function landmark({ name, colour }: Mark, { x, y }: Spot, labels: Box[]): SVGElement[] {
  const dot = svg("circle", { cx: x, cy: y, r: 4, class: "landmark" });
  dot.style.fill = colour ?? "";
  const box = { left: x, right: x + 12 + 6.4 * (name?.length ?? 0), y };
  const taken = labels.some((other) => Math.abs(other.y - y) < 15 && other.left < box.right && x < other.right);
  if (!name || taken) return [dot];
  labels.push(box);
  const label = svg("text", { x: x + 9, y: y + 4, class: "landmark-name" });
  label.textContent = name;
  return [dot, label];
}

/** Hangs a little, like a thread between two pins. */
function thread(from: Spot, to: Spot): SVGElement {
  const sag = 18 + 0.06 * Math.hypot(to.x - from.x, to.y - from.y);
  const third = (to.x - from.x) / 3;
  const [y1, y2] = [from.y + sag, to.y + sag];
  const path = `M${from.x},${from.y}C${from.x + third},${y1} ${to.x - third},${y2} ${to.x},${to.y}`;
  return svg("path", { d: path, class: "thread" });
}

function svg(tag: string, attributes: Record<string, string | number>): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}
