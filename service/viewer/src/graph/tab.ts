// The graph tab: paste or load a graph, let it settle, see what each node was taken for.

import { aboutModel, get, post, type Answer, type Model } from "../call";
import { classColour, css } from "../colour";
import { byId, count, make, percent, reducedMotion, whole } from "../dom";
import { curlKey, origin, Strip } from "../strip";
import { onTheme } from "../theme";
import type { LayoutJob, LayoutReport } from "./layout-worker";
import { Plot } from "./plot";
import { asRequest, sketch, type Sketch } from "./read";

interface NodeLabels extends Answer {
  labels: number[];
  names: string[]; // of the classes, or of the nodes
  confidence: number[];
  probabilities?: number[][];
}

const LONGEST_TEXT = 30_000; // characters a text field shows without stutter

export class GraphTab {
  private readonly strip = new Strip(byId("graph-strip"));
  private readonly picker = byId<HTMLSelectElement>("graph-model");
  private readonly text = byId<HTMLTextAreaElement>("graph-text");
  private readonly plot = new Plot(byId<HTMLCanvasElement>("graph-canvas"));
  private layout: Worker | null = null;
  private long = ""; // a text too long for the field
  private graph: Sketch | null = null;
  private answer: NodeLabels | null = null;
  private call: AbortController | null = null;

