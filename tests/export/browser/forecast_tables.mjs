// Forecast a table as a user of the package does; print as JSON what comes of it.
//
//     node forecast_tables.mjs PACKAGE TABLE

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const { TableRun, openSensors, openTable } = await import(pathToFileURL(`${folder}/index.js`));
const table = await openTable(readFileSync(file), { name: file }), sensors = await openSensors();
const alarms = [];
const run = new TableRun(table, sensors, {
  row(track, { alarm, event, since, size, nMissing, season }, text, line) {
    if (alarm) alarms.push({ sensor: track.name, event, since, size, nMissing, season, text, line });
  },
});
await run.run();
const tracks = Object.fromEntries([...run.tracks].map(([name, track]) => {
  const { nRows, nEmpty, nForecast, nWithin90, nAlarms, nGaps, nMissing, refused } = track;
  const counts = { nRows, nEmpty, nForecast, nWithin90, nAlarms, nGaps, nMissing };
  return [name, { ...counts, ...sensors.feed(name), refused: [...refused.reasons.values()] }];
}));
const answer = { alarms, tracks, bad: [...run.bad.reasons.values()], csv: await run.csv.text(), next: await run.next.text() };
process.stdout.write(JSON.stringify(answer));
