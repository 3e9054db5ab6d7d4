// A chosen vertex and its partners, in words.

import { make, percent, whole } from "../dom";
import type { Way } from "./correspond";
import type { Correspondence } from "./paint";
import type { ViewName } from "./stage";

export interface Side {
  answer: Correspondence | null;
  way: Way | null;
}

interface Needs {
  from: ViewName;
  chosen: Partial<Record<ViewName, number>>;
  a: Side | null;
  b: Side | null;
}

export function describe({ from, chosen, a, b }: Needs): Node[] {
  if (Object.keys(chosen).length === 0) {
    return [make("p", { class: "note" }, "Point at either shape, or type a vertex number.")];
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
  const gaps = (["a", "b"] as const).filter((name) => {
    const way = (name === "a" ? a : b)?.way;
    return name !== from && way && chosen.reference !== undefined && way.direct[chosen.reference] === 0;
  });
  if (gaps.length === 0) return [list];
  return [list, make("p", { class: "note" }, "No vertex answers to exactly this one; the nearest that does is marked.")];
}

/** The next best partners of a posted vertex, as far as they are worth a word. */
function runnersUp(side: Side | null, vertex: number): HTMLElement | null {
  const { index, confidence } = side?.answer?.candidates ?? {};
  if (!index || !confidence) return null;
  const rows = index[vertex]!.slice(1).flatMap((partner, i) => {
    const chance = confidence[vertex]![i + 1]!;
    if (chance < 0.001) return [];
    return make("span", { class: "runner" }, `#${whole(partner)}`, make("span", { class: "number" }, percent(chance)));
  });
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
