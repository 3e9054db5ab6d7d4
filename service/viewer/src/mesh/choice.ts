// The chosen vertex: found by pointing, tapping or typing, and marked with its partners everywhere.

import { byId, percent, whole } from "../dom";
import { describe, type Side } from "./describe";
import type { Mark } from "./overlay";
import type { Stage, ViewName } from "./stage";

type Sides = Partial<Record<"a" | "b", Side>>;

export class Choice {
  private pinned: { view: ViewName; vertex: number } | null = null;
  private readonly number = byId<HTMLInputElement>("mesh-vertex");

  constructor(
    private readonly stage: Stage,
    private readonly sides: () => Sides,
  ) {
    stage.onHover = (view, vertex) => this.hover(view, vertex);
    stage.onPin = (view, vertex) => this.pin(view, vertex);
    this.number.addEventListener("input", () => {
      const vertex = this.number.valueAsNumber;
      const last = (this.sides().a?.answer?.correspondence.length ?? 0) - 1;
      this.pin("a", vertex >= 0 && vertex <= last ? Math.floor(vertex) : null);
    });
  }

  /** Stays chosen when the pointer leaves. */
  pin(view: ViewName, vertex: number | null): void {
    this.pinned = vertex === null ? null : { view, vertex };
    this.select(view, vertex);
  }

  select(view: ViewName, vertex: number | null): void {
    const chosen = vertex === null ? {} : this.partners(view, vertex);
    const marks: Mark[] = [];
    const sides = this.sides();
    for (const name of ["a", "reference", "b"] as const) {
      const at = chosen[name];
      if (at === undefined || at < 0) continue;
      const sure = name === "reference" ? undefined : sides[name]?.answer?.confidence[at];
      marks.push({ view: name, at, name: `#${whole(at)}${sure === undefined ? "" : ` · ${percent(sure)}`}` });
    }
    this.stage.setSelection(marks);
    if (document.activeElement !== this.number) {
      this.number.value = chosen.a === undefined || chosen.a < 0 ? "" : String(chosen.a);
    }
    const { a = null, b = null } = sides;
    byId("mesh-partner").replaceChildren(...describe({ from: view, chosen, a, b }));
  }

  private hover(view: ViewName, vertex: number | null): void {
    if (vertex !== null) this.select(view, vertex);
    else if (this.pinned) this.select(this.pinned.view, this.pinned.vertex);
    else this.select(view, null);
  }

  /** The same place on every shape: A → reference → B, from wherever one starts. */
  private partners(view: ViewName, vertex: number): Partial<Record<ViewName, number>> {
    const sides = this.sides();
    const chosen: Partial<Record<ViewName, number>> = { [view]: vertex };
    const middle = view === "reference" ? vertex : sides[view]?.answer?.correspondence[vertex];
    if (middle === undefined) return chosen;
    chosen.reference = middle;
    for (const name of ["a", "b"] as const) {
      const back = sides[name]?.answer?.back;
      if (name !== view && back) chosen[name] = back.vertex[middle]!;
    }
    return chosen;
  }
}
