// Forecasts and alarms of any sensor, in node and in browsers: README.md shows how.

import { readBeside } from "./engine/module_memory.js";
import { Sensors } from "./engine/sensors.js";

export { LEVELS, RowRefused, Sensors } from "./engine/sensors.js";
export { TableRun } from "./engine/table_run.js";
export { TableError, openTable } from "./tables/table.js";

/**
 * Open the model that lies beside this file.
 * @param {{falseAlarms?: number}} options the share of sound rows that may be alarms, 1e-4 by default
 */
export async function openSensors(options = {}) {
  return Sensors.open(await readBeside(new URL("./edgefold_sensors.wasm", import.meta.url)), options);
}