  constructor(private readonly models: Model[]) {
    this.picker.replaceChildren(...models.map(({ name }) => new Option(name, name)));
    this.picker.value = (models.find((model) => model.default) ?? models[0]!).name;
    this.picker.addEventListener("change", () => void this.openSample());
    byId("graph-sample").addEventListener("click", () => void this.openSample());
    byId("graph-reset").addEventListener("click", () => this.plot.reset());
    byId("graph-form").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.run(this.text.value.trim() || this.long, "graph.json");
    });
    const file = byId<HTMLInputElement>("graph-file");
    file.addEventListener("change", () => {
      const chosen = file.files?.[0];
      file.value = "";
      if (chosen) void this.openFile(chosen);
    });
    const panel = byId("panel-graph");
    panel.addEventListener("dragover", (event) => event.preventDefault());
    panel.addEventListener("drop", (event) => {
      event.preventDefault();
      const dropped = event.dataTransfer?.files[0];
      if (dropped) void this.openFile(dropped);
    });
    const number = byId<HTMLInputElement>("graph-node");
    number.addEventListener("input", () => {
      const node = number.valueAsNumber;
      this.plot.choose(this.graph && node >= 0 && node < this.graph.numNodes ? Math.floor(node) : null);
    });
    this.plot.onHover = (node) => this.describe(node);
    this.strip.onKey = () => void this.openSample();
    onTheme(() => this.plot.draw());
  }

  async start(): Promise<void> {
    await this.openSample();
  }

  redraw(): void {
    this.plot.draw();
  }

  private async openSample(): Promise<void> {
    const model = this.models.find(({ name }) => name === this.picker.value);
    if (!model) return;
    byId("graph-model-note").textContent = aboutModel(model);
    try {
      const response = await get(`v1/models/${encodeURIComponent(model.name)}/sample`, "application/json");
      await this.open(await response.text(), null);
    } catch (error) {
      this.strip.fail(error);
    }
  }

  private async openFile(file: File): Promise<void> {
    await this.open(await file.text(), file.name);
  }

  private async open(text: string, name: string | null): Promise<void> {
    const fits = text.length <= LONGEST_TEXT;
    this.long = fits ? "" : text;
    this.text.value = fits ? text : "";
    this.text.placeholder = fits
      ? ""
      : `${name ?? "The sample"}: ${whole(text.length)} characters, too long to show. Paste another graph here to replace it.`;
    await this.run(text, name);
  }

  private async run(text: string, name: string | null): Promise<void> {
    this.call?.abort();
    const call = (this.call = new AbortController());
    const model = this.picker.value;
    this.strip.setCurl(curl(model, name));
    try {
      const { body, graph } = asRequest(text, model);
      this.show(sketch(graph));
      this.strip.progress("sending", 0);
      const received = await post<NodeLabels>({
        path: "v1/node-labels?include=probabilities",
        body: new Blob([body]),
        type: "application/json",
        signal: call.signal,
        progress: (phase, fraction) => this.strip.progress(phase, fraction),
      });
      this.answered(received.answer);
      this.strip.done(received);
    } catch (error) {
      this.strip.fail(error);
    }
  }

  private show(graph: Sketch | null): void {
    this.graph = graph;
    this.answer = null;
    this.layout?.terminate();
    this.layout = null;
    this.plot.setGraph(graph);
    this.describe(null);
    byId("graph-legend").replaceChildren();
    byId("graph-size").textContent = graph
      ? `${count(graph.numNodes, "node")} · ${count(graph.edges.length / 2, "edge")}`
      : "";
    if (!graph) return;
    if (graph.positions) {
      this.plot.setPositions(graph.positions);
      return;
    }
    const stage = byId("graph-stage");
    stage.dataset["layout"] = "moving";
    this.layout = new Worker("layout-worker.js", { type: "module" });
    this.layout.addEventListener("message", ({ data }: MessageEvent<LayoutReport>) => {
      this.plot.setPositions(data.positions);
      if (data.settled) stage.dataset["layout"] = "settled";
    });
    const job: LayoutJob = { numNodes: graph.numNodes, edges: graph.edges, still: reducedMotion() };
    this.layout.postMessage(job);
  }

  private answered(answer: NodeLabels): void {
    this.answer = answer;
    const classes = this.classes();
    this.plot.setLabels(answer.labels, classes.length);
    byId<HTMLInputElement>("graph-node").max = String(answer.labels.length - 1);
    const counts = new Array<number>(classes.length).fill(0);
    for (const label of answer.labels) counts[label]!++;
    const rows = classes.map((name, label) => this.legendRow(name, label, counts[label]!));
    byId("graph-legend").replaceChildren(...rows);
    this.describe(null);
  }

  private classes(): string[] {
    const known = this.models.find(({ name }) => name === this.picker.value)?.labels;
    if (known) return known;
    const count = Math.max(0, ...(this.answer?.labels ?? [])) + 1;
    return Array.from({ length: count }, (_, i) => `Class ${i}`);
  }

  private legendRow(name: string, label: number, count: number): HTMLElement {
    const dot = make("span", { class: "dot" });
    dot.style.background = css(classColour(label, this.classes().length));
    const button = make(
      "button",
      { type: "button", class: "plain" },
      dot,
      make("span", { class: "legend-name" }, name),
      make("span", { class: "number" }, whole(count)),
    );
    for (const event of ["mouseenter", "focus"]) button.addEventListener(event, () => this.plot.setLit(label));
    for (const event of ["mouseleave", "blur"]) button.addEventListener(event, () => this.plot.setLit(null));
    return make("li", {}, button);
  }

  private describe(node: number | null): void {
    const box = byId("graph-about");
    const number = byId<HTMLInputElement>("graph-node");
    if (document.activeElement !== number) number.value = node === null ? "" : String(node);
    if (node === null || !this.answer) {
      box.replaceChildren(make("p", { class: "note" }, "Point at a node, or type its number."));
      return;
    }
    const label = this.answer.labels[node]!;
    const classes = this.classes();
    const chances = this.answer.probabilities?.[node] ?? null;
    const order = chances ? chances.map((_, i) => i).sort((p, q) => chances[q]! - chances[p]!) : [label];
    const rows = order.slice(0, 7).map((i) => {
      const chance = chances ? chances[i]! : this.answer!.confidence[node]!;
      const fill = make("span", { class: "bar-fill" });
      fill.style.transform = `scaleX(${chance})`;
      fill.style.background = css(classColour(i, classes.length));
      return make(
        "li",
        { class: i === label ? "best" : "" },
        make("span", { class: "bar-name" }, classes[i] ?? String(i)),
        make("span", { class: "bar", "aria-hidden": "true" }, fill),
        make("span", { class: "number" }, percent(chance)),
      );
    });
    box.replaceChildren(make("ul", { class: "bars small" }, ...rows));
  }
}

function curl(model: string, name: string | null): string {
  const url = `${origin()}/v1/node-labels`;
  const send = `-H 'Content-Type: application/json' --data-binary`;
  if (name) return `curl -s ${url}${curlKey()} \\\n  ${send} @${name}`;
  return `curl -s${curlKey()} ${origin()}/v1/models/${model}/sample |\n  curl -s${curlKey()} ${url} \\\n    ${send} @-`;
}
