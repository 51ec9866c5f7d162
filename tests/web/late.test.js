// Answers that come late: of an older question, or when something else is on view.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Background } from "../../app/web/background.js";
import { RunChooser } from "../../app/web/calibration/chooser.js";
import { Calibration } from "../../app/web/calibration/view.js";
import { Together } from "../../app/web/compare/together.js";
import { GraphCard } from "../../app/web/denoise/graph.js";
import { seek } from "../../app/web/denoise/linked.js";
import { DenoiseView } from "../../app/web/denoise/view.js";
import { Gallery, shelve } from "../../app/web/gallery.js";
import { Permalink } from "../../app/web/link.js";
import { openNamed } from "../../app/web/named.js";
import { Pane } from "../../app/web/pane.js";
import { Results } from "../../app/web/results/view.js";
import { RoundsTable } from "../../app/web/rounds/view.js";
import { RunsOnView } from "../../app/web/studio/runs-on-view.js";
import { keepTickets, UNASKED } from "../../app/web/studio/shelf.js";
import { TreeView } from "../../app/web/tree.js";
import { Turns } from "../../app/web/turns.js";
import { showCosts, showText } from "../../app/web/whatif/files.js";

const nothing = () => {};

/** An object of a class that was not built: these fields are all it has. */
const made = (kind, fields) => Object.assign(Object.create(kind.prototype), fields);

/** A route of the server that answers when the test says so: its questions and their answers. */
function late() {
  const asked = [],
    answers = [];
  const route = (question) => {
    asked.push(question);
    return new Promise((answer) => answers.push(answer));
  };
  return Object.assign(route, { asked, answers });
}

test("what was asked for last is wanted, until it has come", () => {
  const turns = new Turns();
  assert.ok(!turns.isTaken);
  const first = turns.take(),
    second = turns.take();
  assert.deepEqual([first(), second(), turns.isTaken], [false, true, true]);
  turns.end();
  assert.deepEqual([first(), second(), turns.isTaken], [false, false, false]);
});

/** Work that is done as soon as it is followed. */
function work() {
  const said = [],
    feed = { opened: [], leave: nothing, open: (ticket) => feed.opened.push(ticket) },
    source = { stopped: [], stop: async ({ ticket }) => source.stopped.push(ticket) },
    result = late(),
    hear = { result, done: (found) => said.push(found), complain: (words) => said.push(words) },
    bar = { style: {} },
    parts = { element: {}, words: {}, act: {}, bar, title: "Work", turns: new Turns() };
  return { said, feed, source, result, work: made(Background, { feed, source, hear, ...parts }) };
}

test("of work that was begun twice the later one goes on", async () => {
  const { feed, source, work: both } = work(),
    route = late(),
    begun = [both.begin(route("one")), both.begin(route("two"))];
  route.answers[1]({ ticket: "second" });
  route.answers[0]({ ticket: "first" });
  assert.deepEqual(await Promise.all(begun), [null, { ticket: "second" }]);
  assert.deepEqual([feed.opened, source.stopped], [["second"], ["first"]]);
});

test("a result that comes when other work was begun is not shown", async () => {
  const { said, result, work: both } = work(),
    done = both._done("first");
  both.begin(Promise.resolve({ ticket: "second" }));
  result.answers[0]({ found: "of the first" });
  await done;
  assert.deepEqual(said, [""]); // what was said before is taken away
  const again = both._done("second");
  result.answers[1]({ found: "of the second" });
  await again;
  assert.deepEqual(said.at(-1), { found: "of the second" });
});

test("a node's numbers are those of its own run", async () => {
  const inspect = late(),
    shown = [],
    pane = made(Pane, {
      details: new Map(),
      feed: { ticket: "A" },
      at: 3,
      row: 5,
      source: { inspect },
      inspector: { open: true, wait: nothing, show: (node) => shown.push(node) },
      tree: { label: nothing, scene: { inSight: nothing } },
    });
  const first = pane._detail(5);
  pane.details.clear(); // another run is opened
  pane.feed.ticket = "B";
  inspect.answers[0]({ p: "of A" });
  await first;
  const second = pane._detail(5);
  inspect.answers[1]({ p: "of B" });
  await second;
  assert.deepEqual(shown, [{ p: "of B" }]);
});

