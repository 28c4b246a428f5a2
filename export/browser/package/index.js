// Forecasts and alarms of any sensor, in node and in browsers: README.md shows how.

import { Sensors } from "./engine/sensors.js";

export { LEVELS, RowRefused, Sensors } from "./engine/sensors.js";
export { TableRun } from "./engine/table_run.js";
export { TableError, openTable } from "./tables/table.js";

/**
 * Open the model that lies beside this file.
 * @param {{falseAlarms?: number}} options the share of sound rows that may be alarms, 1e-4 by default
 */
export async function openSensors(options = {}) {
  const place = new URL("./edgefold_sensors.wasm", import.meta.url);
  if (place.protocol === "file:") {
    const files = "node:fs/promises"; // a name, so that bundlers of browsers do not look for it
    const { readFile } = await import(/* webpackIgnore: true */ /* @vite-ignore */ files);
    return Sensors.open(await readFile(place), options);
  }
  const answer = await fetch(place);
  if (!answer.ok) throw new Error(`${place} answered ${answer.status}; serve the file beside index.js.`);
  return Sensors.open(await answer.arrayBuffer(), options);
}
