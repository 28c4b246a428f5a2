// Check that sensors go on from their bytes, and refuse damaged ones: node keep_states.mjs PACKAGE

import assert from "node:assert";
import { pathToFileURL } from "node:url";

const { openSensors } = await import(pathToFileURL(`${process.argv[2]}/index.js`));
const row = (i) => [1.7e9 + 600 * i, 20 + 3 * Math.sin(i / 20) + (i * 7919 % 13) / 50];
const whole = await openSensors(), first = await openSensors(), second = await openSensors();
for (let i = 0; i < 300; i++) {
  for (const name of ["a", "b"]) {
    whole.step(...row(i), name);
    if (i < 150) first.step(...row(i), name);
  }
}
const bytes = first.save();
second.step(5, 5, "other");
second.restore(bytes);
assert.deepEqual(second.names, ["a", "b"]);
for (let i = 150; i < 300; i++) for (const name of ["a", "b"]) second.step(...row(i), name);
assert.deepEqual(second.step(...row(300), "a"), whole.step(...row(300), "a"));
assert.deepEqual(second.path(30, "b"), whole.path(30, "b"));
for (const at of [0, 2, 5, 9, 300, 5000, bytes.length - 1]) {
  const damaged = bytes.slice();
  damaged[at] ^= 64;
  assert.throws(() => second.restore(damaged), RangeError);
}
for (const n of [0, 3, 8, 100, 1000]) assert.throws(() => second.restore(bytes.subarray(0, n)), RangeError);
assert.deepEqual(second.path(30, "b"), whole.path(30, "b"));
second.forget("a");
second.forget("never seen");
assert.deepEqual(second.names, ["b"]);
assert(Number.isNaN(second.step(...row(0), "a").mean)); // earlier than its last row, and taken
assert.deepEqual(second.path(30, "b"), whole.path(30, "b"));
assert.throws(() => second.path(0, "b"), RangeError);
assert.throws(() => second.path(1, "c"), RangeError);
assert.throws(() => second.step("now", 1), TypeError);
assert.throws(() => second.step(1, "2"), TypeError);
await assert.rejects(openSensors({ falseAlarms: 1 }), RangeError);
assert(Number.isNaN((await openSensors()).step(null, 3).mean));
