// A made-up table: an hourly temperature with a day's rhythm, and one of each thing that happens.

const N_ROWS = 2400, START_MS = Date.UTC(2024, 2, 1), HOUR_MS = 3_600_000;

/** Return numbers between 0 and 1 that are the same each time. */
function generator(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Return the text of the table. */
export function sampleTable() {
  const draw = generator(7), noise = () => draw() + draw() + draw() - 1.5, lines = ["time,hall temperature"];
  let weather = 0, resting = 0;
  for (let i = 0; i < N_ROWS; i++) {
    weather = 0.985 * weather + 0.22 * noise();
    let value = 19 + 2.4 * Math.sin(((i % 24) - 9) / 24 * 2 * Math.PI) + weather + 0.18 * noise();
    if (i === 900) value += 11; // a value
    if (i >= 1200 && i < 1236) continue; // a gap
    if (i >= 1500 && i < 1530) value = resting; // stuck
    else resting = value;
    if (i >= 1900) value += 6; // a level shift
    const cell = i === 400 ? "" : i === 401 ? "n/a" : value.toFixed(2);
    lines.push(`${new Date(START_MS + i * HOUR_MS).toISOString().slice(0, 16).replace("T", " ")},${cell}`);
    if (i === 700) lines.push("2024-03-30 05:00,out of order");
  }
  return `${lines.join("\n")}\n`;
}
