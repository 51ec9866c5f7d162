// The files of a folder: which of them open here.

export const TRACES = /\.jsonl(\.gz)?$/;
export const MOST = 24; // files that are opened at once, as many as the shelf holds
export const POOLED = 500; // traces that are measured together at once
const OTHERS = /^(calibration|results)\.(parquet|csv)$|^table\.json$|\.safetensors$/;
const TEXTS = /\.(json|log)$/; // of anything, so they are looked at last
const LOOKED = 2000; // files of a folder

/** Of a folder's files those that open here, and how many are left out. A checkpoint is its config;
 * JSON and logs are sent where there is nothing that says by its name what it is. */
export function chosenOf(files) {
  const config = files.find(({ path }) => /^[^/]+\/config\.json$/.test(path)),
    traces = files.filter(({ path }) => TRACES.test(path)),
    others = files.filter(({ path }) => OTHERS.test(path.split("/").pop()));
  const some = [traces, others, files.filter(({ path }) => TEXTS.test(path))],
    found = config ? [config] : (some.find(({ length }) => length) ?? []),
    most = found === traces ? POOLED : MOST;
  return { chosen: found.slice(0, most), left: Math.max(0, found.length - most) };
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
