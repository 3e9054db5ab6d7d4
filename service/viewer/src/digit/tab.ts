// The digit tab: draw, and watch the picture become a graph and the graph a class.

import { aboutModel, post, type Answer, type Model } from "../call";
import { byId, count, make, percent } from "../dom";
import { curlKey, origin, quote, Strip } from "../strip";
import { onTheme } from "../theme";
import { Pad } from "./pad";
import { plotGraph, type ImageGraph } from "./plot";
import { asPicture, digitStrokes } from "./strokes";

interface GraphLabel extends Answer {
  label: number;
  name?: string;
  probabilities: number[];
  graph?: ImageGraph;
}

export class DigitTab {
  private readonly strip = new Strip(byId("digit-strip"));
  private readonly picker = byId<HTMLSelectElement>("digit-model");
  private readonly plot = byId<HTMLCanvasElement>("digit-plot");
  private readonly pad = new Pad(byId<HTMLCanvasElement>("digit-pad"), () => void this.ask());
  private graph: ImageGraph | null = null;
  private busy = false;
  private stale = false; // drawn on since the request in flight was sent

  constructor(private readonly models: Model[]) {
    this.picker.replaceChildren(...models.map(({ name }) => new Option(name, name)));
    // superpixels are why a picture is a graph here at all
    this.picker.value = (models.find(({ image }) => image === "superpixels") ?? models[0]!).name;
    this.picker.addEventListener("change", () => void this.changeModel());
    byId("digit-clear").addEventListener("click", () => this.pad.setStrokes([]));
    document.addEventListener("keydown", (event) => this.key(event));
    this.strip.onKey = () => void this.ask();
    onTheme(() => this.redraw());
    new ResizeObserver(() => plotGraph(this.plot, this.graph)).observe(this.plot);
    void this.changeModel();
  }

  redraw(): void {
    this.pad.draw();
    plotGraph(this.plot, this.graph);
  }

  private key(event: KeyboardEvent): void {
    const typing = (event.target as Element).matches?.("input, textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey || typing || byId("panel-digit").hidden) return;
    if (event.key === "Escape" || event.key === "Delete" || event.key === "Backspace") this.pad.setStrokes([]);
    else if (/^\d$/.test(event.key)) this.pad.setStrokes(digitStrokes(Number(event.key)));
  }

  private async changeModel(): Promise<void> {
    const model = this.models.find(({ name }) => name === this.picker.value);
    byId("digit-model-note").textContent = model ? aboutModel(model) : "";
    this.bars(null);
    const url = quote(`${origin()}/v1/graph-label?model=${encodeURIComponent(this.picker.value)}`);
    this.strip.setCurl(`curl -s ${url}${curlKey()} \\\n  -H 'Content-Type: image/png' \\\n  --data-binary @digit.png`);
    await this.ask();
  }

  /** One request at a time: while one is away, drawing goes on, and the newest picture follows it. */
  private async ask(): Promise<void> {
    byId("digit-hint").hidden = this.pad.strokes.length > 0;
    if (this.pad.strokes.length === 0) {
      this.answered(null);
      this.strip.idle("Draw, and the answer follows the pen.");
      return;
    }
    this.stale = true;
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.stale && this.pad.strokes.length > 0) {
        this.stale = false;
        await this.send();
      }
    } catch (error) {
      this.strip.fail(error);
    } finally {
      this.busy = false;
    }
  }

  private async send(): Promise<void> {
    const canvas = asPicture(this.pad.strokes);
    const body = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
    if (!body) return;
    const path = `v1/graph-label?model=${encodeURIComponent(this.picker.value)}&include=graph`;
    const received = await post<GraphLabel>({ path, body, type: "image/png" });
    if (this.pad.strokes.length === 0) return;
    this.answered(received.answer);
    this.strip.done(received);
  }

  private answered(answer: GraphLabel | null): void {
    this.graph = answer?.graph ?? null;
    plotGraph(this.plot, this.graph);
    byId("digit-size").textContent = this.graph
      ? `${count(this.graph.num_nodes, "node")} · ${count(this.graph.edges.length, "edge")}`
      : "";
    this.bars(answer);
  }

  private bars(answer: GraphLabel | null): void {
    const model = this.models.find(({ name }) => name === this.picker.value);
    const list = byId("digit-bars");
    const classes = answer?.probabilities.length ?? model?.labels?.length ?? 10;
    if (list.children.length !== classes) {
      list.replaceChildren(...Array.from({ length: classes }, (_, i) => bar(model, i)));
    }
    for (let i = 0; i < classes; i++) {
      const row = list.children[i] as HTMLElement;
      const probability = answer?.probabilities[i] ?? 0;
      row.classList.toggle("best", answer?.label === i);
      row.querySelector<HTMLElement>(".bar-fill")!.style.transform = `scaleX(${probability})`;
      row.querySelector(".number")!.textContent = answer ? percent(probability) : "";
    }
    byId("digit-answer").textContent = answer ? (answer.name ?? String(answer.label)) : "–";
    byId("digit-sure").textContent = answer ? `${percent(answer.probabilities[answer.label]!)} sure` : "";
  }
}

function bar(model: Model | undefined, i: number): HTMLElement {
  const track = make("span", { class: "bar", "aria-hidden": "true" }, make("span", { class: "bar-fill" }));
  const name = make("span", { class: "bar-name" }, model?.labels?.[i] ?? String(i));
  return make("li", {}, name, track, make("span", { class: "number" }));
}
