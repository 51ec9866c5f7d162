// What a browser keeps of a form: each of two tabs finds its own words.

import assert from "node:assert/strict";
import { test } from "node:test";

import { keepTyped, recall, remember, typedIn } from "../../app/web/memory.js";

class Storage {
  #held = new Map();
  getItem = (name) => this.#held.get(name) ?? null;
  setItem = (name, text) => this.#held.set(name, text);
}

const inTab = (session) => Object.assign(globalThis, { sessionStorage: session });

test("two tabs do not mix, and a new one finds the last words", () => {
  const [one, other] = [new Storage(), new Storage()];
  globalThis.localStorage = new Storage();
  inTab(one);
  remember("ds", ["prompt"], ["of one"]);
  keepTyped("ds", true);
  inTab(other);
  assert.equal(recall("ds").prompt, "of one"); // as on another day
  remember("ds", ["prompt"], ["of the other"]);
  keepTyped("ds", false);
  inTab(one);
  assert.equal(recall("ds").prompt, "of one");
  assert.equal(typedIn("ds"), true);
  inTab(new Storage());
  assert.equal(recall("ds").prompt, "of the other");
  assert.equal(typedIn("ds"), false);
});

test("a browser that keeps nothing keeps nothing", () => {
  const broken = { getItem: () => assert.fail(), setItem: () => assert.fail() };
  Object.assign(globalThis, { localStorage: broken, sessionStorage: broken });
  remember("ds", ["prompt"], ["x"]);
  assert.equal(recall("ds"), null);
  assert.equal(typedIn("ds"), false);
});
