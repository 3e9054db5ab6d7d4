// Drawn over the stage: rings around chosen vertices, the thread between partners, landmarks, their names.

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
  top: number;
  bottom: number;
}

const LETTER = 6.5; // pixels, on average
const AWAY = 9; // from a mark to its name

export class Overlay {
  selection: Mark[] = [];
  landmarks: Mark[] = [];

  constructor(private readonly svg: SVGSVGElement) {}

  draw(locate: Locate): void {
    const place = (mark: Mark): { mark: Mark; spot: Spot }[] => {
      const spot = locate(mark.view, mark.at);
      return spot ? [{ mark, spot }] : [];
    };
    const landmarks = this.landmarks.flatMap(place).filter(({ spot }) => !spot.hidden);
    const chosen = this.selection.flatMap(place);
    const dots = landmarks.map(({ mark, spot }) => dot(mark, spot));
    const taken = [...landmarks.map(({ spot }) => around(spot, 5)), ...chosen.map(({ spot }) => around(spot, 9))];
    // chosen ones first: they are named even where it is crowded
    const names = [
      ...chosen.flatMap(({ mark, spot }) => write(mark, spot, taken, "mark-name", true)),
      ...landmarks.flatMap(({ mark, spot }) => write(mark, spot, taken, "landmark-name", false)),
    ];
    const threads = chosen.slice(1).map(({ spot }, i) => thread(chosen[i]!.spot, spot));
    const rings = chosen.flatMap(({ spot }) => [ring(spot, "ring-halo", 7), ring(spot, "ring", 7), ring(spot, "dot", 2)]);
    this.svg.replaceChildren(...dots, ...threads, ...rings, ...names);
  }
}

function ring({ x, y, hidden }: Spot, kind: string, r: number): SVGElement {
  return svg("circle", { cx: x, cy: y, r, class: hidden ? `${kind} behind` : kind });
}

function dot({ colour }: Mark, { x, y }: Spot): SVGElement {
  const mark = svg("circle", { cx: x, cy: y, r: 4, class: "landmark" });
  mark.style.fill = colour ?? "";
  return mark;
}

/** A name beside its mark, right or left, where there is room within the frame and beside other names. */
function write({ name }: Mark, spot: Spot, taken: Box[], kind: string, always: boolean): SVGElement[] {
  if (!name) return [];
  const width = LETTER * name.length;
  const [top, bottom] = [spot.y - 7, spot.y + 7];
  const away = always ? AWAY + 4 : AWAY;
  const right = { left: spot.x + away, right: spot.x + away + width, top, bottom };
  const left = { left: spot.x - away - width, right: spot.x - away, top, bottom };
  const within = [right, left].filter((box) => box.left >= spot.frame.left && box.right <= spot.frame.right);
  const free = within.find((box) => !taken.some((other) => overlap(box, other)));
  const box = free ?? (always ? (within[0] ?? right) : null);
  if (!box) return [];
  taken.push(box);
  const after = box === right;
  const at = { x: after ? box.left : box.right, y: spot.y + 4, "text-anchor": after ? "start" : "end" };
  const label = svg("text", { ...at, class: kind });
  label.textContent = name;
  return [label];
}

function around({ x, y }: Spot, r: number): Box {
  return { left: x - r, right: x + r, top: y - r, bottom: y + r };
}

function overlap(a: Box, b: Box): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
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
