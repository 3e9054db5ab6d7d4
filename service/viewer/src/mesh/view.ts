// One shape on the stage: its geometry, its stance, and the way from screen to vertex and back.

import {
  BufferAttribute,
  BufferGeometry,
  Matrix4,
  Mesh,
  PerspectiveCamera,
  Quaternion,
  Scene,
  Vector3,
  type ShaderMaterial,
} from "three";
import { castRay } from "./bvh";
import type { Shape } from "./shape";

export interface Spot {
  x: number; // pixels within the stage
  y: number;
  hidden: boolean; // behind the surface
  frame: { left: number; right: number }; // of the view it is in
}

const CLAY = 168;

export class View {
  readonly scene = new Scene();
  readonly camera = new PerspectiveCamera(26, 1, 0.1, 100);
  shape: Shape | null = null;
  /** Half the height, and the largest distance from the vertical axis, in units of the shape's size. */
  reach = { up: 1, side: 1 };
  private mesh: Mesh<BufferGeometry, ShaderMaterial> | null = null;
  private fine: BufferAttribute | null = null;
  private coarse: BufferAttribute | null = null;
  private readonly turn = new Quaternion();

  constructor(
    readonly frame: HTMLElement, // the part of the stage this view draws into
    private readonly material: ShaderMaterial,
  ) {}

  setShape(shape: Shape | null): void {
    this.mesh?.geometry.dispose();
    if (this.mesh) this.scene.remove(this.mesh);
    this.mesh = null;
    this.shape = shape;
    if (!shape) return;
    const count = shape.vertices.length / 3;
    const geometry = new BufferGeometry();
    geometry.setAttribute("position", new BufferAttribute(shape.vertices, 3));
    geometry.setAttribute("normal", new BufferAttribute(shape.normals, 3));
    geometry.setAttribute("colour", new BufferAttribute(new Uint8Array(4 * count).fill(CLAY), 4, true));
    geometry.setAttribute("place", new BufferAttribute(new Float32Array(3 * count), 3));
    this.fine = new BufferAttribute(shape.drawn, 1);
    this.coarse = shape.coarse ? new BufferAttribute(shape.coarse, 1) : null;
    geometry.setIndex(this.fine);
    this.mesh = new Mesh(geometry, this.material);
    this.mesh.frustumCulled = false;
    this.mesh.matrixAutoUpdate = false;
    this.scene.add(this.mesh);
    this.setTurn(this.turn.identity());
  }

  setTurn(turn: Quaternion): void {
    this.turn.copy(turn);
    if (!this.mesh || !this.shape) return;
    const { centre, size, vertices } = this.shape;
    this.mesh.matrix
      .makeScale(1 / size, 1 / size, 1 / size)
      .multiply(new Matrix4().makeRotationFromQuaternion(turn))
      .multiply(new Matrix4().makeTranslation(-centre[0], -centre[1], -centre[2]));
    this.mesh.matrixWorldNeedsUpdate = true;
    const point = new Vector3();
    this.reach = { up: 0, side: 0 };
    for (let i = 0; i < vertices.length; i += 3) {
      point.fromArray(vertices, i).applyMatrix4(this.mesh.matrix);
      this.reach.up = Math.max(this.reach.up, Math.abs(point.y));
      this.reach.side = Math.max(this.reach.side, Math.hypot(point.x, point.z));
    }
  }

  /** Draws fewer triangles of a large shape, or all of them again; its vertices stay where they are. */
  setCoarse(coarse: boolean): void {
    this.mesh?.geometry.setIndex((coarse && this.coarse) || this.fine);
  }

  setColours(colours: Uint8Array | null): void {
    const attribute = this.mesh?.geometry.getAttribute("colour") as BufferAttribute | undefined;
    if (!attribute) return;
    if (colours) (attribute.array as Uint8Array).set(colours);
    else (attribute.array as Uint8Array).fill(CLAY);
    attribute.needsUpdate = true;
  }

  setPlaces(places: Float32Array): void {
    const attribute = this.mesh?.geometry.getAttribute("place") as BufferAttribute | undefined;
    if (!attribute) return;
    (attribute.array as Float32Array).set(places);
    attribute.needsUpdate = true;
  }

  /** The vertex under a point of the frame given in -1..1, or null. */
  pick(x: number, y: number): number | null {
    if (!this.shape || !this.mesh) return null;
    const toLocal = this.mesh.matrix.clone().invert();
    const origin = this.camera.position.clone().applyMatrix4(toLocal);
    const target = new Vector3(x, y, 0.5).unproject(this.camera).applyMatrix4(toLocal);
    const direction = target.sub(origin).normalize();
    return castRay(this.shape, this.shape.bvh, origin.toArray(), direction.toArray())?.vertex ?? null;
  }

  /** Where a vertex or place is on screen, within a frame whose corner and size are given. */
  spot(at: number | ArrayLike<number>, left: number, top: number, width: number, height: number): Spot | null {
    if (!this.shape || !this.mesh) return null;
    const local =
      typeof at === "number" ? new Vector3().fromArray(this.shape.vertices, 3 * at) : new Vector3(at[0], at[1], at[2]);
    const screen = local.clone().applyMatrix4(this.mesh.matrix).project(this.camera);
    return {
      x: left + (0.5 + 0.5 * screen.x) * width,
      y: top + (0.5 - 0.5 * screen.y) * height,
      hidden: this.isHidden(local),
      frame: { left, right: left + width },
    };
  }

  private isHidden(local: Vector3): boolean {
    const { vertices, faces, bvh, size } = this.shape!;
    const origin = this.camera.position.clone().applyMatrix4(this.mesh!.matrix.clone().invert());
    const direction = local.clone().sub(origin);
    const distance = direction.length();
    const hit = castRay({ vertices, faces }, bvh, origin.toArray(), direction.normalize().toArray());
    return hit !== null && hit.distance < distance - 0.02 * size;
  }
}
