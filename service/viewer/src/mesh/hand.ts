// Mouse, touch and keys on the stage: drag turns, wheel or pinch zooms, two fingers or the right button move.

import { reducedMotion } from "../dom";

export interface Pose {
  yaw: number;
  pitch: number;
  zoom: number;
  panX: number;
  panY: number;
}

interface Told {
  moved: () => void;
  hover: (x: number, y: number) => void;
  tap: (x: number, y: number) => void;
  left: () => void;
}

const REST: Pose = { yaw: 0.42, pitch: 0.1, zoom: 1, panX: 0, panY: 0 };
const STILL = 4; // pixels a finger may slip and still be tapping

export class Hand {
  readonly pose: Pose = { ...REST };
  private readonly pointers = new Map<number, PointerEvent>();
  private slipped = 0;
  private turning = false;
  private hovered: PointerEvent | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly told: Told,
  ) {
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => told.left());
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  reset(): void {
    Object.assign(this.pose, REST);
    this.told.moved();
  }

  setTurning(turning: boolean): void {
    if (turning && !this.turning) this.animate((seconds) => this.turnBy(0.5 * seconds, 0), () => this.turning);
    this.turning = turning;
  }

  sweep(): void {
    const start = performance.now();
    const from = REST.yaw - 0.9;
    const left = (): number => Math.max(0, 1 - (performance.now() - start) / 1100);
    this.animate(
      () => {
        this.pose.yaw = REST.yaw + (from - REST.yaw) * left() ** 3;
        this.told.moved();
      },
      () => left() > 0 && this.pointers.size === 0,
    );
  }

  private animate(step: (seconds: number) => void, going: () => boolean): void {
    let last = performance.now();
    const frame = (now: number): void => {
      step(Math.min(0.1, (now - last) / 1000));
      last = now;
      if (going()) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  private down(event: PointerEvent): void {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, event);
    this.slipped = 0;
  }

  private move(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.hover(event);
      return;
    }
    const dx = event.clientX - before.clientX;
    const dy = event.clientY - before.clientY;
    this.slipped += Math.abs(dx) + Math.abs(dy);
    if (this.pointers.size === 2) this.pinch(before, event, dx, dy);
    else if (event.buttons & 2 || event.shiftKey) this.panBy(dx, dy);
    else this.turnBy(-0.008 * dx, 0.008 * dy);
    this.pointers.set(event.pointerId, event);
  }

  private up(event: PointerEvent): void {
    this.pointers.delete(event.pointerId);
    if (this.slipped <= STILL) this.told.tap(event.offsetX, event.offsetY);
  }

  /** Moves come faster than frames; only the last one before a frame is looked up. */
  private hover(event: PointerEvent): void {
    const first = this.hovered === null;
    this.hovered = event;
    if (!first) return;
    requestAnimationFrame(() => {
      if (this.hovered) this.told.hover(this.hovered.offsetX, this.hovered.offsetY);
      this.hovered = null;
    });
  }

  private pinch(before: PointerEvent, after: PointerEvent, dx: number, dy: number): void {
    const other = [...this.pointers.values()].find(({ pointerId }) => pointerId !== after.pointerId)!;
    const gap = (event: PointerEvent): number =>
      Math.hypot(event.clientX - other.clientX, event.clientY - other.clientY) || 1;
    this.zoomBy(gap(after) / gap(before));
    this.panBy(dx / 2, dy / 2);
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    this.zoomBy(Math.exp(-0.0012 * event.deltaY * (event.deltaMode === 1 ? 16 : 1)));
  }

  private key(event: KeyboardEvent): void {
    const step = reducedMotion() ? 0.2 : 0.1;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.turnBy(-step, 0),
      ArrowRight: () => this.turnBy(step, 0),
      ArrowUp: () => this.turnBy(0, step),
      ArrowDown: () => this.turnBy(0, -step),
      "+": () => this.zoomBy(1.15),
      "=": () => this.zoomBy(1.15),
      "-": () => this.zoomBy(1 / 1.15),
      "0": () => this.reset(),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  }

  private turnBy(yaw: number, pitch: number): void {
    this.pose.yaw += yaw;
    this.pose.pitch = Math.min(1.5, Math.max(-1.5, this.pose.pitch + pitch));
    this.told.moved();
  }

  private zoomBy(factor: number): void {
    this.pose.zoom = Math.min(12, Math.max(0.4, this.pose.zoom * factor));
    this.told.moved();
  }

  private panBy(dx: number, dy: number): void {
    const scale = 0.46 / this.canvas.clientHeight; // the view angle, per pixel
    this.pose.panX += scale * dx;
    this.pose.panY += scale * dy;
    this.told.moved();
  }
}
