// Colours, made in OKLab so that equal steps look equal: positions, confidences and classes.

export type Rgb = [number, number, number]; // 0..255

/** Björn Ottosson's OKLab to sRGB, clipped to what a screen can show. */
function oklab(l: number, a: number, b: number): Rgb {
  const x = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const y = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const z = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    screen(4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z),
    screen(-1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z),
    screen(-0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z),
  ];
}

function screen(linear: number): number {
  const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
  return Math.round(255 * Math.min(1, Math.max(0, value)));
}

function oklch(l: number, chroma: number, degrees: number): Rgb {
  const angle = (degrees * Math.PI) / 180;
  return oklab(l, chroma * Math.cos(angle), chroma * Math.sin(angle));
}

export function css([r, g, b]: Rgb): string {
  return `rgb(${r} ${g} ${b})`;
}

/** A smooth colour for every vertex by its place in the bounding box: each place its own. */
export function positionColours(vertices: Float32Array): Uint8Array {
  const low = [Infinity, Infinity, Infinity];
  const high = [-Infinity, -Infinity, -Infinity];
  vertices.forEach((value, i) => {
    low[i % 3] = Math.min(low[i % 3]!, value);
    high[i % 3] = Math.max(high[i % 3]!, value);
  });
  const extents = high.map((value, axis) => value - low[axis]!);
  // The longest axis runs blue to yellow, the next green to rose; the middle is pale, not grey.
  const [long, wide, deep] = [0, 1, 2].sort((p, q) => extents[q]! - extents[p]!) as [number, number, number];
  const place = (i: number, axis: number): number =>
    2 * ((vertices[i + axis]! - low[axis]!) / (extents[axis]! || 1)) - 1;
  const colours = new Uint8Array((vertices.length / 3) * 4);
  for (let i = 0; i < vertices.length / 3; i++) {
    const [u, v, w] = [place(3 * i, long), place(3 * i, wide), place(3 * i, deep)];
    const reach = Math.min(1, Math.hypot(u, v)) ** 0.6; // colours soon: most vertices lie near the middle
    const hue = (Math.atan2(u, v) * 180) / Math.PI;
    colours.set(oklch(0.83 - 0.13 * reach + 0.03 * w + 0.08 * Math.max(0, u), 0.17 * reach, hue), 4 * i);
    colours[4 * i + 3] = 255;
  }
  return colours;
}

// Dark plum, through rust and sand, to a pale sea green: low confidence sinks, high confidence shines.
const RAMP: [number, number, number][] = [
  [0.36, 0.1, 350],
  [0.52, 0.15, 22],
  [0.68, 0.13, 62],
  [0.8, 0.1, 115],
  [0.88, 0.1, 170],
];
const RAMP_TABLE: Rgb[] = Array.from({ length: 256 }, (_, i) => {
  const at = (i / 255) * (RAMP.length - 1);
  const step = Math.min(RAMP.length - 2, Math.floor(at));
  const [from, to] = [RAMP[step]!, RAMP[step + 1]!];
  const mix = (k: number): number => from[k]! + (at - step) * (to[k]! - from[k]!);
  const turn = ((to[2] - from[2] + 540) % 360) - 180; // the short way round
  return oklch(mix(0), mix(1), from[2] + (at - step) * turn);
});

export function confidenceColour(confidence: number): Rgb {
  return RAMP_TABLE[Math.round(255 * Math.min(1, Math.max(0, confidence)))]!;
}

/** The i-th of n classes: hues by equal steps, neighbours apart in lightness too. */
export function classColour(i: number, n: number): Rgb {
  const steps = Math.max(n, 3);
  return oklch(i % 2 === 0 ? 0.72 : 0.6, 0.145, 25 + (360 * i) / steps);
}

/** A custom property of the style sheet as the current theme resolves it. */
export function token(name: string): string {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

export function tokenRgb(name: string): Rgb {
  const numbers = token(name).match(/[\d.]+/g)?.map(Number) ?? [];
  return [numbers[0] ?? 0, numbers[1] ?? 0, numbers[2] ?? 0];
}

const probe = document.createElement("span");
probe.hidden = true;
document.documentElement.append(probe);
