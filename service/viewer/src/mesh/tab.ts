// The mesh tab: posts a mesh, stands it beside the reference, carries colours, marks partners.

import { aboutModel, get, isAbort, post, type Answer, type Model, type Received } from "../call";
import { classColour, css } from "../colour";
import { byId, count } from "../dom";
import { Strip } from "../strip";
import { onTheme } from "../theme";
import { wayBack, type Way } from "./correspond";
import { curl } from "./curl";
import { Choice } from "./choice";
import { findRegions, openMesh, openReference } from "./jobs";
import { legend } from "./legend";
import type { Mark } from "./overlay";
import { Paint, type Correspondence, type Show } from "./paint";
import type { Regions } from "./regions";
import { neighbours, type Neighbours, type Shape } from "./shape";
import { alongside, stance } from "./stance";
import { Stage, type ViewName } from "./stage";
import type { Opened } from "./worker";

type SlotName = "a" | "b";

interface Slot {
  name: string; // of the file
  sample: boolean;
  opened: Opened;
  answer: (Answer & Correspondence) | null;
  way: Way | null;
}

interface Loaded {
  model: Model;
  shape: Shape;
  regions: Regions | null; // found after the first answer is on its way
  paint: Paint;
  neighbours: Neighbours;
}

const CANDIDATES = 3; // partners asked for per vertex
const SMALL = 20_000; // vertices; beyond this the candidates would weigh more than the answer

export class MeshTab {
  private readonly strip = new Strip(byId("mesh-strip"));
  private readonly stage: Stage;
  private readonly picker = byId<HTMLSelectElement>("mesh-model");
  private slots: Partial<Record<SlotName, Slot>> = {};
  private loaded: Loaded | null = null;
  private show: Show = "correspondence";
  private readonly choice: Choice;
  private calls: Partial<Record<SlotName, AbortController>> = {};

  constructor(private readonly models: Model[]) {
    const frames = { a: byId("frame-a"), reference: byId("frame-reference"), b: byId("frame-b") };
    const overlay = document.getElementById("stage-overlay") as unknown as SVGSVGElement;
    this.stage = new Stage(byId("stage"), byId<HTMLCanvasElement>("stage-canvas"), overlay, frames);
    this.choice = new Choice(this.stage, () => this.slots);
    this.listen();
    this.strip.onKey = () => void this.start();
    this.picker.replaceChildren(...models.map(({ name }) => new Option(name, name)));
  }

  /** The first answer without a question: the model's own sample. */
  async start(): Promise<void> {
    const sample = this.fetchSample();
    sample.catch(() => {}); // told below, unless the reference fails first
    if (!(await this.loadModel()) || this.slots.a) return;
    try {
      await this.open("a", "sample.json", await sample, true);
    } catch (error) {
      this.strip.fail(error);
    }
  }

  redraw(): void {
    this.stage.draw();
  }

  private listen(): void {
    this.picker.addEventListener("change", () => void this.changeModel());
    byId("mesh-sample").addEventListener("click", () => void this.openSample());
    byId("mesh-remove").addEventListener("click", () => this.removeSecond());
    byId("mesh-reset").addEventListener("click", () => this.stage.reset());
    for (const slot of ["a", "b"] as const) {
      const input = byId<HTMLInputElement>(`mesh-file-${slot}`);
      input.addEventListener("change", () => {
        const file = input.files?.[0];
        input.value = ""; // so that the same file can be chosen again
        if (file) void this.openFile(slot, file);
      });
    }
    const turning = byId<HTMLInputElement>("mesh-turning");
    turning.addEventListener("change", () => this.stage.setTurning(turning.checked));
    byId("mesh-show").addEventListener("change", (event) => {
      this.show = (event.target as HTMLInputElement).value as Show;
      this.colour();
    });
    this.listenToDrops(byId("panel-mesh"));
    const glow = (): void =>
      this.stage.setGlow(document.documentElement.dataset["theme"] === "dark" ? 0.16 : 0.06);
    onTheme(glow);
    glow();
  }

