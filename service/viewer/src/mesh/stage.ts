// The stage: two or three shapes on one canvas, turned by one hand.

import { LinearSRGBColorSpace, Vector3, WebGLRenderer } from "three";
import { perFrame, reducedMotion } from "../dom";
import { Hand } from "./hand";
import { Overlay, type Mark } from "./overlay";
import { Pace } from "./pace";
import { surfaceMaterial } from "./surface";
import { View } from "./view";

export type ViewName = "a" | "reference" | "b";

export class Stage {
  readonly views: Record<ViewName, View>;
  onHover: (view: ViewName, vertex: number | null) => void = () => {};
  onPin: (view: ViewName, vertex: number | null) => void = () => {};
  private readonly renderer: WebGLRenderer;
  private readonly material = surfaceMaterial();
  private readonly overlay: Overlay;
  private readonly hand: Hand;
  private readonly pace = new Pace(() => this.draw());
  private drawnSize = "";
  /** Draws once, on the next frame. */
  readonly draw = perFrame(() => this.render());
  /** Only the marks: pointing about must not cost a drawing of the shapes. */
  private readonly mark = perFrame(() => this.renderMarks());

  constructor(
    private readonly root: HTMLElement,
    canvas: HTMLCanvasElement,
    overlay: SVGSVGElement,
    frames: Record<ViewName, HTMLElement>,
  ) {
    this.renderer = new WebGLRenderer({ canvas, antialias: true, alpha: true });
    this.renderer.outputColorSpace = LinearSRGBColorSpace; // colours are chosen for the screen already
    this.renderer.setScissorTest(true);
    this.renderer.sortObjects = false; // one shape per view
    this.renderer.info.autoReset = false;
    this.overlay = new Overlay(overlay);
    this.views = {
      a: new View(frames.a, this.material),
      reference: new View(frames.reference, this.material),
      b: new View(frames.b, this.material),
    };
    this.hand = new Hand(canvas, {
      moved: () => {
        this.pace.move();
        this.draw();
      },
      hover: (x, y) => this.point(x, y, this.onHover),
      tap: (x, y) => this.point(x, y, this.onPin),
      left: () => this.onHover("a", null),
    });
    new ResizeObserver(() => this.draw()).observe(root);
  }

  /** Whether colours are blended between vertices, cut sharply between classes, or under a checker. */
  setLook(look: "blended" | "classes" | "textured"): void {
    this.material.uniforms["classes"]!.value = look === "classes" ? 1 : 0;
    this.material.uniforms["textured"]!.value = look === "textured" ? 1 : 0;
    this.draw();
  }

  setTurning(turning: boolean): void {
    this.hand.setTurning(turning);
  }

  setGlow(glow: number): void {
    this.material.uniforms["glow"]!.value = glow;
    this.draw();
  }

  setSelection(marks: Mark[]): void {
    this.overlay.selection = marks;
    this.mark();
  }

  setLandmarks(marks: Mark[]): void {
    this.overlay.landmarks = marks;
    this.mark();
  }

  /** A short turn into place, so that one sees that both are solid and linked. */
  enter(): void {
    if (!reducedMotion()) this.hand.sweep();
    this.draw();
  }

  reset(): void {
    this.hand.reset();
    this.draw();
  }

  private shown(): [ViewName, View][] {
    const all = Object.entries(this.views) as [ViewName, View][];
    return all.filter(([, view]) => view.frame.offsetParent !== null);
  }

  private render(): void {
    const width = this.root.clientWidth;
    const height = this.root.clientHeight;
    if (width === 0 || height === 0) return; // the tab is closed
    this.resize(width, height);
    this.renderer.info.reset();
    this.renderer.setScissor(0, 0, width, height);
    this.renderer.clear();
    const shown = this.shown();
    const coarse = this.pace.hurried;
    const distance = Math.max(1, ...shown.filter(([, view]) => view.shape).map(([, view]) => fit(view)));
    for (const [, view] of shown) {
      const { offsetLeft: x, offsetTop: y, offsetWidth: w, offsetHeight: h } = view.frame;
      this.aim(view, distance, w / h);
      view.setCoarse(coarse);
      this.renderer.setViewport(x, height - y - h, w, h);
      this.renderer.setScissor(x, height - y - h, w, h);
      this.renderer.render(view.scene, view.camera);
    }
    this.root.dataset["triangles"] = String(this.renderer.info.render.triangles);
    this.pace.drawn();
    this.renderMarks();
  }

  /** Only when it must: a canvas that is given its own size again throws its pixels away. */
  private resize(width: number, height: number): void {
    const ratio = Math.min(devicePixelRatio, 2);
    const size = `${width} ${height} ${ratio}`;
    if (size === this.drawnSize) return;
    this.drawnSize = size;
    this.renderer.setPixelRatio(ratio);
    this.renderer.setSize(width, height, false);
  }

  private renderMarks(): void {
    this.overlay.draw((name, at) => {
      const view = this.views[name];
      if (view.frame.offsetParent === null) return null;
      const { offsetLeft: x, offsetTop: y, offsetWidth: w, offsetHeight: h } = view.frame;
      return view.spot(at, x, y, w, h);
    });
  }

  private aim(view: View, fitting: number, aspect: number): void {
    const { yaw, pitch, zoom, panX, panY } = this.hand.pose;
    const distance = fitting / zoom;
    const { camera } = view;
    camera.aspect = aspect;
    camera.near = Math.max(0.01, distance - 8);
    camera.far = distance + 8;
    const away = new Vector3(Math.sin(yaw) * Math.cos(pitch), Math.sin(pitch), Math.cos(yaw) * Math.cos(pitch));
    const right = new Vector3(Math.cos(yaw), 0, -Math.sin(yaw));
    const up = away.clone().cross(right);
    const target = right.multiplyScalar(-panX * distance).add(up.multiplyScalar(panY * distance));
    camera.position.copy(target).addScaledVector(away, distance);
    camera.lookAt(target);
    camera.updateProjectionMatrix();
    camera.updateMatrixWorld();
  }

  private point(x: number, y: number, tell: (view: ViewName, vertex: number | null) => void): void {
    for (const [name, view] of this.shown()) {
      const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = view.frame;
      const u = (x - offsetLeft) / offsetWidth;
      const v = (y - offsetTop) / offsetHeight;
      if (u >= 0 && u < 1 && v >= 0 && v < 1) tell(name, view.pick(2 * u - 1, 1 - 2 * v));
    }
  }
}

/** How far the camera must stand for the whole shape to be seen, however it is turned. */
function fit(view: View): number {
  const half = Math.tan((view.camera.fov * Math.PI) / 360);
  const aspect = view.frame.offsetWidth / Math.max(1, view.frame.offsetHeight);
  const { up, side } = view.reach;
  return 1.14 * Math.max(up / half, side / (half * aspect)) + side * 0.6;
}