test("a calibrated graph that was left, or whose run has gone, is not drawn", async () => {
  const outline = late(),
    graph = made(GraphCard, {
      turns: new Turns(),
      whole: null,
      source: { outline },
      run: { feed: { ticket: "A" } },
      hear: { turned: nothing, complain: assert.fail },
    });
  const gone = graph.turn(true);
  graph.leave();
  outline.answers[0]({ graph: "of A" });
  assert.equal(await gone, false);
  assert.equal(graph.whole, null);
  const left = graph.turn(true);
  assert.equal(await graph.turn(false), true);
  outline.answers[1]({ error: "of a graph that nobody waits for" });
  assert.equal(await left, false);
  assert.equal(graph.whole, null);
});

test("what two runs do not share is said of these two", async () => {
  const compare = late(),
    run = (ticket) => ({ header: {}, feed: { ticket } }),
    view = made(DenoiseView, { asking: new Turns(), unlike: null, source: { compare } });
  Object.assign(view, { runs: [run("A"), run("B")], _drawAll: nothing });
  const old = view._ask();
  view.asking.end(); // as `open` does
  Object.assign(view, { unlike: null, runs: [run("C"), run("D")] });
  const now = view._ask();
  compare.answers[1]({ cautions: [] });
  compare.answers[0]({ cautions: ["the prompts differ"] });
  await Promise.all([old, now]);
  assert.deepEqual(view.unlike, []);
});

test("a step of an address is forgotten once somebody steps by hand", () => {
  const runs = [{ feed: { active: true }, steps: Array(5) }],
    player = { follow: true },
    view = { wanted: { round: 40 }, reach: 5, runs, player };
  seek(view);
  assert.deepEqual(view.wanted, { round: 40 });
  player.follow = false;
  seek(view);
  assert.equal(view.wanted, null);
});

test("what was unfolded stays unfolded, whichever answer comes last", async () => {
  const onOpen = late(),
    drawn = [],
    plan = { round: {} },
    window = { holdsAll: true },
    tree = made(TreeView, { plan, window, onOpen, folded: true, opened: new Set() });
  Object.assign(tree, { folds: new Turns(), _draw: (_, fold) => drawn.push(fold), fit: nothing });
  const opened = [tree.open([1]), tree.open([2])];
  assert.deepEqual(onOpen.asked, [[1], [1, 2]]);
  onOpen.answers[1]("with both");
  onOpen.answers[0]("with one");
  await Promise.all(opened);
  assert.deepEqual(drawn, ["with both"]);
});

test("of two examples that were clicked the second is opened, or both side by side", async () => {
  const example = late(),
    picked = [],
    turns = { drawing: new Turns(), picking: new Turns() },
    gallery = made(Gallery, { ...turns, source: { example }, onPick: (some) => picked.push(some) });
  for (const all of [false, true]) {
    gallery.beside = all;
    const clicks = ["large", "small"].map((name) => gallery._examples([name]));
    example.answers.pop()({ ticket: "small" });
    example.answers.pop()({ ticket: "large" });
    await Promise.all(clicks);
  }
  assert.deepEqual(picked, [["small"], ["small"], ["large"]]);
});

test("a run that is opened meanwhile takes an example's place, or stands beside it", async () => {
  const run = { method: "dart", rounds: 1, ticket: "run" };
  for (const all of [false, true]) {
    const example = late(),
      picked = [],
      parts = { picking: new Turns(), source: { example }, onPick: (some) => picked.push(some) },
      gallery = made(Gallery, {
        beside: all,
        ...parts,
        _card: (_title, _words, _label, act) => act,
      });
    const clicked = gallery._examples(["late"]);
    gallery._run(run)();
    example.answers[0]({ ticket: "late" });
    await clicked;
    assert.deepEqual(picked, all ? [["run"], ["late"]] : [["run"]]);
  }
});

test("an example that is answered after Start is not opened, in Run or Compare", async () => {
  for (const all of [false, true]) {
    const example = late(),
      picking = new Turns(),
      gallery = made(Gallery, { all, picking, source: { example }, onPick: assert.fail });
    const clicked = gallery._examples(["late"]);
    picking.end(); // as Start does
    example.answers[0]({ ticket: "late" });
    await clicked;
  }
});

