// The same question from a shell: the file as it is, by its media type.

import { curlKey, origin, quote } from "../strip";

const TYPES: Record<string, string> = {
  ply: "model/ply",
  obj: "model/obj",
  stl: "model/stl",
  off: "model/off",
  glb: "model/gltf-binary",
  json: "application/json",
};

/** For a file, or for the model's sample when there is none; `options` are of the query string. */
export function curl(model: string, file: string | null, options: Record<string, string>): string {
  const key = curlKey();
  const more = Object.entries(options).map(([name, value]) => `${name}=${value}`);
  if (file === null) {
    const send = `-H 'Content-Type: application/json' --data-binary @-`;
    return `curl -s${key} ${origin()}/v1/models/${model}/sample |\n  curl -s${key} ${quote([`${origin()}/v1/correspondence`, more.join("&")].filter(Boolean).join("?"))} \\\n    ${send}`;
  }
  const type = TYPES[file.toLowerCase().split(".").pop() ?? ""] ?? "application/json";
  const query = [`model=${encodeURIComponent(model)}`, ...more].join("&");
  const url = quote(`${origin()}/v1/correspondence?${query}`);
  return `curl -s ${url}${key} \\\n  -H 'Content-Type: ${type}' \\\n  --data-binary @${quote(file)}`;
}