  private listenToDrops(panel: HTMLElement): void {
    let depth = 0; // dragenter and dragleave also fire for every child
    const mark = (): void => void panel.classList.toggle("dropping", depth > 0);
    panel.addEventListener("dragover", (event) => event.preventDefault());
    panel.addEventListener("dragenter", () => (depth++, mark()));
    panel.addEventListener("dragleave", () => (depth--, mark()));
    panel.addEventListener("drop", (event) => {
      event.preventDefault();
      depth = 0;
      mark();
      const [first, second] = event.dataTransfer?.files ?? [];
      const onB = (event.target as Element).closest("#mesh-second") !== null;
      if (first) void this.openFile(onB ? "b" : "a", first);
      if (second) void this.openFile("b", second);
    });
  }

  private chosenPath(end: string): string {
    return `v1/models/${encodeURIComponent(this.picker.value)}/${end}`;
  }

  private async loadModel(): Promise<boolean> {
    const model = this.models.find(({ name }) => name === this.picker.value)!;
    this.loaded = null;
    byId("mesh-model-note").textContent = aboutModel(model);
    try {
      const response = await get(this.chosenPath("reference"), "model/ply");
      const shape = await openReference(await response.arrayBuffer());
      const paint = new Paint(shape);
      this.loaded = { model, shape, paint, neighbours: neighbours(shape), regions: null };
    } catch (error) {
      this.strip.fail(error);
      return false;
    }
    const view = this.stage.views.reference;
    view.setShape(this.loaded.shape);
    view.setTurn(stance(this.loaded.shape));
    view.setPlaces(this.loaded.paint.places);
    this.caption("reference", `Reference of ${model.name}`, this.loaded.shape);
    this.colour();
    return true;
  }

  private async changeModel(): Promise<void> {
    this.choice.pin("a", null);
    if (!(await this.loadModel())) return;
    for (const name of ["a", "b"] as const) if (this.slots[name]) await this.run(name);
  }

  private async fetchSample(): Promise<ArrayBuffer> {
    return await (await get(this.chosenPath("sample"), "application/json")).arrayBuffer();
  }

  private async openSample(): Promise<void> {
    try {
      await this.open("a", "sample.json", await this.fetchSample(), true);
    } catch (error) {
      this.strip.fail(error);
    }
  }

  private async measure(loaded: Loaded): Promise<void> {
    if (loaded.regions) return;
    loaded.regions = await findRegions(loaded.shape);
    loaded.paint.setRegions(loaded.regions);
    if (this.show === "segments" || this.show === "landmarks") this.colour();
  }

  private async openFile(slot: SlotName, file: File): Promise<void> {
    await this.open(slot, file.name, await file.arrayBuffer(), false);
  }

  private async open(slot: SlotName, name: string, buffer: ArrayBuffer, sample: boolean): Promise<void> {
    this.strip.progress("opening", null);
    this.choice.pin("a", null);
    let opened: Opened;
    try {
      opened = await openMesh(name, buffer);
    } catch (error) {
      this.strip.fail(error);
      return;
    }
    this.slots[slot] = { name, sample, opened, answer: null, way: null };
    if (slot === "b") this.toggleSecond(true);
    const view = this.stage.views[slot];
    view.setShape(opened.shape);
    if (opened.shape) view.setTurn(stance(opened.shape));
    this.caption(slot, sample ? "Sample" : name, opened.mesh);
    this.colour();
    await this.run(slot);
  }