test("an example that cannot be opened leaves the one that was clicked before it", async () => {
  const example = late(),
    picked = [],
    parts = { picking: new Turns(), source: { example }, onPick: (some) => picked.push(some) },
    gallery = made(Gallery, parts);
  const clicks = ["large", "broken"].map((name) => gallery._examples([name]));
  example.answers[1]({ error: "not a trace" });
  await clicks[1];
  example.answers[0]({ ticket: "large" });
  await clicks[0];
  assert.deepEqual(picked, [["large"]]);
});

/** The address of a studio with one run on view: `link`, and what was opened by it. */
function linked(ticket) {
  const opened = [],
    pane = { feed: { ticket, active: true, run: {} }, rounds: [] },
    guide = { chosen: 0 },
    turns = new Turns(),
    went = [],
    studio = {
      guide,
      panes: [pane],
      runs: { open: (tickets) => opened.push(tickets) },
      choose: (_, at) => went.push(at),
      complain: nothing,
      look: { restore: assert.fail },
    };
  const address = { leave: () => turns.end(), moved: nothing },
    link = made(Permalink, { studio, address, begin: assert.fail });
  link._forget();
  return { link, studio, pane, guide, opened, went, turns };
}

test("an address that is answered late replaces no run that was started meanwhile", async () => {
  const { link, studio, opened, turns } = linked("mine"),
    start = late(),
    stopped = [];
  studio.source = { start, stop: async ({ ticket }) => stopped.push(ticket) };
  const shown = link._show({ made: [{ prompt: "?" }], round: 4 }, null, false, turns.take());
  link.leave(); // as Studio.open does
  start.answers[0]({ tickets: ["of the address"] });
  await shown;
  assert.deepEqual([opened, link.wanted, stopped], [[], null, ["of the address"]]);
});

test("a round of an address is not gone to in another run, nor after a step by hand", () => {
  const { link, pane, guide, went } = linked("A");
  Object.assign(link, { wanted: { round: 40 }, look: { show: "rounds" } });
  link.leave();
  pane.rounds = Array(80);
  link.moved();
  assert.deepEqual(went, []);
  pane.rounds = Array(5);
  link.wanted = { round: 40 };
  link.moved();
  assert.equal(link.wanted.round, 40);
  guide.follow = false; // nobody's hand: files are not followed
  link.moved();
  assert.equal(link.wanted.round, 40);
  guide.chosen += 1;
  link.moved();
  assert.equal(link.wanted, null);
  link.wanted = { round: 4 };
  link.moved();
  assert.deepEqual(went, [3]);
});

test("a file that an address needs is gone through when somebody opens it", () => {
  const { link, pane, went } = linked("A"),
    wanted = { round: 2 };
  Object.assign(link, { wanted, lacks: true });
  pane.rounds = Array(5);
  link.leave();
  assert.equal(link.wanted, wanted);
  pane.feed.made = "an example"; // another run than that file
  link.moved();
  assert.deepEqual([link.wanted, went], [null, []]);
  Object.assign(link, { wanted, lacks: true });
  pane.feed.made = null;
  link.moved();
  assert.deepEqual(went, [1]);
});

test("what an address started is stopped where it is not wanted any more", async () => {
  const stopped = [],
    source = {
      start: async () => ({ tickets: ["t"] }),
      stop: async ({ ticket }) => stopped.push(ticket),
    };
  await openNamed(source, [{ prompt: "?" }]);
  assert.deepEqual(stopped, []);
  await openNamed(source, [{ prompt: "?" }], () => false);
  assert.deepEqual(stopped, ["t"]);
});

const UNSEEN = { closest: () => null };

test("lines that an address named are of its runs", () => {
  const table = made(RoundsTable, { wanted: [3, 5], waiting: 1, element: UNSEEN });
  table.stale();
  assert.deepEqual(table.wanted, [3, 5]);
  table.stale(true);
  assert.equal(table.wanted, null);
});

