/** Numbers with units, durations, times and names as text. */

const NARROW_SPACE = "\u202f";
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** What is shown where a value is not known. */
export const UNKNOWN = "–";

const isKnown = (value) => value !== null && value !== undefined && !Number.isNaN(value);

/** Three significant digits, without an exponent. */
function significant(value) {
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(digits);
}

/** 1234567 as "1 234 567". */
export function count(value) {
  if (!isKnown(value)) return UNKNOWN;
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, NARROW_SPACE);
}

/** "1 file", "12 files". */
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** 1234567 as "1.23 M", for places without room. */
export function short(value) {
  if (!isKnown(value)) return UNKNOWN;
  const units = ["", "k", "M", "G", "T"];
  let rest = value;
  let unit = 0;
  while (Math.abs(rest) >= 999.5 && unit < units.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  return unit ? `${significant(rest)}${NARROW_SPACE}${units[unit]}` : significant(rest);
}

/** A number of bytes with a binary unit. */
export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  let rest = value;
  let unit = 0;
  while (Math.abs(rest) >= 1023.5 && unit < BYTE_UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${significant(rest)}${NARROW_SPACE}${BYTE_UNITS[unit]}`;
}

/** A rate: "1.2 k rows/s", "3.4 MiB/s". */
export const rowRate = (value) => (isKnown(value) ? `${short(value)} rows/s` : UNKNOWN);
export const byteRate = (value) => (isKnown(value) ? `${bytes(value)}/s` : UNKNOWN);

/** A share as percent. */
export function percent(value) {
  if (!isKnown(value)) return UNKNOWN;
  const points = value * 100;
  return `${points > 0 && points < 0.1 ? "<0.1" : points < 10 && points % 1 ? points.toFixed(1) : Math.round(points)}${NARROW_SPACE}%`;
}

/** Seconds as "340 ms", "4.2 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". */
export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const whole = Math.round(seconds);
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds < 9.995 ? seconds.toFixed(1) : whole} s`;
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 48 * 60) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  return two(Math.floor(minutes / 1440), "d", Math.floor((minutes % 1440) / 60), "h");
}

const two = (major, majorUnit, minor, minorUnit) =>
  minor ? `${major} ${majorUnit} ${minor} ${minorUnit}` : `${major} ${majorUnit}`;

const pad = (value) => String(value).padStart(2, "0");
const clock = (date) => `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
const day = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;

/** Local time of day; with the day where it is not today's. */
export function localTime(milliseconds) {
  if (!milliseconds) return UNKNOWN;
  const date = new Date(milliseconds);
  return day(date) === day(new Date()) ? clock(date) : `${day(date)} ${clock(date)}`;
}

/** Labels of an axis of time: as much as tells them apart. Seconds since 1970. */
export function axisTimes(ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  return ticks.map((seconds) => {
    const date = new Date(seconds * 1000);
    if (step >= 86_400) return day(date).slice(5);
    return step >= 60 ? clock(date).slice(0, 5) : clock(date);
  });
}

/** "2026-11-24 08:49:30.123 UTC". */
export const utcTime = (milliseconds) =>
  milliseconds ? `${new Date(milliseconds).toISOString().replace("T", " ").replace("Z", "")} UTC` : "";

/** Characters that move, hide or break other text are shown as escapes. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A name as text of one line in which every character can be seen. */
export const visible = (text) =>
  String(text ?? "").replace(HIDDEN, (found) => {
    const known = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[found];
    return known ?? `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });

/** At most `length` characters, the middle left out: names differ at their ends. */
export function shortened(text, length) {
  const shown = visible(text);
  if (shown.length <= length) return shown;
  const tail = Math.ceil((length - 1) * 0.6);
  return `${shown.slice(0, length - 1 - tail)}…${shown.slice(-tail)}`;
}

/** The last part of a path or URL. */
export const baseName = (path) => String(path).replace(/\/+$/, "").split("/").pop();
