// Check that blocks of rows have the ranges of their rows: node check_blocks.mjs SERIES

import assert from "node:assert";
import { pathToFileURL } from "node:url";

const { Series } = await import(pathToFileURL(process.argv[2]));
const series = new Series(0, "s"), n = 5000, rows = [];
for (let begin = 0, step = 1; begin < n; begin += step, step = 1 + begin % 777) {
  step = Math.min(step, n - begin);
  const each = (of) => Array.from({ length: step }, (_, i) => of(begin + i));
  const value = Float64Array.from(each((i) => (i % 50 ? i * 7919 % 997 : NaN)));
  const quantiles = Float32Array.from(each((i) => [0, 1, 2, 3, 4, 5, 6].map((k) => i * 31 % 101 + k)).flat());
  value.forEach((v, i) => rows.push([v, ...quantiles.subarray(7 * i, 7 * i + 7)]));
  const time = Float64Array.from(each((i) => i));
  series.append({ time, value, quantiles, state: new Uint8Array(step), missing: new Uint32Array(step) });
}
for (const [begin, end] of [[0, n], [0, 2], [15, 17], [16, 4112], [1, 4999], [255, 513], [4990, n]]) {
  const part = rows.slice(begin, end), values = part.map((row) => row[0]).filter((v) => v === v);
  const [low, high, under, over, middle] = series.range(begin, end, new Float64Array(5));
  const sum = part.reduce((total, row) => total + row[4], 0);
  assert.deepEqual([low, high], [Math.min(...values), Math.max(...values)]);
  assert.deepEqual([under, over], [Math.min(...part.map((row) => row[1])), Math.max(...part.map((row) => row[7]))]);
  assert(Math.abs(middle - sum / part.length) < 1e-3);
}
assert.equal(series.rowAt(1234.5), 1235);
