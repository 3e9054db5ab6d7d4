// The rotation that lays one shape along another, from which vertex goes where.

export interface Alignment {
  quaternion: [number, number, number, number]; // x, y, z, w
  agreement: number; // 1 when the rotation lays one point set exactly along the other, 0 when nothing fits
}

/** The rotation of `points` that best meets their partners, by Horn's quaternions. */
export function align(
  points: Float32Array,
  partners: Float32Array,
  index: ArrayLike<number>,
  weight: ArrayLike<number>,
): Alignment {
  const a = weightedMean(points, (i) => i, weight, index.length);
  const b = weightedMean(partners, (i) => index[i]!, weight, index.length);
  const s = new Float64Array(9); // cross-covariance
  let [spreadA, spreadB] = [0, 0];
  for (let i = 0; i < index.length; i++) {
    const w = weight[i]!;
    for (let p = 0; p < 3; p++) {
      const x = points[3 * i + p]! - a[p]!;
      spreadA += w * x * x;
      spreadB += w * (partners[3 * index[i]! + p]! - b[p]!) ** 2;
      for (let q = 0; q < 3; q++) s[3 * p + q]! += w * x * (partners[3 * index[i]! + q]! - b[q]!);
    }
  }
  const [xx, xy, xz, yx, yy, yz, zx, zy, zz] = Array.from(s) as [
    number, number, number, number, number, number, number, number, number,
  ];
  const matrix = [
    [xx + yy + zz, yz - zy, zx - xz, xy - yx],
    [yz - zy, xx - yy - zz, xy + yx, zx + xz],
    [zx - xz, xy + yx, yy - xx - zz, yz + zy],
    [xy - yx, zx + xz, yz + zy, zz - xx - yy],
  ];
  const { value, vector } = largestEigenpair(matrix);
  const [w, x, y, z] = vector as [number, number, number, number];
  const scale = Math.sqrt(spreadA * spreadB);
  return { quaternion: [x, y, z, w], agreement: scale > 0 ? value / scale : 0 };
}

function weightedMean(
  points: Float32Array,
  row: (i: number) => number,
  weight: ArrayLike<number>,
  count: number,
): number[] {
  const sum = [0, 0, 0];
  let total = 0;
  for (let i = 0; i < count; i++) {
    total += weight[i]!;
    for (let axis = 0; axis < 3; axis++) sum[axis]! += weight[i]! * points[3 * row(i) + axis]!;
  }
  return sum.map((value) => value / (total || 1));
}

/** By powers of the matrix, shifted so that the largest eigenvalue is also the largest in size. */
function largestEigenpair(matrix: number[][]): { value: number; vector: number[] } {
  const shift = Math.max(...matrix.map((row) => row.reduce((sum, x) => sum + Math.abs(x), 0)));
  let vector = [1, 0.01, 0.02, 0.03]; // not orthogonal to anything likely
  for (let round = 0; round < 400; round++) {
    const next = matrix.map((row, i) => row.reduce((sum, x, j) => sum + x * vector[j]!, shift * vector[i]!));
    const length = Math.hypot(...next) || 1;
    vector = next.map((x) => x / length);
  }
  const image = matrix.map((row) => row.reduce((sum, x, j) => sum + x * vector[j]!, 0));
  return { value: image.reduce((sum, x, i) => sum + x * vector[i]!, 0), vector };
}
