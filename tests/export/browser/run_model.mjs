// Run a model of npm on the points of a file; print predictions and write the snapshot at the end.
//
//     node run_model.mjs PACKAGE POINTS SNAPSHOT [SNAPSHOT to go on from]

import assert from "node:assert";
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, points, snapshot, before] = process.argv.slice(2);
const { ModelRefused, openModel } = await import(pathToFileURL(`${folder}/index.js`));
const model = await openModel(), { x, y, targets } = JSON.parse(readFileSync(points, "utf8"));
if (before) model.restore(readFileSync(before));
const first = model.nPoints, found = [];
x.forEach((row, i) => {
  if (model.isFilter) return found.push(model.step(row));
  found.push(model.query(targets[i].flat(), targets[i].length));
  model.update(row, y[i]);
});
assert.equal(model.nPoints, first + x.length);
const bytes = model.save();
const wrong = model.isFilter ? () => model.step([NaN, ...x[0].slice(1)]) : () => model.update([NaN, ...x[0].slice(1)], y[0]);
assert.throws(wrong, ModelRefused);
assert.throws(() => model.restore(bytes.subarray(0, 300)), ModelRefused);
assert.throws(() => (model.isFilter ? model.step([]) : model.query([])), RangeError);
assert.throws(() => (model.isFilter ? model.update([], []) : model.step([])), TypeError);
assert.deepEqual(model.save(), bytes);
model.reset();
assert.equal(model.nPoints, 0);
writeFileSync(snapshot, bytes);
const plain = found.map((row) => Object.fromEntries(Object.entries(row).map(([name, numbers]) => [name, [...numbers]])));
console.log(JSON.stringify(plain));
