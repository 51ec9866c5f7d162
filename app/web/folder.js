// The files of a folder: which of them open here.

import { sorted } from "./sorting.js";

export const TRACES = /\.jsonl(\.gz)?$/;
export const MOST = 24; // files that are opened at once, as many as the shelf holds
export const POOLED = 500; // traces that are measured together at once
const OTHERS = /^(calibration|results)\.(parquet|csv)$|^table\.json$|\.safetensors$/;
const TEXTS = /\.(json|log)$/; // of anything, so they are looked at last
const LOOKED = 2000; // files of a folder

/** Of a folder's files those that open here, by their names, and how many are left out. Of a
 * checkpoint it is the config; JSON and logs are sent where there is nothing that says by its name
 * what it is. */
export function chosenOf(found) {
  const files = sorted(found, ({ path }) => path), // a browser gives them in any order
    config = files.find(({ path }) => /^[^/]+\/config\.json$/.test(path)),
    traces = files.filter(({ path }) => TRACES.test(path)),
    others = files.filter(({ path }) => OTHERS.test(path.split("/").pop()));
  const some = [traces, others, files.filter(({ path }) => TEXTS.test(path))],
    opens = config ? [config] : (some.find(({ length }) => length) ?? []),
    most = opens === traces ? POOLED : MOST;
  return { chosen: opens.slice(0, most), left: Math.max(0, opens.length - most) };
}

/** All files below a dropped entry, as {file, path}. */
export async function walk(entry, found) {
  if (found.length >= LOOKED) return;
  if (entry.isFile) {
    const file = await new Promise((resolve) => entry.file(resolve, () => resolve(null)));
    if (file) found.push({ file, path: entry.fullPath.replace(/^\//, "") });
    return;
  }
  const reader = entry.createReader(),
    some = () => new Promise((resolve) => reader.readEntries(resolve, () => resolve([])));
  for (let next = await some(); next.length; next = await some())
    for (const each of next) await walk(each, found);
}
