// A graph on a canvas: nodes in the colours of their classes, to be moved, zoomed and pointed at.

import { classColour, css, token } from "../colour";
import { fitCanvas, perFrame } from "../dom";
import type { Sketch } from "./read";

const REACH = 14; // pixels around the pointer in which a node is found
const MOST_EDGES = 120_000; // more would only be a grey cloud, slowly

export class Plot {
  onHover: (node: number | null) => void = () => {};
  readonly draw = perFrame(() => this.render());
  private graph: Sketch | null = null;
  private positions: Float32Array = new Float32Array(0);
  private labels: number[] | null = null;
  private numClasses = 0;
  private lit: number | null = null; // the class picked out in the legend
  private chosen: number | null = null;
  private view = { x: 0, y: 0, scale: 1 };
  private touched = false; // once moved by hand the view no longer follows the layout

  constructor(private readonly canvas: HTMLCanvasElement) {
    let last: PointerEvent | null = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      last = event;
    });
    canvas.addEventListener("pointerup", () => (last = null));
    canvas.addEventListener("pointermove", (event) => {
      if (last) this.move(event.clientX - last.clientX, event.clientY - last.clientY);
      else this.point(event.offsetX, event.offsetY);
      if (last) last = event;
    });
    canvas.addEventListener("pointerleave", () => this.choose(null));
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-0.0012 * event.deltaY), event.offsetX, event.offsetY);
    }, { passive: false });
    new ResizeObserver(this.draw).observe(canvas);
  }

  setGraph(graph: Sketch | null): void {
    this.graph = graph;
    this.labels = null;
    this.chosen = this.lit = null;
    this.positions = new Float32Array(2 * (graph?.numNodes ?? 0));
    this.reset();
  }

  setPositions(positions: Float32Array): void {
    this.positions = positions;
    if (!this.touched) this.fit();
    this.draw();
  }

  setLabels(labels: number[] | null, numClasses: number): void {
    this.labels = labels;
    this.numClasses = numClasses;
    this.draw();
  }

  setLit(label: number | null): void {
    this.lit = label;
    this.draw();
  }

  choose(node: number | null): void {
    if (node === this.chosen) return;
    this.chosen = node;
    this.onHover(node);
    this.draw();
  }

  reset(): void {
    this.touched = false;
    this.fit();
    this.draw();
  }

  private fit(): void {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = 0; i < this.positions.length; i += 2) {
      left = Math.min(left, this.positions[i]!);
      right = Math.max(right, this.positions[i]!);
      top = Math.min(top, this.positions[i + 1]!);
      bottom = Math.max(bottom, this.positions[i + 1]!);
    }
    if (!(left <= right)) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = 0.92 * Math.min(width / (right - left || 1), height / (bottom - top || 1));
    this.view = {
      x: width / 2 - (scale * (left + right)) / 2,
      y: height / 2 - (scale * (top + bottom)) / 2,
      scale: Math.min(scale, 6),
    };
    if (scale > 6) {
      this.view.x = width / 2 - 3 * (left + right);
      this.view.y = height / 2 - 3 * (top + bottom);
    }
  }

  private move(dx: number, dy: number): void {
    this.touched = true;
    this.view.x += dx;
    this.view.y += dy;
    this.draw();
  }

  private zoom(factor: number, x: number, y: number): void {
    this.touched = true;
    this.view.x = x + (this.view.x - x) * factor;
    this.view.y = y + (this.view.y - y) * factor;
    this.view.scale *= factor;
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.move(40, 0),
      ArrowRight: () => this.move(-40, 0),
      ArrowUp: () => this.move(0, 40),
      ArrowDown: () => this.move(0, -40),
      "+": () => this.zoom(1.2, width / 2, height / 2),
      "=": () => this.zoom(1.2, width / 2, height / 2),
      "-": () => this.zoom(1 / 1.2, width / 2, height / 2),
      "0": () => this.reset(),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  }

  private point(x: number, y: number): void {
    let best = REACH ** 2;
    let nearest: number | null = null;
    for (let i = 0; i < this.positions.length / 2; i++) {
      const dx = this.view.x + this.view.scale * this.positions[2 * i]! - x;
      const dy = this.view.y + this.view.scale * this.positions[2 * i + 1]! - y;
      if (dx * dx + dy * dy < best) {
        best = dx * dx + dy * dy;
        nearest = i;
      }
    }
    this.choose(nearest);
  }

  private render(): void {
    fitCanvas(this.canvas);
    const context = this.canvas.getContext("2d")!;
    const ratio = this.canvas.width / Math.max(1, this.canvas.clientWidth);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.graph) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.renderEdges(context);
    this.renderNodes(context);
    if (this.chosen !== null) this.renderChosen(context, this.chosen);
  }

  private at(node: number): [number, number] {
    const { x, y, scale } = this.view;
    return [x + scale * this.positions[2 * node]!, y + scale * this.positions[2 * node + 1]!];
  }

  private radius(): number {
    return Math.min(7, Math.max(1.8, 4.2 * Math.sqrt(this.view.scale)));
  }

  private renderEdges(context: CanvasRenderingContext2D): void {
    const { edges } = this.graph!;
    if (edges.length / 2 > MOST_EDGES) return;
    context.beginPath();
    for (let e = 0; e < edges.length; e += 2) {
      context.moveTo(...this.at(edges[e]!));
      context.lineTo(...this.at(edges[e + 1]!));
    }
    context.strokeStyle = token("line-strong");
    context.globalAlpha = edges.length > 4000 ? 0.55 : 0.9;
    context.lineWidth = edges.length > 4000 ? 0.7 : 1.2;
    context.stroke();
    context.globalAlpha = 1;
  }

  /** One path per class: thousands of single circles would be slow. */
  private renderNodes(context: CanvasRenderingContext2D): void {
    const groups = new Map<number, number[]>();
    for (let i = 0; i < this.graph!.numNodes; i++) {
      const label = this.labels?.[i] ?? -1;
      const group = groups.get(label);
      if (group) group.push(i);
      else groups.set(label, [i]);
    }
    const radius = this.radius();
    for (const [label, nodes] of groups) {
      context.beginPath();
      for (const node of nodes) {
        const [x, y] = this.at(node);
        context.moveTo(x + radius, y);
        context.arc(x, y, radius, 0, 2 * Math.PI);
      }
      context.globalAlpha = this.lit === null || this.lit === label ? 1 : 0.12;
      context.fillStyle = label < 0 ? token("faint") : css(classColour(label, this.numClasses));
      context.fill();
      if (radius > 3) {
        context.strokeStyle = token("ground");
        context.lineWidth = 1;
        context.stroke();
      }
    }
    context.globalAlpha = 1;
  }

  private renderChosen(context: CanvasRenderingContext2D, node: number): void {
    const { edges } = this.graph!;
    context.beginPath();
    for (let e = 0; e < edges.length; e += 2) {
      if (edges[e] !== node && edges[e + 1] !== node) continue;
      context.moveTo(...this.at(edges[e]!));
      context.lineTo(...this.at(edges[e + 1]!));
    }
    context.strokeStyle = token("ink");
    context.lineWidth = 1.4;
    context.stroke();
    context.beginPath();
    context.arc(...this.at(node), this.radius() + 4, 0, 2 * Math.PI);
    context.lineWidth = 2;
    context.stroke();
  }
}
