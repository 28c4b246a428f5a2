// A program that must compile with the types of the package, and two lines that must not.

import {
  LEVELS, RowRefused, type SensorEvent, Sensors, TableError, TableRun, openSensors, openTable,
} from "edgefold-sensors";

const sensors: Sensors = await openSensors({ falseAlarms: 1e-3 });
const { mean, q05, event, alarm } = sensors.step(new Date(), 21.5, "roof");
const word: SensorEvent = event;
const sum: number = mean + q05 + sensors.path(24, "roof").quantiles[0][3] + LEVELS.length;
const table = await openTable(new Blob(["t,v\n1,2\n"]), { decimal: "," });
const run = new TableRun(table, sensors, {
  row(track, forecast) { console.log(track.nRows, forecast.alarm); },
});
await run.run(new AbortController().signal);
for await (const { line, parts } of table.rows()) console.log(line, parts[0]?.value);
console.log(sum, word, alarm, run.csv.size, RowRefused, TableError, sensors.save().length);
// @ts-expect-error a value is a number
sensors.step(1, "2");
// @ts-expect-error the decimal sign is one of two
await openTable("", { decimal: "x" });
