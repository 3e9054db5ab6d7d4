// Runs the force layout off the main thread and reports where the nodes are, about once per frame.

import { Forces } from "./forces";

export interface LayoutJob {
  numNodes: number;
  edges: Uint32Array;
  still: boolean; // report only the end
}

export interface LayoutReport {
  positions: Float32Array;
  settled: boolean;
}

const FRAME = 14; // milliseconds of work between reports

addEventListener("message", ({ data }: MessageEvent<LayoutJob>) => {
  const forces = new Forces(data.numNodes, data.edges);
  const work = (): void => {
    const started = performance.now();
    do forces.step();
    while (!forces.settled && (data.still || performance.now() - started < FRAME));
    const report: LayoutReport = { positions: forces.positions.slice(), settled: forces.settled };
    postMessage(report);
    if (!forces.settled) setTimeout(work);
  };
  work();
});
