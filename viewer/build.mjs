// Builds app.js and app.css from src/ and styles/: `npm run build`, or `make viewer`, which installs esbuild and terser first.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { minify } from "terser";

const VIEWER = dirname(fileURLToPath(import.meta.url));
const ASSETS = join(VIEWER, "..", "pytest_osmosis", "addons", "viewer", "assets");

// The same hash as sources_digest in pytest_osmosis's tests: each path, a NUL, the bytes, a NUL, in order of paths.
function sourcesDigest() {
  const files = ["package-lock.json", "build.mjs", "tsconfig.json"];
  for (const folder of ["src", "styles"])
    for (const entry of readdirSync(join(VIEWER, folder), { recursive: true, withFileTypes: true }))
      if (entry.isFile()) files.push(relative(VIEWER, join(entry.parentPath, entry.name)));
  const hash = createHash("sha256");
  for (const file of files.map((each) => each.replaceAll("\\", "/")).sort())
    hash.update(file).update("\0").update(readFileSync(join(VIEWER, file))).update("\0");
  return hash.digest("hex");
}

// The notices that the licences of what is bundled ask for: the holders of the copyrights, and the text that all share.
function notices() {
  const permission = "Permission is hereby granted";
  const holders = [], texts = new Set();
  for (const library of ["preact", "@preact/signals", "@preact/signals-core"]) {
    const licence = readFileSync(join(VIEWER, "node_modules", library, "LICENSE"), "utf-8");
    if (!/MIT License/i.test(licence)) throw new Error(`${library}: not under the MIT License`);
    holders.push(`${library}: ${/^Copyright.*$/m.exec(licence)[0].trim()}`);
    texts.add(licence.slice(licence.indexOf(permission)).replace(/\s+/g, " ").trim());
  }
  if (texts.size !== 1) throw new Error("the licences differ: print each of them");
  return `/*! Contains, under the MIT License:\n${holders.join("\n")}\n\n${[...texts][0]}\n*/\n`;
}

// Short names for custom properties of CSS, except for those that scripts set.
function withShortNames(css, js) {
  const names = [...new Set(css.match(/--[a-z][\w-]*/g))].filter((name) => !js.includes(name)).sort();
  const short = new Map(names.map((name, at) => [name, `--${at.toString(36)}`]));
  return css.replace(/--[a-z][\w-]*/g, (name) => short.get(name) ?? name).replace(/(--\w+:) /g, "$1");
}

const made = await build({
  absWorkingDir: VIEWER,
  entryPoints: { app: "src/main.tsx" },
  outdir: ASSETS,
  bundle: true,
  minify: true,
  write: false,
  format: "iife",
  target: ["chrome110", "firefox115", "safari16.4"],
  tsconfigRaw: { compilerOptions: { jsx: "react", jsxFactory: "h", jsxFragmentFactory: "Fragment" } },
  inject: ["src/jsx.ts"],
  legalComments: "none",
  charset: "ascii",
});
const script = made.outputFiles.find((file) => file.path.endsWith(".js")).text;
// esbuild leaves names and calls that a second pass makes shorter, by 2,400 bytes.
const { code: js } = await minify(script, { ecma: 2020, compress: { passes: 3, unsafe_arrows: true }, format: { ascii_only: true } });
const banner = `/* sources ${sourcesDigest()} */\n`;
mkdirSync(ASSETS, { recursive: true });
for (const file of made.outputFiles) {
  // Either would end or open something in the HTML that the text is written into.
  for (const refused of ["</script", "<!--", "</style"])
    if ((file.path.endsWith(".js") ? js : file.text).toLowerCase().includes(refused)) throw new Error(`${file.path}: contains ${refused}`);
  writeFileSync(file.path, banner + (file.path.endsWith(".js") ? notices() + js : withShortNames(file.text, js)));
}
