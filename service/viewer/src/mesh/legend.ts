// The key to the colours on the stage.

import { classColour, confidenceColour, css } from "../colour";
import { make, percent, whole } from "../dom";
import type { Attributes, Correspondence } from "./answer";
import type { Show } from "./paint";

const BINS = 40;

export interface LegendNeeds {
  show: Show;
  attributes: Attributes;
  answer: Correspondence | null;
  choose: (referenceVertex: number) => void;
}

export function legend({ show, attributes, answer, choose }: LegendNeeds): Node[] {
  switch (show) {
    case "correspondence":
      return [note("Each place on the reference has its own colour. The posted mesh wears the colour of its partner.")];
    case "confidence":
      return answer ? histogram(answer.confidence) : [note("Confidence comes with the answer.")];
    case "segments":
      return [segmentList(attributes.segments.names)];
    case "landmarks":
      return [landmarkList(attributes.landmarks, answer, choose)];
    case "texture":
      return [note("A checker drawn on the reference, carried over. Straight rows stay straight where the map is smooth.")];
  }
}

function note(words: string): HTMLElement {
  return make("p", { class: "note" }, words);
}

function segmentList(names: string[]): HTMLElement {
  const rows = names.map((name, i) => make("li", { class: "plain" }, dot(i, names.length), name));
  return make("ul", { class: "landmarks" }, ...rows);
}

function dot(i: number, count: number): HTMLElement {
  const mark = make("span", { class: "dot" });
  mark.style.background = css(classColour(i, count));
  return mark;
}

function histogram(confidence: Float32Array): Node[] {
  const counts = new Array<number>(BINS).fill(0);
  confidence.forEach((value) => counts[Math.min(BINS - 1, Math.floor(value * BINS))]!++);
  const tallest = Math.max(...counts);
  const chart = make("div", { class: "histogram", "aria-hidden": "true" });
  counts.forEach((count, i) => {
    const bar = make("span", { title: `${percent(i / BINS)} to ${percent((i + 1) / BINS)}: ${whole(count)}` });
    bar.style.height = count === 0 ? "1px" : `${Math.max(4, 100 * Math.sqrt(count / tallest))}%`;
    bar.style.background = css(confidenceColour((i + 0.5) / BINS));
    chart.append(bar);
  });
  const sorted = confidence.slice().sort();
  const median = sorted[sorted.length >> 1] ?? 0;
  const scale = make("div", { class: "scale" }, make("span", {}, "unsure"), make("span", {}, "sure"));
  return [chart, scale, note(`Median ${percent(median)}, lowest ${percent(sorted[0] ?? 0)}.`)];
}

function landmarkList(
  landmarks: Record<string, number>,
  answer: Correspondence | null,
  choose: (vertex: number) => void,
): HTMLElement {
  const list = make("ul", { class: "landmarks" });
  Object.entries(landmarks).forEach(([name, vertex], i, all) => {
    const missing = answer !== null && !answer.landmarks.has(name);
    const words = make("span", missing ? { class: "missing", title: "not on the posted mesh" } : {}, name);
    const button = make("button", { type: "button", class: "plain" }, dot(i, all.length), words);
    for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => choose(vertex));
    list.append(make("li", {}, button));
  });
  return list;
}
