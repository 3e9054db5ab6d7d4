// Drawn over the stage: rings around chosen vertices, the thread between partners, landmarks and their names.

import type { ViewName } from "./stage";
import type { Spot } from "./view";

export interface Mark {
  view: ViewName;
  vertex: number;
  name?: string;
  colour?: string;
}

type Locate = (view: ViewName, vertex: number) => Spot | null;

export class Overlay {
  selection: Mark[] = [];
  landmarks: Mark[] = [];

  constructor(private readonly svg: SVGSVGElement) {}

  draw(locate: Locate): void {
    const shapes: SVGElement[] = [];
    for (const mark of this.landmarks) {
      const spot = locate(mark.view, mark.vertex);
      if (spot && !spot.hidden) shapes.push(...landmark(mark, spot));
    }
    const spots = this.selection.flatMap(({ view, vertex }) => locate(view, vertex) ?? []);
    for (let i = 1; i < spots.length; i++) shapes.push(thread(spots[i - 1]!, spots[i]!));
    for (const spot of spots) shapes.push(ring(spot, "ring-halo", 7), ring(spot, "ring", 7), ring(spot, "dot", 2));
    this.svg.replaceChildren(...shapes);
  }
}

function ring({ x, y, hidden }: Spot, kind: string, r: number): SVGElement {
  return svg("circle", { cx: x, cy: y, r, class: hidden ? `${kind} behind` : kind });
}

function landmark({ name, colour }: Mark, { x, y }: Spot): SVGElement[] {
  const dot = svg("circle", { cx: x, cy: y, r: 5, class: "landmark" });
  dot.style.fill = colour ?? "";
  if (!name) return [dot];
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
