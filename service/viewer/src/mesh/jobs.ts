// Asking the mesh worker, as promises.

import type { Shape } from "./shape";
import type { Job, Opened, Reply } from "./worker";

const worker = new Worker("mesh-worker.js", { type: "module" });
const waiting = new Map<number, { resolve: (done: never) => void; reject: (error: Error) => void }>();
let lastId = 0;

worker.addEventListener("message", ({ data }: MessageEvent<Reply>) => {
  const caller = waiting.get(data.id);
  waiting.delete(data.id);
  if ("error" in data) caller?.reject(new Error(data.error));
  else caller?.resolve(data.done as never);
});

function ask<T>(job: Job, moved: Transferable[] = []): Promise<T> {
  const id = ++lastId;
  return new Promise<T>((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    worker.postMessage({ ...job, id }, moved);
  });
}

export function openMesh(name: string, buffer: ArrayBuffer): Promise<Opened> {
  return ask<Opened>({ kind: "open", name, buffer }, [buffer]);
}

export function openReference(buffer: ArrayBuffer): Promise<Shape> {
  return ask<Shape>({ kind: "reference", name: "reference.ply", buffer }, [buffer]);
}
