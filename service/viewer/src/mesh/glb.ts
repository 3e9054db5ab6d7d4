// Binary glTF: every triangle of every node, placed by its transform and joined along texture seams.

import { finish, text, type Mesh } from "./parse";
import { weld } from "./weld";

interface Accessor {
  bufferView?: number;
  byteOffset?: number;
  componentType: number;
  count: number;
  type: string;
}
interface Node {
  mesh?: number;
  children?: number[];
  matrix?: number[];
  translation?: [number, number, number];
  rotation?: [number, number, number, number];
  scale?: [number, number, number];
}
interface Primitive {
  attributes: Record<string, number>;
  indices?: number;
  mode?: number;
}
interface Gltf {
  scene?: number;
  scenes?: { nodes: number[] }[];
  nodes?: Node[];
  meshes?: { primitives: Primitive[] }[];
  accessors?: Accessor[];
  bufferViews?: { byteOffset?: number; byteStride?: number }[];
  extensionsRequired?: string[];
}

type Matrix = number[]; // 4 × 4, columns first, as glTF writes it

const TRIANGLES = 4;
const IDENTITY: Matrix = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];
const COMPONENTS: Record<number, [number, "getUint8" | "getUint16" | "getUint32" | "getFloat32"]> = {
  5121: [1, "getUint8"],
  5123: [2, "getUint16"],
  5125: [4, "getUint32"],
  5126: [4, "getFloat32"],
};

export function parseGlb(buffer: ArrayBuffer): Mesh {
  const view = new DataView(buffer);
  if (buffer.byteLength < 20 || view.getUint32(0, true) !== 0x46546c67) {
    throw new Error("This is not a binary glTF file.");
  }
  const jsonLength = view.getUint32(12, true);
  const gltf = JSON.parse(text(buffer.slice(20, 20 + jsonLength))) as Gltf;
  if (gltf.extensionsRequired?.length) {
    throw new Error(`This GLB file needs ${gltf.extensionsRequired.join(", ")}; save it without.`);
  }
  const binary = new DataView(buffer, Math.min(buffer.byteLength, 28 + jsonLength));
  const vertices: number[] = [];
  const faces: number[] = [];
  const visit = (index: number, parent: Matrix): void => {
    const node = gltf.nodes?.[index];
    if (!node) return;
    const world = multiply(parent, localMatrix(node));
    for (const primitive of gltf.meshes?.[node.mesh ?? -1]?.primitives ?? []) {
      addPrimitive(gltf, binary, primitive, world, vertices, faces);
    }
    node.children?.forEach((child) => visit(child, world));
  };
  const scene = gltf.scenes?.[gltf.scene ?? 0];
  (scene?.nodes ?? gltf.nodes?.map((_, i) => i) ?? []).forEach((i) => visit(i, IDENTITY));
  const { vertices: points, faces: corners } = finish("GLB", vertices, faces);
  return weld({ vertices: points, faces: corners });
}

function localMatrix({ matrix, translation, rotation, scale }: Node): Matrix {
  if (matrix) return matrix;
  const [tx, ty, tz] = translation ?? [0, 0, 0];
  const [x, y, z, w] = rotation ?? [0, 0, 0, 1];
  const [sx, sy, sz] = scale ?? [1, 1, 1];
  return [
    ...[1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w)].map((value) => sx * value), 0,
    ...[2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w)].map((value) => sy * value), 0,
    ...[2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)].map((value) => sz * value), 0,
    tx, ty, tz, 1,
  ];
}

function multiply(a: Matrix, b: Matrix): Matrix {
  return IDENTITY.map((_, at) => {
    const [row, column] = [at % 4, at - (at % 4)];
    let sum = 0;
    for (let k = 0; k < 4; k++) sum += a[4 * k + row]! * b[column + k]!;
    return sum;
  });
}

function addPrimitive(
  gltf: Gltf,
  binary: DataView,
  primitive: Primitive,
  world: Matrix,
  vertices: number[],
  faces: number[],
): void {
  if ((primitive.mode ?? TRIANGLES) !== TRIANGLES) return;
  const first = vertices.length / 3;
  const positions = readAccessor(gltf, binary, primitive.attributes["POSITION"], 3);
  for (let i = 0; i < positions.length; i += 3) {
    for (let row = 0; row < 3; row++) {
      let value = world[12 + row]!;
      for (let k = 0; k < 3; k++) value += world[4 * k + row]! * positions[i + k]!;
      vertices.push(value);
    }
  }
  if (primitive.indices === undefined) {
    for (let i = 0; i < positions.length / 3; i++) faces.push(first + i);
  } else {
    for (const i of readAccessor(gltf, binary, primitive.indices, 1)) faces.push(first + i);
  }
}

function readAccessor(gltf: Gltf, binary: DataView, index: number | undefined, width: number): number[] {
  const accessor = gltf.accessors?.[index ?? -1];
  const view = gltf.bufferViews?.[accessor?.bufferView ?? -1];
  const component = COMPONENTS[accessor?.componentType ?? 0];
  if (!accessor || !view || !component) throw new Error("This GLB file is stored in a way not read here.");
  const [size, method] = component;
  const start = (view.byteOffset ?? 0) + (accessor.byteOffset ?? 0);
  const stride = view.byteStride ?? size * width;
  const values: number[] = [];
  for (let row = 0; row < accessor.count; row++) {
    for (let i = 0; i < width; i++) values.push(binary[method](start + row * stride + i * size, true));
  }
  return values;
}
