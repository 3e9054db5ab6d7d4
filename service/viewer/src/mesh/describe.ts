// A chosen vertex and its partners, in words.

import { make, percent, whole } from "../dom";
import type { Correspondence } from "./answer";
import type { ViewName } from "./stage";

export interface Side {
  answer: Correspondence | null;
}

interface Needs {
  from: ViewName;
  chosen: Partial<Record<ViewName, number>>;
  a: Side | null;
  b: Side | null;
}

export function describe({ from, chosen, a, b }: Needs): Node[] {
  if (Object.keys(chosen).length === 0) {
    return [make("p", { class: "note" }, "Point at a shape, or type a number.")];
  }
  const list = make("dl", { class: "partners" });
  const row = (term: string, vertex: number | undefined, side: Side | null): void => {
    if (vertex === undefined) return;
    const words = vertex < 0 ? "none" : `#${whole(vertex)}`;
    const value = make("dd", {}, make("span", { class: "vertex" }, words));
    const confidence = vertex < 0 ? undefined : side?.answer?.confidence[vertex];
    if (confidence !== undefined) value.append(meter(confidence));
    list.append(make("dt", {}, term), value);
  };
  row("Posted", chosen.a, a);
  row("Reference", chosen.reference, null);
  row("Second", chosen.b, b);
  const others = from === "reference" ? null : runnersUp(from === "a" ? a : b, chosen[from]!);
  if (others) list.append(make("dt", {}, "Or else"), others);
  return [list];
}

/** The next best partners of a posted vertex, as far as they are worth a word. */
function runnersUp(side: Side | null, vertex: number): HTMLElement | null {
  const candidates = side?.answer?.candidates;
  if (!candidates) return null;
  const { index, confidence, each } = candidates;
  const rows: HTMLElement[] = [];
  for (let i = vertex * each + 1; i < (vertex + 1) * each; i++) {
    const chance = make("span", { class: "number" }, percent(confidence[i]!));
    if (confidence[i]! >= 0.001) rows.push(make("span", { class: "runner" }, `#${whole(index[i]!)}`, chance));
  }
  return rows.length > 0 ? make("dd", { class: "runners" }, ...rows) : null;
}

function meter(confidence: number): HTMLElement {
  const fill = make("span", { class: "meter-fill" });
  fill.style.width = percentWidth(confidence);
  return make(
    "span",
    { class: "confidence" },
    make("span", { class: "meter", "aria-hidden": "true" }, fill),
    make("span", { class: "number", title: "confidence" }, percent(confidence)),
  );
}

function percentWidth(value: number): string {
  return `${(100 * Math.min(1, Math.max(0, value))).toFixed(1)}%`;
}
