// The mesh tab: posts a mesh, stands it beside the reference, carries colours, marks partners.

import { aboutModel, get, isAbort, postForArrays, type Arrays, type Model, type Received } from "../call";
import { classColour, css } from "../colour";
import { byId, count } from "../dom";
import { Strip } from "../strip";
import { onTheme } from "../theme";
import { NO_ATTRIBUTES, readAnswer, type Attributes, type Correspondence } from "./answer";
import { curl } from "./curl";
import { Choice } from "./choice";
import { openMesh, openReference } from "./jobs";
import { legend } from "./legend";
import type { Mark } from "./overlay";
import { Paint, type Show } from "./paint";
import type { Shape } from "./shape";
import { alongside, stance } from "./stance";
import { Stage, type ViewName } from "./stage";
import type { Opened } from "./worker";

type SlotName = "a" | "b";

interface Slot {
  name: string; // of the file
  sample: boolean;
  opened: Opened;
  answer: Correspondence | null;
}

interface Loaded {
  model: Model;
  shape: Shape;
  attributes: Attributes;
  paint: Paint;
}

const CANDIDATES = 3; // partners asked for per vertex
const WANTED = ["landmarks", "segments", "points", "reverse"]; // of what the model can include

export class MeshTab {
  private readonly strip = new Strip(byId("mesh-strip"));
  private readonly stage: Stage;
  private readonly picker = byId<HTMLSelectElement>("mesh-model");
  private readonly refine = byId<HTMLInputElement>("mesh-refine");
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
    this.picker.value = (models.find((model) => model.default) ?? models[0]!).name;
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
    this.refine.addEventListener("change", () => void this.runAll());
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
    byId("mesh-refine-field").hidden = !model.refine;
    try {
      const [response, attributes] = await Promise.all([
        get(this.chosenPath("reference"), "model/ply"),
        this.fetchAttributes(model),
      ]);
      const shape = await openReference(await response.arrayBuffer());
      this.loaded = { model, shape, attributes, paint: new Paint(shape, attributes) };
      this.offer(attributes);
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
    if (await this.loadModel()) await this.runAll();
  }

  private async runAll(): Promise<void> {
    for (const name of ["a", "b"] as const) if (this.slots[name]) await this.run(name);
  }

  private async fetchAttributes({ include }: Model): Promise<Attributes> {
    if (!include?.includes("landmarks") && !include?.includes("segments")) return NO_ATTRIBUTES;
    return (await (await get(this.chosenPath("attributes"), "application/json")).json()) as Attributes;
  }

  /** Only what this reference has can be shown. */
  private offer({ landmarks, segments }: Attributes): void {
    const there = { landmarks: Object.keys(landmarks).length > 0, segments: segments.names.length > 0 };
    for (const [way, known] of Object.entries(there)) {
      const input = document.querySelector<HTMLInputElement>(`#mesh-show input[value="${way}"]`)!;
      input.disabled = !known;
      input.parentElement!.title = known ? "" : `The reference of this model has no ${way}.`;
      if (!known && this.show === way) document.querySelector<HTMLInputElement>("#mesh-show input")!.click();
    }
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
    this.slots[slot] = { name, sample, opened, answer: null };
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
    const { model, shape } = this.loaded;
    const include = WANTED.filter((name) => model.include?.includes(name));
    const refine = (model.refine ?? false) && this.refine.checked;
    const top_k = Math.min(CANDIDATES, shape.vertices.length / 3);
    const options = { ...(include.length ? { include: include.join(",") } : {}), ...(refine ? { refine: "true" } : {}) };
    const query = new URLSearchParams({ model: model.name, top_k: String(top_k), ...options });
    this.strip.setCurl(curl(model.name, slot.sample ? null : slot.name, options));
    this.strip.progress("sending", 0);
    slot.answer = null;
    try {
      const received = await postForArrays({
        path: `v1/correspondence?${query}`,
        body: slot.opened.ply,
        type: "model/ply",
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

  private answered(name: SlotName, slot: Slot, received: Received<Arrays>): void {
    if (!this.loaded || this.slots[name] !== slot) return;
    const answer = (slot.answer = readAnswer(received.answer));
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
    const { paint, attributes } = this.loaded;
    const answer = this.slots.a?.answer ?? null;
    this.stage.views.reference.setColours(paint.reference(this.show, answer));
    for (const name of ["a", "b"] as const) {
      const own = this.slots[name]?.answer;
      this.stage.views[name].setColours(own ? paint.posted(this.show, own) : null);
    }
    this.stage.setLook(this.show === "texture" ? "textured" : this.show === "segments" ? "classes" : "blended");
    this.stage.setLandmarks(this.show === "landmarks" ? this.landmarks() : []);
    const choose = (vertex: number): void => this.choice.select("reference", vertex);
    byId("mesh-legend").replaceChildren(...legend({ show: this.show, attributes, answer, choose }));
  }

  private landmarks(): Mark[] {
    return Object.entries(this.loaded?.attributes.landmarks ?? {}).flatMap(([name, vertex], i, all) => {
      const colour = css(classColour(i, all.length));
      const marks: Mark[] = [{ view: "reference", at: vertex, colour, name }];
      for (const slot of ["a", "b"] as const) {
        const at = this.slots[slot]?.answer?.landmarks.get(name);
        if (at) marks.push({ view: slot, at, colour, name });
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