test("what cannot be compared is said of the runs on view", async () => {
  const compare = late(),
    turns = new Turns(),
    pane = { feed: { header: {}, ticket: "A" }, name: {}, apart: "B = 16" },
    old = made(Together, { panes: [pane], source: { compare }, cautions: null });
  Object.assign(old, { isWanted: turns.take() });
  const told = old._ask();
  turns.take(); // a run was taken out
  compare.answers[0]({ cautions: ["others"], apart: ["seed 1"] });
  await told;
  assert.deepEqual([pane.apart, old.cautions], ["B = 16", null]);
});

test("a run is put beside others where the first one is gone", () => {
  const panes = [null, "B"].map((ticket) => ({ feed: { ticket, run: ticket && {} } })),
    added = { open: (ticket) => (added.ticket = ticket) },
    hear = { complain: nothing, began: nothing },
    runs = made(RunsOnView, { places: 4, panes, hear, _add: () => added, open: assert.fail });
  runs.beside("C");
  assert.equal(added.ticket, "C");
});

test("runs that somebody chooses end what the address asked for", async () => {
  const done = [],
    runs = async ({ tickets }) => {
      done.push(tickets);
      return { error: "not on this server" };
    };
  const hear = { leave: () => done.push("left"), complain: nothing },
    chooser = made(RunChooser, { source: { runs }, hear, runs: [], asked: [], turns: new Turns() });
  await chooser.only(["of the address"]);
  await chooser.add(["chosen"]);
  assert.deepEqual(done, [["of the address"], "left", ["chosen"]]);
});

test("of two calibrate results the later one is drawn", async () => {
  const file = late(),
    drawn = [],
    card = { hidden: true, scrollIntoView: nothing },
    view = made(Calibration, { files: new Turns(), file: card, complain: nothing, about: {} });
  Object.assign(view, { address: { moved: nothing }, measured: { draw: (it) => drawn.push(it) } });
  const opened = [view._open(file("large")), view._open(file("small"))];
  file.answers[1]({ figures: "small" });
  file.answers[0]({ figures: "large" });
  await Promise.all(opened);
  assert.deepEqual(drawn, ["small"]);
});

test("of two texts, and of two results of cost, the later one is shown", async () => {
  const file = late(),
    done = [],
    view = {
      texts: new Turns(),
      costs: new Turns(),
      leave: nothing,
      expect: () => view.texts.take(),
      hear: async (asked, isWanted) => {
        const answer = await asked;
        return isWanted() ? answer : null;
      },
      turnTo: (name) => done.push(name),
      settle: assert.fail,
      turned: () => done.push(view.cost),
      about: {},
    };
  const opened = [showText(view, file("large")), showText(view, file("small"))],
    costs = [showCosts(view, file("slow")), showCosts(view, file("fast"))];
  file.answers[1]({ file: "small" });
  file.answers[3]({ cost: "fast" });
  file.answers[0]({ file: "large" });
  file.answers[2]({ cost: "slow" });
  await Promise.all([...opened, ...costs]);
  assert.deepEqual(done, ["small", "fast"]);
});

test("the table that ships replaces none that was opened meanwhile", async () => {
  const table = late(),
    tables = [],
    opened = { wait: nothing, element: {} },
    source = { open: async () => ({ table: "of a file" }) },
    more = { _make: (answer) => tables.push(answer), _show: nothing, _state: nothing },
    fields = { shipped: table({}), files: new Turns(), file: null, opened, source, ...more },
    view = made(Results, fields),
    turned = [view._turnTo(null, {}), view._turnTo({ path: "file", name: "file" })];
  table.answers[0]("that ships");
  await Promise.all(turned);
  assert.deepEqual(tables, ["of a file"]);
});

test("what the page opened by itself is measured only where there is no other run", async () => {
  const held = new Map();
  globalThis.sessionStorage = {
    getItem: (name) => held.get(name) ?? null,
    setItem: (name, words) => held.set(name, words),
  };
  const runs = late();
  for (const own of [[], ["own"]]) {
    keepTickets(UNASKED, ["first"]);
    shelve([...own, "first"]);
    made(RunChooser, { source: { runs }, turns: new Turns() }).begin();
  }
  delete globalThis.sessionStorage;
  assert.deepEqual(runs.asked, [{ tickets: ["first"] }, { tickets: ["own"] }]);
});
