import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import {
  arrive,
  completed,
  namedNode,
  namedRow,
  readLink,
  unmet,
  viewOf,
  visit,
  writeLink,
} from "../../app/web/address.js";

/** A window whose history is a list of entries, of which the last is on view. */
let entries;
beforeEach(() => {
  entries = [{ state: null, hash: "" }];
  const set = (state, address) => ({ state, hash: address.startsWith("#") ? address : "" });
  globalThis.window = {
    location: {
      pathname: "/",
      search: "",
      get hash() {
        return entries.at(-1).hash;
      },
    },
    history: {
      get state() {
        return entries.at(-1).state;
      },
      pushState: (state, _, address) => entries.push(set(state, address)),
      replaceState: (state, _, address) => entries.splice(-1, 1, set(state, address)),
    },
  };
});

test("links are read strictly, and what is written reads back", () => {
  const states = [
    { trace: "ddtree-64", round: 3, node: 17, view: "replay" },
    { view: "whatif", text: "train-journey", method: "dflash+best-first", budget: 64 },
    { run: "a".repeat(24), node: "ghost" },
    { learn: "5.12" },
    { learn: "5.9.7.10" },
    { view: "results", temperature: "0.5", source: "code", budget: "own", sort: "-tau" },
    { made: ["chat-dart", { prompt: "why & so=\n“ü”", budget: 4 }, null], place: 7, who: "B" },
    { view: "whatif", text: "a", more: "b,c", options: { alpha: 0.5, keep: true }, kept: [{}] },
    { trace: "a", show: "rounds", filter: 'token ~ "wäter" & x=1 #', sort: "-tvd_path" },
  ];
  for (const state of states) assert.deepEqual(readLink(writeLink(state)), state);
  assert.equal(writeLink({ round: 0, node: -4, trace: "A/..", view: null, learn: "0.1" }), "");
  assert.deepEqual(readLink("#filter=%E4%ZZ&show=tree&sort=<b>&filter=a%20b"), { filter: "a b" });
  assert.deepEqual(readLink("#made=%5B%22a&options=7&kept=null&find=%22words%22"), {});
  assert.equal(writeLink({ filter: "😀".repeat(200), sort: "tvd" }), "#sort=tvd"); // too long
  assert.deepEqual(readLink("#trace=chat-dart%2Ccode-ar&rows=3%2D6&trace=%3Cb%3E"), {
    trace: "chat-dart,code-ar",
    rows: "3-6",
  });
  assert.deepEqual(readLink("#round=3&node=ghost&round=x&toString=1&other=short"), {
    round: 3,
    node: "ghost",
  });
  assert.deepEqual(
    [viewOf({}), viewOf({ view: "compare" }), viewOf({ learn: "1.1" })],
    ["run", "compare", "learn"],
  );
});

test("in the studio several runs without a view stand side by side", () => {
  assert.equal(completed("#trace=a,b&place=3"), "#trace=a,b&place=3&view=compare");
  assert.equal(completed("#trace=a%2Cb"), "#trace=a%2Cb&view=compare");
  for (const own of ["", "#trace=a", "#trace=a,b&view=denoise", "#trace=a,b&learn=1.1"])
    assert.equal(completed(own), own);
});

test("what an address names and is not on view is one sentence", () => {
  const shown = { trace: "a", round: 12, node: 4, budget: 0, learn: undefined };
  const said = (hash) => unmet(hash, shown);
  for (const hash of ["", "#round=12&node=4", "#trace=b&place=7", "#made=%5B", "#main"])
    assert.equal(said(hash), "");
  assert.equal(said("#round=99"), "Not found: round 99; shown instead: round 12.");
  assert.equal(
    said("#budget=own&node=5"),
    "Not found: node 5, budget own; shown instead: node 4, budget 0.",
  );
  assert.equal(unmet("#node=5", { round: 1 }), "Not found: node 5.");
  assert.equal(said("#round=x&rond=<b>"), "Not found: round=x, rond=<b>.");
  assert.equal(unmet("#learn=5.9", { learn: "5.9.7.10" }), "");
  assert.match(unmet("#learn=3.99", { learn: "3.9" }), /step 3.99; shown instead: step 3.9\.$/);
});

