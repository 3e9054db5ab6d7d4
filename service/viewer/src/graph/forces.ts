// A force layout: edges pull, nodes push (Barnes and Hut's quadtree), the middle holds all together.

const OPEN = 0.81; // a cell is taken as one when (size / distance)² is below this
const DEPTH = 24; // of the tree: nodes in the same place do not split it for ever

const STACK = new Int32Array(4 * DEPTH + 8);
const SIZES = new Float64Array(4 * DEPTH + 8);

export class Forces {
  readonly positions: Float32Array; // [N * 2]
  private readonly speed: Float32Array;
  private readonly degree: Float32Array;
  private heat = 1;

  constructor(
    private readonly count: number,
    private readonly edges: Uint32Array, // [E * 2]
  ) {
    this.positions = new Float32Array(2 * count);
    this.speed = new Float32Array(2 * count);
    this.degree = new Float32Array(count);
    for (const node of edges) this.degree[node]! += 1;
    for (let i = 0; i < count; i++) {
      const radius = 8 * Math.sqrt(i + 0.5); // a sunflower: even, and the same every time
      this.positions[2 * i] = radius * Math.cos(2.39996323 * i);
      this.positions[2 * i + 1] = radius * Math.sin(2.39996323 * i);
    }
  }

  get settled(): boolean {
    return this.heat < 0.004;
  }

  step(): void {
    this.pull();
    this.push();
    const { positions, speed } = this;
    for (let i = 0; i < positions.length; i++) {
      speed[i] = (speed[i]! - 0.035 * this.heat * positions[i]!) * 0.6;
      positions[i]! += speed[i]!;
    }
    this.heat *= 0.982;
  }

  private pull(): void {
    const { positions, speed, edges, degree } = this;
    for (let e = 0; e < edges.length; e += 2) {
      const [a, b] = [edges[e]!, edges[e + 1]!];
      if (a === b) continue;
      const dx = positions[2 * b]! + speed[2 * b]! - positions[2 * a]! - speed[2 * a]!;
      const dy = positions[2 * b + 1]! + speed[2 * b + 1]! - positions[2 * a + 1]! - speed[2 * a + 1]!;
      const length = Math.hypot(dx, dy) || 1e-6;
      const strength = 1 / Math.min(degree[a]!, degree[b]!);
      const force = ((length - 16) / length) * this.heat * strength;
      const share = degree[a]! / (degree[a]! + degree[b]!); // hubs move less
      speed[2 * a]! += dx * force * (1 - share);
      speed[2 * a + 1]! += dy * force * (1 - share);
      speed[2 * b]! -= dx * force * share;
      speed[2 * b + 1]! -= dy * force * share;
    }
  }

  private push(): void {
    const tree = new Tree(this.positions, this.count);
    for (let i = 0; i < this.count; i++) tree.push(i, this.speed, 26 * this.heat);
  }
}

/** Cells in flat lists: four children, mass and centre of mass each. */
class Tree {
  private readonly children: number[] = []; // [cells * 4]; 0 empty, > 0 cell, < 0 ~node
  private readonly mass: number[] = [];
  private readonly x: number[] = [];
  private readonly y: number[] = [];
  private readonly left: number;
  private readonly top: number;
  private readonly size: number;

  constructor(
    private readonly points: Float32Array,
    count: number,
  ) {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = 0; i < count; i++) {
      left = Math.min(left, points[2 * i]!);
      right = Math.max(right, points[2 * i]!);
      top = Math.min(top, points[2 * i + 1]!);
      bottom = Math.max(bottom, points[2 * i + 1]!);
    }
    [this.left, this.top, this.size] = [left, top, Math.max(right - left, bottom - top, 1e-3)];
    this.cell();
    for (let i = 0; i < count; i++) this.insert(i);
  }

  private cell(): number {
    this.children.push(0, 0, 0, 0);
    this.mass.push(0);
    this.x.push(0);
    return this.y.push(0) - 1;
  }

  private insert(node: number): void {
    const [px, py] = [this.points[2 * node]!, this.points[2 * node + 1]!];
    let [cell, left, top, size] = [0, this.left, this.top, this.size];
    for (let depth = 0; ; depth++) {
      this.add(cell, px, py);
      if (depth === DEPTH) return; // only its mass counts
      size /= 2;
      const slot = 4 * cell + (px >= left + size ? 1 : 0) + (py >= top + size ? 2 : 0);
      if (px >= left + size) left += size;
      if (py >= top + size) top += size;
      const there = this.children[slot]!;
      if (there === 0) {
        this.children[slot] = ~node;
        return;
      }
      if (there > 0) {
        cell = there;
        continue;
      }
      const next = this.cell();
      this.children[slot] = next;
      cell = next;
      this.settle(~there, next, left, top, size);
    }
  }

  /** The node that sat here moves one cell down. */
  private settle(node: number, cell: number, left: number, top: number, size: number): void {
    const [px, py] = [this.points[2 * node]!, this.points[2 * node + 1]!];
    this.add(cell, px, py);
    this.children[4 * cell + (px >= left + size / 2 ? 1 : 0) + (py >= top + size / 2 ? 2 : 0)] = ~node;
  }

  private add(cell: number, px: number, py: number): void {
    const mass = ++this.mass[cell]!;
    this.x[cell]! += (px - this.x[cell]!) / mass;
    this.y[cell]! += (py - this.y[cell]!) / mass;
  }

  /** The heart of the layout: no closures, nothing allocated. */
  push(node: number, speed: Float32Array, strength: number): void {
    const { points, children, mass, x, y } = this;
    const px = points[2 * node]!;
    const py = points[2 * node + 1]!;
    let fx = 0;
    let fy = 0;
    let top = 1;
    STACK[0] = 0;
    SIZES[0] = this.size;
    while (top-- > 0) {
      const cell = STACK[top]!;
      const size = SIZES[top]!;
      const dx = px - x[cell]!;
      const dy = py - y[cell]!;
      const squared = dx * dx + dy * dy;
      if (size * size < OPEN * squared) {
        fx += (dx * mass[cell]!) / squared;
        fy += (dy * mass[cell]!) / squared;
        continue;
      }
      for (let k = 4 * cell; k < 4 * cell + 4; k++) {
        const child = children[k]!;
        if (child > 0) {
          STACK[top] = child;
          SIZES[top++] = size / 2;
        } else if (child < 0 && ~child !== node) {
          const ex = px - points[2 * ~child]!;
          const ey = py - points[2 * ~child + 1]!;
          const near = Math.max(ex * ex + ey * ey, 4); // or two nodes in one place fly apart
          fx += ex / near;
          fy += ey / near;
        }
      }
    }
    speed[2 * node]! += strength * fx;
    speed[2 * node + 1]! += strength * fy;
  }
}
