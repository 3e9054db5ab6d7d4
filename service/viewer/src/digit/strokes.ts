// Strokes on a unit square: drawing them at any size, and as the 28 × 28 picture the nets were trained on.

export type Stroke = { x: number; y: number }[];

const SIDE = 28;
const BOX = 20; // a digit of the training data fills a box of 20 pixels ...
const PEN = 2.7; // ... with strokes about this wide
const SMALLEST = 0.25; // of the pad; a dot is not blown up beyond this

/** Digits for those who would rather press a key than draw. */
const PATHS = [
  "M50 20C30 20 28 80 50 80S70 20 50 20",
  "M42 32L54 20V80",
  "M32 36C32 14 68 14 67 37C66 54 40 64 32 80H70",
  "M33 26C45 14 66 20 64 35C63 46 52 48 46 48C56 48 68 53 67 65C66 82 42 84 32 72",
  "M56 20L30 60H72M60 42V82",
  "M66 21H40L37 46C48 40 68 44 67 62C66 82 42 84 32 72",
  "M62 20C44 28 33 48 34 64C36 84 66 84 66 64C66 48 42 46 35 62",
  "M31 22H69C58 40 50 58 46 81",
  "M50 49C30 44 32 20 50 20S70 44 50 49S28 80 50 80S70 54 50 49",
  "M65 36C62 18 34 18 35 36C36 54 62 54 65 36C66 52 62 70 54 81",
];

export function digitStrokes(digit: number): Stroke[] {
  return PATHS[digit]!.split(/(?=M)/).map((piece) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", piece);
    const length = path.getTotalLength();
    const steps = Math.ceil(length / 2);
    return Array.from({ length: steps + 1 }, (_, i) => {
      const { x, y } = path.getPointAtLength((i / steps) * length);
      return { x: x / 100, y: y / 100 };
    });
  });
}

export function drawStrokes(
  context: CanvasRenderingContext2D,
  strokes: Stroke[],
  scale: number,
  dx: number,
  dy: number,
): void {
  context.lineCap = context.lineJoin = "round";
  context.beginPath();
  for (const stroke of strokes) {
    stroke.forEach(({ x, y }, i) => {
      // a lone point becomes a dot, but a line of no length would be left out
      if (i === 0) context.moveTo(dx + scale * x - 0.01, dy + scale * y);
      context.lineTo(dx + scale * x, dy + scale * y);
    });
  }
  context.stroke();
}

/** White on black, scaled to the box and centred by mass: what was done to the training data. */
export function asPicture(strokes: Stroke[]): HTMLCanvasElement {
  const points = strokes.flat();
  const xs = points.map(({ x }) => x);
  const ys = points.map(({ y }) => y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = (BOX - PEN) / Math.max(SMALLEST, right - left, bottom - top);
  let dx = SIDE / 2 - (scale * (left + right)) / 2;
  let dy = SIDE / 2 - (scale * (top + bottom)) / 2;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIDE;
  const context = canvas.getContext("2d", { willReadFrequently: true })!;
  const paint = (): void => {
    context.fillStyle = "#000";
    context.fillRect(0, 0, SIDE, SIDE);
    context.strokeStyle = "#fff";
    context.lineWidth = PEN;
    drawStrokes(context, strokes, scale, dx, dy);
  };
  paint();
  const mass = centreOfMass(context.getImageData(0, 0, SIDE, SIDE).data);
  dx += SIDE / 2 - mass.x;
  dy += SIDE / 2 - mass.y;
  paint();
  return canvas;
}

function centreOfMass(pixels: Uint8ClampedArray): { x: number; y: number } {
  let [total, x, y] = [0, 0, 0];
  for (let i = 0; i < SIDE * SIDE; i++) {
    const value = pixels[4 * i]!;
    total += value;
    x += value * ((i % SIDE) + 0.5);
    y += value * (Math.floor(i / SIDE) + 0.5);
  }
  return { x: x / (total || 1), y: y / (total || 1) };
}
