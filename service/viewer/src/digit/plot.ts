// The graph a picture became, drawn where its nodes lie in the picture.

import { token } from "../colour";
import { fitCanvas } from "../dom";

export interface ImageGraph {
  num_nodes: number;
  positions: [number, number][]; // pixels of the 28 × 28 picture
  features: number[][];
  edges: [number, number][];
}

const SIDE = 28;

export function plotGraph(canvas: HTMLCanvasElement, graph: ImageGraph | null): void {
  fitCanvas(canvas);
  const side = canvas.width;
  const context = canvas.getContext("2d")!;
  context.clearRect(0, 0, side, side);
  if (!graph) return;
  const at = graph.positions.map(([x, y]) => [((x + 0.5) / SIDE) * side, ((y + 0.5) / SIDE) * side] as const);
  const value = graph.features.map((row) => Math.min(1, Math.max(0, row[0] ?? 0)));
  const radius = 0.3 * side * Math.sqrt(1 / Math.max(16, graph.num_nodes)) * 0.5;
  drawEdges(context, graph, at, value, side);
  const order = value.map((_, i) => i).sort((p, q) => value[p]! - value[q]!);
  for (const i of order) {
    const [x, y] = at[i]!;
    context.beginPath();
    context.arc(x, y, radius * (0.55 + 0.75 * value[i]!), 0, 2 * Math.PI);
    context.fillStyle = token("surface");
    context.fill();
    context.globalAlpha = 0.08 + 0.92 * value[i]!;
    context.fillStyle = token("accent");
    context.fill();
    context.globalAlpha = 0.35 + 0.65 * value[i]!;
    context.strokeStyle = token(value[i]! > 0.08 ? "accent" : "line-strong");
    context.lineWidth = Math.max(1, side / 420);
    context.stroke();
    context.globalAlpha = 1;
  }
}

function drawEdges(
  context: CanvasRenderingContext2D,
  graph: ImageGraph,
  at: (readonly [number, number])[],
  value: number[],
  side: number,
): void {
  const lines = (colour: string, alpha: number, wanted: (from: number, to: number) => boolean): void => {
    context.beginPath();
    for (const [from, to] of graph.edges) {
      if (from > to || !wanted(from, to)) continue; // both directions are listed: draw one
      context.moveTo(...at[from]!);
      context.lineTo(...at[to]!);
    }
    context.strokeStyle = colour;
    context.globalAlpha = alpha;
    context.lineWidth = Math.max(1, side / 420);
    context.stroke();
    context.globalAlpha = 1;
  };
  const lit = (from: number, to: number): boolean => value[from]! > 0.15 && value[to]! > 0.15;
  const crowd = Math.min(1, 900 / graph.edges.length); // many edges are drawn fainter
  lines(token("line-strong"), 0.25 + 0.6 * crowd, (from, to) => !lit(from, to));
  lines(token("accent"), 0.3 + 0.6 * crowd, lit);
}
