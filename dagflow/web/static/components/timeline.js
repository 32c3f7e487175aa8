/** Windows as bars from emit to publish on one scale, each from its own beginning, with marks for what was special. */
import { duration, localTime } from "../lib/format.js";
import { html, useRef } from "../lib/html.js";
import { Badge } from "./marks.js";
import { moveFocus } from "./table.js";
import { Time } from "./time.js";

/** The phases of a window: name, the time it begins, the time it ends, its colour. */
export const PHASES = [
  ["planning", "emitted_ms", "planned_ms", "compute"],
  ["waiting", "planned_ms", "started_ms", "wait"],
  ["running", "started_ms", "finished_ms", "read"],
  ["committing", "finished_ms", "committed_ms", "warn"],
  ["publishing", "committed_ms", "published_ms", "write"],
];

/** First and last known moment of a window. */
export function spanOf(times) {
  const known = Object.values(times).filter((value) => value > 0);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 0];
}

/**
 * @param {object} props
 * @param {{id: number, times: object, marks: {text: string, tone: string, title: string}[], note: string}[]} props.rows
 * @param {(id: number) => string} props.linkOf
 * @param {number} props.selected
 * @param {number} [props.now] End of bars that are not over.
 */
export function Timeline({ rows, linkOf, selected, now }) {
  const list = useRef(null);
  // A day of windows has gaps of hours between bars of half a second, so each begins at the left.
  const longest = Math.max(1, ...rows.map((row) => lengthOf(row, now)));
  const stop = rows.some((row) => row.id === selected) ? selected : rows[0]?.id;
  return html`<div class="timeline" ref=${list} onKeyDown=${(event) => moveFocus(event, list.current, "a.row")}>
    ${rows.map(
      (row) => html`<a key=${row.id} class="row ${row.id === selected ? "selected" : ""}" href=${linkOf(row.id)} tabindex=${row.id === stop ? 0 : -1}>
        <span class="number"><span class="visually-hidden">Window </span>${row.id}<span class="visually-hidden">${spoken(row)}</span></span>
        <span class="muted nowrap"><${Time} at=${spanOf(row.times)[0]} /></span>
        <${Bar} row=${row} longest=${longest} now=${now} />
        <span class="marks">
          ${row.marks.map((mark) => html`<${Badge} tone=${mark.tone} title=${mark.title}>${mark.text}<//>`)}
          <span class="muted number hide-narrow">${row.note}</span>
        </span>
      </a>`,
    )}
    <span></span><span></span><span class="axis"><span>0 s</span><span>${duration(longest / 1000)}</span></span><span></span>
  </div>`;
}

/** How long a window takes: until `now` where it is not over, in milliseconds. */
function lengthOf({ times }, now) {
  const [start, end] = spanOf(times);
  return start ? Math.max(end, times.published_ms ? 0 : (now ?? 0)) - start : 0;
}

/** What the bar says, for readers who do not see it. */
function spoken({ times }) {
  const [start, end] = spanOf(times);
  return start ? `from ${localTime(start)}, ${duration((end - start) / 1000)}` : "";
}

function Bar({ row, longest, now }) {
  const [first] = spanOf(row.times);
  const x = (time) => ((time - first) / longest) * 1000;
  return html`<svg viewBox="0 0 1000 16" preserveAspectRatio="none" aria-hidden="true">
    <rect class="track" y="7" width="1000" height="2" />
    ${PHASES.map(([name, from, to, fill]) => {
      const start = row.times[from];
      const end = row.times[to] || (start && !row.times.published_ms && isLast(row.times, from) ? (now ?? start) : 0);
      if (!start || !end || end < start) return null;
      return html`<rect class="fill-${fill}" x=${x(start)} y="3" width=${Math.max(x(end) - x(start), 1.5)} height="10"><title>${`${name}: ${duration((end - start) / 1000)}`}</title></rect>`;
    })}
  </svg>`;
}

/** Whether no later step of a window has happened. */
const isLast = (times, step) => Object.values(times).every((time) => !time || time <= times[step]);
