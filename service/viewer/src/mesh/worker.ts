// Off the main thread: parsing files, writing request bodies, preparing shapes.

import { parseMesh, type Mesh } from "./parse";
import { writePly } from "./ply";
import { prepareShape, type Shape } from "./shape";

export type Job =
  | { kind: "open"; name: string; buffer: ArrayBuffer } // a posted mesh
  | { kind: "reference"; name: string; buffer: ArrayBuffer };

export interface Opened {
  mesh: Mesh;
  shape: Shape | null;
  ply: Blob; // the mesh for the service
}

export type Done = Opened | Shape;
export type Reply = { id: number; done: Done } | { id: number; error: string };

addEventListener("message", ({ data }: MessageEvent<Job & { id: number }>) => {
  try {
    const done = work(data);
    postMessage({ id: data.id, done } satisfies Reply, { transfer: [...buffers(done)] });
  } catch (error) {
    postMessage({ id: data.id, error: explain(error) } satisfies Reply);
  }
});

function work(job: Job): Done {
  const mesh = parseMesh(job.name, job.buffer);
  const shape = prepareShape(mesh);
  if (job.kind === "open") return { mesh, shape, ply: writePly(mesh) };
  if (!shape) throw new Error("The reference mesh cannot be drawn.");
  return shape;
}

/** Every array in an answer, to be handed over instead of copied. */
function buffers(value: object, found = new Set<ArrayBuffer>()): Set<ArrayBuffer> {
  for (const part of Object.values(value) as unknown[]) {
    if (ArrayBuffer.isView(part)) found.add(part.buffer as ArrayBuffer);
    else if (typeof part === "object" && part !== null && !Array.isArray(part)) buffers(part, found);
  }
  return found;
}

function explain(error: unknown): string {
  if (error instanceof SyntaxError) return `This file is not valid JSON: ${error.message}`;
  return error instanceof Error ? error.message : String(error);
}
