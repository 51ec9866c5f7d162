import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { ViewInAddress } from "../../app/web/address.js";
import { unopened } from "../../app/web/drop.js";
import { goTo } from "../../app/web/goto.js";
import { exampleOf, ticketsOf, whenEnded } from "../../app/web/named.js";
import { Look } from "../../app/web/studio/look.js";
import { promptNamed } from "../../app/web/studio/mount.js";
import { Turns } from "../../app/web/turns.js";
import { showLinked } from "../../app/web/whatif/linked.js";

const heard = {}; // event of the window → what hears it last
const back = () => heard.popstate();
beforeEach(() => {
  delete heard["draftscope-goto"];
  globalThis.window = {
    location: { hash: "#trace=chat-dart", pathname: "/", search: "" },
    history: { state: null, replaceState: () => {} },
    addEventListener: (name, hear) => Object.assign(heard, { [name]: hear }),
    dispatchEvent: (event) => heard[event.type]?.(event),
  };
  globalThis.IntersectionObserver = class {
    observe() {}
  };
});

const always = () => true,
  tick = () => new Promise((done) => setImmediate(done));

test("a tab that the address is not of says nothing about the address", async () => {
  assert.deepEqual(await ticketsOf({}, null, null), { tickets: [], said: "" });
  const { said } = await ticketsOf({}, {}, null);
  assert.match(said, /may have been cut/);
});

test("an example that ships is one run in this tab, as long as the server has it", async () => {
  const kept = {},
    held = new Set();
  globalThis.sessionStorage = {
    getItem: (name) => kept[name] ?? null,
    setItem: (name, text) => (kept[name] = text),
  };
  let made = 0;
  const source = {
    example: async ({ name }) => {
      const ticket = `${name}-${++made}`;
      held.add(ticket);
      return { ticket, ships: name !== "given" };
    },
    runs: async ({ tickets }) => ({ runs: tickets.filter((each) => held.has(each)) }),
  };
  const opened = async (name) => (await exampleOf(source, name)).ticket;
  assert.equal(await opened("chat"), "chat-1");
  assert.equal(await opened("code"), "code-2");
  assert.equal(await opened("chat"), "chat-1");
  held.clear(); // the server was started anew
  assert.equal(await opened("chat"), "chat-3");
  assert.deepEqual([await opened("given"), await opened("given")], ["given-4", "given-5"]);
  const { tickets } = await ticketsOf(source, { trace: "chat,chat" }, null, always);
  assert.deepEqual(tickets, ["chat-3", "chat-6"]); // beside itself
  delete globalThis.sessionStorage;
});

test("the prompt of a run that an address names is known before it has come", () => {
  const told = { prompts: { code: "Write." } };
  assert.equal(promptNamed({ trace: "code-dart,chat-dart" }, told), "Write.");
  assert.equal(promptNamed({ made: [{ prompt: "Hello" }, false] }, told), "Hello");
  assert.equal(promptNamed({ made: [null] }, told), undefined);
  assert.equal(promptNamed({ round: 3 }, told), undefined);
});

test("runs are waited for, and no file that is being written", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  let line = { state: "running", follows: true },
    asked = 0;
  const source = {
    runs: async () => {
      asked += 1;
      return { runs: [line] };
    },
  };
  await whenEnded(source, ["t"], always);
  assert.equal(asked, 1);

  line = { state: "running", follows: false };
  let isEnded = false;
  const waiting = whenEnded(source, ["t"], always).then(() => (isEnded = true));
  await tick();
  mock.timers.tick(500);
  await tick();
  assert.deepEqual([asked, isEnded], [3, false]);
  line = { state: "done", follows: false };
  mock.timers.tick(500);
  await waiting;

  line = { state: "running", follows: false };
  let isWanted = true;
  const left = whenEnded(source, ["t"], () => isWanted);
  await tick();
  isWanted = false;
  mock.timers.tick(500);
  await left;
  assert.equal(asked, 5); // not once more
  mock.timers.reset();
});

test("an older state is not wanted once a newer one is shown; an error ends one", async () => {
  const asked = [],
    said = mock.method(console, "error", () => {});
  const element = { isConnected: true, getClientRects: () => [] },
    show = (state, _runs, _atStart, isWanted) =>
      new Promise((done, fail) => asked.push({ state, isWanted, done, fail }));
  const view = new ViewInAddress("run", element, { state: () => null, show });
  back();
  assert.deepEqual(
    asked.map(({ isWanted }) => isWanted()),
    [false, true],
  );
  asked[0].done();
  await tick();
  assert.ok(asked[1].isWanted());
  asked[1].fail(new Error("of the address"));
  await tick();
  assert.ok(!view.turns.isTaken); // what is on view is written again
  assert.equal(said.mock.callCount(), 1);
  said.mock.restore();
});

test("what somebody on the page asks for comes before what the address names", async () => {
  const shown = [],
    element = { isConnected: true, getClientRects: () => [] },
    hear = {
      state: () => null,
      show: (state) => shown.push(state),
      go: ({ ticket }) => shown.push(ticket),
    };
  goTo({ view: "run", ticket: "mine" }); // before the tab is there
  await new ViewInAddress("run", element, hear).ready;
  goTo({ view: "learn" });
  goTo({ view: "run", ticket: "another" });
  assert.deepEqual(shown, ["mine", "another"]);
  back();
  assert.deepEqual(shown.at(-1), { trace: "chat-dart" });
});

test("a part that the toolbar lacks is not shown", () => {
  const shown = [],
    studio = {
      rounds: { restore: () => {}, stale: () => {} },
      toolbar: { parts: new Map([["tree"], ["stats"]]) },
      panes: [{ tree: { folded: true } }],
    },
    look = new Look(studio);
  look.showPart = (name) => shown.push(name);
  for (const show of ["stats", "graph", "file", undefined]) look.restore({ show });
  assert.deepEqual(shown, ["stats", "tree", "tree", "tree"]);
});

/** What-if with the file "kept" gone from the server. */
function whatIf() {
  const done = [];
  return {
    done,
    listed: ["fibonacci"],
    list: async () => {},
    source: {},
    complain: () => {},
    open: async (name) => done.push(name) && name !== "gone",
    texts: new Turns(),
    settle: () => done.push("settled"),
  };
}

test("where the server lost a file, the text that the address names is shown", async () => {
  const view = whatIf();
  await showLinked(view, { text: "fibonacci" }, ["gone"], always);
  assert.deepEqual(view.done, ["gone", "fibonacci"]);
  const another = whatIf();
  await showLinked(another, {}, ["gone"], always);
  assert.deepEqual(another.done, ["gone", "settled"]); // then a text to begin with
  const old = whatIf();
  await showLinked(old, { text: "fibonacci" }, [], () => false);
  assert.deepEqual(old.done, []);
});

test("files that a tab does not take are counted", () => {
  assert.equal(unopened([1], [1]), "");
  assert.equal(unopened([1, 2], [1]), "; 1 more is not opened: drop it by itself");
  assert.equal(unopened([1, 2, 3], [1]), "; 2 more are not opened: drop them by themselves");
});