  private async run(name: SlotName): Promise<void> {
    const slot = this.slots[name];
    if (!slot || !this.loaded) return;
    this.calls[name]?.abort();
    const call = (this.calls[name] = new AbortController());
    const { opened } = slot;
    const small = opened.mesh.vertices.length / 3 <= SMALL;
    const candidates = small ? Math.min(CANDIDATES, this.loaded.shape.vertices.length / 3) : 1;
    const head = `{"model":${JSON.stringify(this.loaded.model.name)},"top_k":${candidates},"mesh":`;
    this.strip.setCurl(curl(this.loaded.model.name, slot.sample ? null : slot.name));
    this.strip.progress("sending", 0);
    slot.answer = slot.way = null;
    void this.measure(this.loaded);
    try {
      const received = await post<Answer & Correspondence>({
        path: "v1/correspondence",
        body: new Blob([head, opened.json, "}"]),
        type: "application/json",
        signal: call.signal,
        progress: (phase, fraction) => this.strip.progress(phase, fraction),
      });
      this.answered(name, slot, received);
    } catch (error) {
      if (isAbort(error)) return;
      this.strip.fail(error);
      this.colour();
    }
  }

  private answered(name: SlotName, slot: Slot, received: Received<Answer & Correspondence>): void {
    if (!this.loaded || this.slots[name] !== slot) return;
    const { answer } = received;
    slot.answer = answer;
    slot.way = wayBack(answer.correspondence, answer.confidence, this.loaded.neighbours);
    const view = this.stage.views[name];
    if (slot.opened.shape) {
      const turn = alongside(slot.opened.shape, this.loaded.shape, answer);
      if (turn) view.setTurn(turn);
      view.setPlaces(this.loaded.paint.postedPlaces(answer));
    }
    byId<HTMLInputElement>("mesh-vertex").max = String(answer.correspondence.length - 1);
    this.colour();
    this.strip.done(received);
    this.stage.enter();
  }

  private removeSecond(): void {
    this.calls.b?.abort();
    delete this.slots.b;
    this.stage.views.b.setShape(null);
    this.toggleSecond(false);
    this.choice.pin("a", null);
  }

  private toggleSecond(shown: boolean): void {
    byId("frame-b").hidden = !shown;
    byId("mesh-remove").hidden = !shown;
    byId("stage").dataset["views"] = shown ? "3" : "2";
    this.stage.draw();
  }

  /** Dresses every view for the current way of showing. */
  private colour(): void {
    if (!this.loaded) return;
    const { paint, regions } = this.loaded;
    const a = this.slots.a ?? null;
    this.stage.views.reference.setColours(paint.reference(this.show, a?.way ?? null, a?.answer ?? null));
    for (const name of ["a", "b"] as const) {
      const answer = this.slots[name]?.answer;
      this.stage.views[name].setColours(answer ? paint.posted(this.show, answer) : null);
    }
    this.stage.setTextured(this.show === "texture");
    this.stage.setLandmarks(this.show === "landmarks" ? this.landmarks() : []);
    const choose = (vertex: number): void => this.choice.select("reference", vertex);
    byId("mesh-legend").replaceChildren(...legend({ show: this.show, regions, answer: a?.answer ?? null, choose }));
  }

  private landmarks(): Mark[] {
    const landmarks = this.loaded?.regions?.landmarks ?? [];
    return landmarks.flatMap(({ name, vertex }, i) => {
      const colour = css(classColour(i, landmarks.length));
      const named = name.startsWith("Point") ? {} : { name };
      const marks: Mark[] = [{ view: "reference", vertex, colour, ...named }];
      for (const slot of ["a", "b"] as const) {
        const partner = this.slots[slot]?.way?.vertex[vertex] ?? -1;
        if (partner >= 0) marks.push({ view: slot, vertex: partner, colour, ...named });
      }
      return marks;
    });
  }

  private caption(view: ViewName, title: string, mesh: { vertices: Float32Array; faces: Uint32Array }): void {
    byId(`title-${view}`).textContent = title;
    byId(`size-${view}`).textContent =
      `${count(mesh.vertices.length / 3, "vertex")} · ${count(mesh.faces.length / 3, "face")}`;
  }
}
