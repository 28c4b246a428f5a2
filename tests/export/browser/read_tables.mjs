// Read each table of a list with the browser's reader; print as JSON what was found.
//
//     node read_tables.mjs READER <JOBS   where JOBS is [{"content": base64, "options": {...}}, ...]

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { TableError, openTable } = await import(pathToFileURL(process.argv[2]));

async function read({ content, options }) {
  let table;
  try {
    table = await openTable(Buffer.from(content, "base64"), options);
  } catch (error) {
    if (error instanceof TableError) return { error: error.message };
    throw error;
  }
  const { choice } = table, rows = [];
  for await (const { line, parts, reason } of table.rows()) {
    const named = parts.map((part) => [part.sensor, part.reason ?? [part.time, part.value, part.timeText, part.valueText]]);
    rows.push([line, reason ?? named]);
  }
  return {
    time: choice.time, clock: choice.clock, values: choice.values, series: choice.series, notes: table.notes, rows,
    unread: Object.fromEntries(table.unread), written: rows.length ? choice.written(1234567890.125, "") : "",
  };
}

const answers = [];
for (const job of JSON.parse(readFileSync(0, "utf8"))) answers.push(await read(job));
process.stdout.write(JSON.stringify(answers));
