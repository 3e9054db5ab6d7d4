// The square to draw on.

import { token } from "../colour";
import { fitCanvas } from "../dom";
import { drawStrokes, type Stroke } from "./strokes";

const PEN = 0.07; // of the side

export class Pad {
  strokes: Stroke[] = [];
  private current: Stroke | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly changed: () => void,
  ) {
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (this.current = null));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  setStrokes(strokes: Stroke[]): void {
    this.strokes = strokes;
    this.current = null;
    this.draw();
    this.changed();
  }

  draw(): void {
    fitCanvas(this.canvas);
    const side = this.canvas.width;
    const context = this.canvas.getContext("2d")!;
    context.clearRect(0, 0, side, side);
    context.strokeStyle = token("ink");
    context.lineWidth = PEN * side;
    drawStrokes(context, this.strokes, side, 0, 0);
  }

  private down(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.current = [this.place(event)];
    this.strokes.push(this.current);
    this.draw();
    this.changed();
  }

  private move(event: PointerEvent): void {
    if (!this.current) return;
    const between = event.getCoalescedEvents?.() ?? [];
    for (const each of between.length > 0 ? between : [event]) this.current.push(this.place(each));
    this.draw();
    this.changed();
  }

  private place(event: PointerEvent): { x: number; y: number } {
    const box = this.canvas.getBoundingClientRect();
    return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
  }
}
