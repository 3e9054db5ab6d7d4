// Small helpers over the document.

type Attributes = Record<string, string | number | boolean | null | undefined>;

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element as T;
}

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

export function whole(value: number): string {
  return value.toLocaleString("en-GB");
}

/** "1 face", "80 faces" */
export function count(value: number, noun: string): string {
  const plural = noun.endsWith("ex") ? `${noun.slice(0, -2)}ices` : `${noun}s`;
  return `${whole(value)} ${value === 1 ? noun : plural}`;
}

/** Rounded, but never to a certainty that was not said. */
export function percent(value: number): string {
  if (value > 0.9995 && value < 1) return "> 99.9 %";
  if (value < 0.0005 && value > 0) return "< 0.1 %";
  return `${(100 * value).toFixed(value === 0 || value === 1 ? 0 : 1)} %`;
}

export function milliseconds(value: number): string {
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10_000 ? 1 : 2)} s`;
  return `${value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)} ms`;
}

export function reducedMotion(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Matches a canvas's pixels to its size on screen; true if they changed. */
export function fitCanvas(canvas: HTMLCanvasElement): boolean {
  const ratio = Math.min(devicePixelRatio, 2);
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width === width && canvas.height === height) return false;
  canvas.width = width;
  canvas.height = height;
  return true;
}

/** Calls back at most once per frame, however often it is asked. */
export function perFrame(draw: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}
