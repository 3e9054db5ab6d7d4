// Bundles the page into dist/: one script, its two workers, one style sheet, two fonts, one HTML file.
import { context, build } from "esbuild";
import { cp, mkdir, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const LIMIT = 1.5e6; // bytes, everything a browser could fetch from dist/
const BUNDLED = ["three", "@fontsource-variable/spline-sans", "@fontsource-variable/spline-sans-mono"];

const options = {
  absWorkingDir: here,
  entryPoints: {
    viewer: "src/main.ts",
    "mesh-worker": "src/mesh/worker.ts",
    "layout-worker": "src/graph/layout-worker.ts",
    style: "src/style.css",
  },
  outdir: dist,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none", // whole licences go into licences.txt instead
  loader: { ".woff2": "file" },
  assetNames: "[name]",
  logLevel: "warning",
};

async function licences() {
  const texts = BUNDLED.map(async (name) => {
    const text = await readFile(join(here, "node_modules", name, "LICENSE"), "utf8");
    return `${name}\n${"=".repeat(name.length)}\n\n${text.trim()}\n`;
  });
  await writeFile(join(dist, "licences.txt"), (await Promise.all(texts)).join("\n\n"));
}

async function report() {
  let total = 0;
  for (const name of (await readdir(dist)).sort()) {
    const { size } = await stat(join(dist, name));
    total += size;
    console.log(`${String(size).padStart(9)}  ${name}`);
  }
  console.log(`${String(total).padStart(9)}  in all`);
  if (total > LIMIT) throw new Error(`the page is ${total} bytes, over its limit of ${LIMIT}`);
}

await rm(dist, { recursive: true, force: true });
await mkdir(dist, { recursive: true });
await cp(join(here, "index.html"), join(dist, "index.html"));
await cp(join(here, "icon.svg"), join(dist, "icon.svg"));
await licences();
if (process.argv.includes("--watch")) {
  await (await context({ ...options, minify: false, sourcemap: "inline" })).watch();
} else {
  await build(options);
  await report();
}
