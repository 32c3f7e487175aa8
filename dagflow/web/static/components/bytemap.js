/** The bytes of a file from first to last: coloured by the window that read them, rejects as ticks. */
import { bytes, count } from "../lib/format.js";
import { html } from "../lib/html.js";

const FILLS = ["read", "write", "compute"];

/**
 * @param {object} props
 * @param {number} props.size Bytes of the file.
 * @param {{start: number, end: number, window: number, state: string}[]} props.ranges
 * @param {{offset: number}[]} props.rejects
 * @param {number} [props.at] An offset to point at.
 */
export function ByteMap({ size, ranges, rejects = [], at }) {
  const x = (offset) => (size > 0 ? (offset / size) * 1000 : 0);
  const windows = new Set(ranges.map((range) => range.window));
  const label =
    `${bytes(size)}, ${count(ranges.length)} ranges read by ${count(windows.size)} windows, ` +
    `${count(rejects.length)} rejects marked`;
  return html`<figure>
    <svg class="bytemap" viewBox="0 0 1000 34" preserveAspectRatio="none" role="img" aria-label=${label}>
      <rect class="gap" x="0" y="4" width="1000" height="22" />
      ${ranges.map(
        (range) => html`<rect
          class="fill-${range.window ? FILLS[range.window % FILLS.length] : "wait"}"
          x=${x(range.start)}
          y="4"
          width=${Math.max(x(range.end) - x(range.start) - 0.8, 0.8)}
          height="22"
        >
          <title>${`bytes ${count(range.start)} to ${count(range.end)}: window ${range.window || "none yet"} ${range.state ?? ""}`}</title>
        </rect>`,
      )}
      ${rejects.map(
        ({ offset }) => html`<line class="tick" x1=${x(offset)} x2=${x(offset)} y1="0" y2="30"><title>${`reject at byte ${count(offset)}`}</title></line>`,
      )}
      ${at !== undefined && at !== null && html`<line class="at" x1=${x(at)} x2=${x(at)} y1="0" y2="34" />`}
    </svg>
    <div class="axis"><span>0</span><span>${bytes(size / 2)}</span><span title=${`${count(size)} bytes`}>${bytes(size)}</span></div>
  </figure>`;
}
