// The page: asks what is served, opens the tabs that have a model, wakes each when it is first shown.

import { listModels, type Model } from "./call";
import { byId, make } from "./dom";
import { DigitTab } from "./digit/tab";
import { GraphTab } from "./graph/tab";
import { MeshTab } from "./mesh/tab";
import { Strip } from "./strip";
import { startTabs } from "./tabs";
import { startTheme } from "./theme";

interface Tab {
  start?: () => Promise<void>;
  redraw: () => void;
}

const TASKS: Record<string, { task: string; build: (models: Model[]) => Tab }> = {
  mesh: { task: "correspondence", build: (models) => new MeshTab(models) },
  digit: { task: "graph-label", build: (models) => new DigitTab(models) },
  graph: { task: "node-labels", build: (models) => new GraphTab(models) },
};

const awake = new Map<string, Tab>();

async function main(): Promise<void> {
  startTheme();
  const strip = new Strip(byId("page-strip"));
  strip.onKey = () => location.reload();
  let models: Model[];
  try {
    models = await listModels();
  } catch (error) {
    byId("page-problem").hidden = false;
    strip.fail(error);
    return;
  }
  await painted(); // WebGL takes a while to start; the page should be seen first
  startTabs((name) => wake(name, models));
  document.documentElement.dataset["ready"] = "true";
}

function painted(): Promise<void> {
  return new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}

function wake(name: string, models: Model[]): void {
  const known = awake.get(name);
  if (known) {
    known.redraw();
    return;
  }
  const { task, build } = TASKS[name]!;
  const own = models.filter((model) => model.task === task && (name !== "digit" || model.image));
  if (own.length === 0) {
    const words = `This service has no model for ${task}. Add a bundle to its model directory and it appears here.`;
    byId(`panel-${name}`).replaceChildren(make("p", { class: "empty" }, words));
    return;
  }
  try {
    const tab = build(own);
    awake.set(name, tab);
    void tab.start?.();
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    byId(`panel-${name}`).replaceChildren(make("p", { class: "empty" }, `This browser cannot show it: ${words}`));
  }
}

void main();
