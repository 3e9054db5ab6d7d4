// The key to the colours on the stage.

import { classColour, confidenceColour, css } from "../colour";
import { make, percent, whole } from "../dom";
import type { Correspondence, Show } from "./paint";
import type { Regions } from "./regions";

const BINS = 40;

export interface LegendNeeds {
  show: Show;
  regions: Regions | null; // null while they are being found
  answer: Correspondence | null;
  choose: (referenceVertex: number) => void;
}

export function legend({ show, regions, answer, choose }: LegendNeeds): Node[] {
  if (!regions && (show === "segments" || show === "landmarks")) return [note("Measuring the reference …")];
  switch (show) {
    case "correspondence":
      return [note("Each place on the reference has its own colour. The posted mesh wears the colour of its partner.")];
    case "confidence":
      return answer ? histogram(answer.confidence) : [note("Confidence comes with the answer.")];
    case "segments":
      return [
        swatches(regions!.numSegments),
        note(`${regions!.numSegments} cells of the reference, equally far apart along its surface, carried over.`),
      ];
    case "landmarks":
      return [landmarkList(regions!, choose)];
    case "texture":
      return [note("A checker drawn on the reference, carried over. Straight rows stay straight where the map is smooth.")];
  }
}

function note(words: string): HTMLElement {
  return make("p", { class: "note" }, words);
}

function swatches(count: number): HTMLElement {
  const row = make("div", { class: "swatches", "aria-hidden": "true" });
  for (let i = 0; i < count; i++) {
    const swatch = make("span", {});
    swatch.style.background = css(classColour(i, count));
    row.append(swatch);
  }
  return row;
}

function histogram(confidence: number[]): Node[] {
  const counts = new Array<number>(BINS).fill(0);
  for (const value of confidence) counts[Math.min(BINS - 1, Math.floor(value * BINS))]!++;
  const tallest = Math.max(...counts);
  const chart = make("div", { class: "histogram", "aria-hidden": "true" });
  counts.forEach((count, i) => {
    const bar = make("span", { title: `${percent(i / BINS)} to ${percent((i + 1) / BINS)}: ${whole(count)}` });
    bar.style.height = count === 0 ? "1px" : `${Math.max(4, 100 * Math.sqrt(count / tallest))}%`;
    bar.style.background = css(confidenceColour((i + 0.5) / BINS));
    chart.append(bar);
  });
  const sorted = [...confidence].sort((p, q) => p - q);
  const median = sorted[sorted.length >> 1] ?? 0;
  const scale = make("div", { class: "scale" }, make("span", {}, "unsure"), make("span", {}, "sure"));
  return [chart, scale, note(`Median ${percent(median)}, lowest ${percent(sorted[0] ?? 0)}.`)];
}

function landmarkList({ landmarks }: Regions, choose: (vertex: number) => void): HTMLElement {
  const list = make("ul", { class: "landmarks" });
  landmarks.forEach(({ name, vertex }, i) => {
    const dot = make("span", { class: "dot" });
    dot.style.background = css(classColour(i, landmarks.length));
    const button = make("button", { type: "button", class: "plain" }, dot, name);
    for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => choose(vertex));
    list.append(make("li", {}, button));
  });
  return list;
}
