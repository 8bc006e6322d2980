// Builds the pages into a folder: node build.mjs [--out FOLDER] [--watch]. Equal sources give equal bytes.
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const given = process.argv.indexOf("--out");
const out = given > 0 ? process.argv[given + 1] : join(here, "../src/penstock/web/static");
const common = {
  bundle: true, minify: true, format: "esm", target: "es2022", charset: "utf8", legalComments: "none", write: true,
  logLevel: "warning", absWorkingDir: here,
};

const hashOf = (data) => createHash("sha256").update(data).digest("hex").slice(0, 10);

function put(name, data) {
  const [, stem, ext] = /^(.*)\.(\w+)$/.exec(name);
  const hashed = `${stem}-${hashOf(data)}.${ext}`;
  writeFileSync(join(out, "assets", hashed), data);
  return hashed;
}

async function build() {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(join(out, "assets"), { recursive: true });
  const worker = await esbuild.build({ ...common, entryPoints: ["src/worker.ts"], write: false, outdir: "x" });
  const workerName = put("worker.js", worker.outputFiles[0].contents);
  const texts = {};
  for (const file of readdirSync(join(here, "src/text")).sort()) {
    const language = file.replace(".json", "");
    if (language !== "en") texts[language] = put(file, JSON.stringify(JSON.parse(readFileSync(join(here, "src/text", file)))));
  }
  const result = await esbuild.build({
    ...common,
    entryPoints: { app: "src/main.tsx", style: "src/style.css" },
    outdir: join(out, "assets"), splitting: true, metafile: true, jsx: "automatic", jsxImportSource: "preact",
    entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]", assetNames: "[name]-[hash]",
    define: { __WORKER__: JSON.stringify(workerName), __TEXTS__: JSON.stringify(texts) },
  });
  const named = (stem, ext) => readdirSync(join(out, "assets")).find((f) => f.startsWith(`${stem}-`) && f.endsWith(ext));
  const index = readFileSync(join(here, "src/index.html"), "utf8")
    .replace("{script}", `{root}assets/${named("app", ".js")}`)
    .replace("{style}", `{root}assets/${named("style", ".css")}`);
  writeFileSync(join(out, "index.html"), index);
  cpSync(join(here, "src/icon.svg"), join(out, "icon.svg"));
  const first = firstFiles(result.metafile).map((path) => path.split("/").pop());
  writeFileSync(join(out, "THIRD_PARTY.txt"), thirdParty());
  writeFileSync(join(out, "MANIFEST.json"), manifest([...first, named("style", ".css"), "index.html"]));
}

// The entry and what it imports statically: loaded before anything is shown.
function firstFiles(meta) {
  const entry = Object.keys(meta.outputs).find((path) => meta.outputs[path].entryPoint === "src/main.tsx");
  const seen = new Set(), open = [entry];
  while (open.length) {
    const path = open.pop();
    if (seen.has(path)) continue;
    seen.add(path);
    open.push(...meta.outputs[path].imports.filter((i) => i.kind === "import-statement").map((i) => i.path));
  }
  return [...seen].sort();
}

function manifest(first) {
  const files = {};
  for (const folder of ["", "assets/"]) {
    for (const name of readdirSync(join(out, folder)).sort()) {
      if (name.includes(".") && name !== "MANIFEST.json") {
        const data = readFileSync(join(out, folder, name));
        files[folder + name] = { bytes: data.length, sha256: createHash("sha256").update(data).digest("hex") };
      }
    }
  }
  return JSON.stringify({ first: first.sort(), files }, null, 1) + "\n";
}

// The licences of what is shipped: minified files carry no comments.
function thirdParty() {
  const packages = JSON.parse(readFileSync(join(here, "package.json"))).dependencies;
  const names = [...Object.keys(packages), "@preact/signals-core"].sort();
  const parts = names.map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json")));
    const file = readdirSync(folder).find((f) => /^licen[cs]e/i.test(f));
    return `${name} ${version} (${license})\n\n${file ? readFileSync(join(folder, file), "utf8").trim() : ""}\n`;
  });
  return `The pages contain these packages.\n\n${parts.join("\n---\n\n")}`;
}

await build();
const sum = (names) => names.reduce((n, f) => n + gzipSync(readFileSync(join(out, f)), { level: 9 }).length, 0);
const { first } = JSON.parse(readFileSync(join(out, "MANIFEST.json")));
const all = readdirSync(join(out, "assets")).map((f) => `assets/${f}`);
const place = (f) => (existsSync(join(out, f)) ? f : `assets/${f}`);
console.log(`first load ${(sum(first.map(place)) / 1000).toFixed(1)} kB, all ${(sum(all) / 1000).toFixed(1)} kB (gzip)`);
