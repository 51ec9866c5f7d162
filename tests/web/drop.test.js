import assert from "node:assert/strict";
import { test } from "node:test";
import { likely } from "../../app/web/drop.js";
import { chosenOf } from "../../app/web/folder.js";

const files = (...paths) => paths.map((path) => ({ path, file: path })),
  chosen = (...paths) => chosenOf(files(...paths)).chosen.map(({ path }) => path);

test("of a folder its traces are sent, of a checkpoint the config alone", () => {
  assert.deepEqual(chosen("r/a.jsonl", "r/deep/b.jsonl.gz", "r/sweep.json", "r/results.parquet"), [
    "r/a.jsonl",
    "r/deep/b.jsonl.gz",
  ]);
  assert.deepEqual(chosen("m/config.json", "m/model.safetensors"), ["m/config.json"]);
  assert.deepEqual(chosen("c/tvd.html", "c/calibration.parquet"), ["c/calibration.parquet"]);
  assert.deepEqual(chosen("d/notes.txt", "d/photo.png"), []);
  const answers = ["e/response.json", "e/vllm.log"];
  assert.deepEqual(chosen(...answers, "e/notes.txt"), answers);
  assert.deepEqual(chosen(...answers, "e/results.csv"), ["e/results.csv"]);
  assert.deepEqual(chosen("m/deep/config.json", "m/run.jsonl"), ["m/run.jsonl"]);
});

test("a folder's files come by their names, whatever the browser's order", () => {
  assert.deepEqual(chosen("r/run-10.jsonl", "r/run-2.jsonl"), ["r/run-2.jsonl", "r/run-10.jsonl"]);
});

test("more files than are opened are counted", () => {
  const many = (count, ending) => Array.from({ length: count }, (_, at) => `r/${at}${ending}`),
    counted = (...all) => {
      const { chosen, left } = chosenOf(files(...all));
      return [chosen.length, left];
    };
  assert.deepEqual(counted(...many(30, ".json")), [24, 6]);
  assert.deepEqual(counted(...many(530, ".jsonl")), [500, 30]); // measured together
});

test("what is dragged is guessed by what a browser tells before the drop", () => {
  const items = (...types) => types.map((type) => ({ kind: "file", type }));
  assert.equal(likely(items("application/gzip")), "trace");
  assert.equal(likely(items("image/png")), "foreign");
  assert.equal(likely(items("application/pdf")), "foreign");
  assert.equal(likely(items("", "")), "several");
  assert.equal(likely(items("")), "");
  assert.equal(likely([{ kind: "string", type: "text/plain" }]), "");
});