test("a round replaces the address; a run and a tab are new entries", () => {
  const hashes = () => entries.map((each) => each.hash);
  visit({ trace: "a", round: 1 }, ["t1"]);
  visit({ trace: "a", round: 2 }, ["t1"]);
  assert.deepEqual(hashes(), ["#trace=a&round=2"]); // the first run takes the empty page's place
  visit({ round: 1 }, ["t2"]);
  assert.deepEqual(hashes(), ["#trace=a&round=2", "#round=1"]);
  visit({ view: "whatif", budget: 4 });
  visit({ view: "whatif", budget: 8 });
  visit({ view: "whatif", budget: 8 });
  assert.deepEqual(hashes(), ["#trace=a&round=2", "#round=1", "#view=whatif&budget=8"]);
  assert.deepEqual(entries[1].state.draftscope, {
    view: "run",
    runs: ["t2"],
    opened: "t2",
  });
  assert.ok(!JSON.stringify(hashes()).includes("t2")); // tickets are never in the address
});

test("what an entry asked for takes its place, what is opened after that is a new one", () => {
  const hashes = () => entries.map((each) => each.hash);
  entries = [{ state: null, hash: "#view=compare&trace=a,b" }];
  visit({ view: "compare", trace: "a,b", place: 1 }, ["t1", "t2"]);
  visit({ view: "compare", trace: "a,b", place: 2 }, ["t1", "t2"]);
  assert.deepEqual(hashes(), ["#trace=a,b&place=2&view=compare"]);
  visit({ view: "denoise" });
  visit({ view: "denoise", trace: "c" }, ["t3"]); // opened from the shelf
  assert.equal(entries.length, 3);
  visit({ view: "denoise", trace: "c" }, ["t4"], true); // opened again for this entry
  visit({ view: "denoise" }); // the run is gone
  assert.deepEqual(hashes().slice(1), ["#view=denoise", "#view=denoise"]);
});

test("without an address of its own a frame stays where it is", () => {
  window.history.replaceState = () => {
    throw new Error("SecurityError");
  };
  visit({ round: 2 }, ["t1"]);
  assert.equal(entries.length, 1);
});

test("nothing is written over a tab that the page still has to make", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  entries = [{ state: null, hash: "#learn=3.2" }];
  let isThere = false;
  arrive("learn", () => isThere);
  visit({ trace: "a", round: 1 }, ["t1"]);
  assert.equal(entries.at(-1).hash, "#learn=3.2");
  isThere = true;
  mock.timers.tick(60);
  visit({ learn: "3.3" });
  visit({ trace: "a", round: 1 }, ["t1"]);
  assert.deepEqual(
    entries.map((each) => each.hash),
    ["#learn=3.3", "#trace=a&round=1"],
  );

  const said = [],
    line = { setAttribute() {} };
  const above = { after: (words) => said.push(words) };
  globalThis.document = { createElement: () => line, querySelector: () => above };
  window.addEventListener = () => {};
  arrive("nowhere", () => false); // a link may name a tab that there is not: it is given up
  for (let waited = 0; waited <= 200; waited++) mock.timers.tick(50);
  visit({ learn: "1.1" });
  assert.equal(entries.at(-1).hash, "#learn=1.1");
  assert.deepEqual(said, [line]);
  assert.equal(line.textContent, "Not found: view nowhere.");
  delete globalThis.document;
  mock.timers.reset();
});

test("a node has the number of its row, or a name", () => {
  for (const row of [-1, 0, 12]) assert.equal(namedRow(namedNode(row)), row);
  assert.equal(namedNode(-1), "ghost");
  assert.deepEqual(
    [namedNode(null), namedNode(undefined), namedRow(undefined)],
    Array(3).fill(undefined),
  );
});
