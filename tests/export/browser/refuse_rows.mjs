// Print as JSON why rows are refused: node refuse_rows.mjs PACKAGE ROWS

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const { RowRefused, openSensors } = await import(pathToFileURL(`${folder}/index.js`));
const sensors = await openSensors(), reasons = [];
for (const [time, value] of JSON.parse(readFileSync(file, "utf8"))) {
  try {
    sensors.step(time, value, "", true);
  } catch (error) {
    if (!(error instanceof RowRefused)) throw error;
    reasons.push(error.message);
  }
}
console.log(JSON.stringify(reasons));
