/** Small marks: states of runs and windows, shares of a whole, legends, and the byte equation. */
import { bytes, count, percent } from "../lib/format.js";
import { html } from "../lib/html.js";

const TONES = {
  running: "accent",
  completed: "good",
  committed: "good",
  published: "good",
  read: "good",
  keeps: "good",
  stopped: "",
  planned: "accent",
  stalled: "warn",
  repeats: "warn",
  failed: "bad",
  killed: "bad",
  unreadable: "bad",
  refuses: "bad",
};

/** A state as a word with a dot; the word says it also without colours. */
export const State = ({ value }) =>
  html`<span class="badge ${TONES[value] ?? ""}">
    <span class="dot ${value === "running" ? "pulse" : ""}"></span>${value}
  </span>`;

export const Badge = ({ tone = "", title, children }) => html`<span class="badge ${tone}" title=${title}>${children}</span>`;

/**
 * Parts of a whole as a bar.
 * @param {{parts: {name: string, value: number, fill: string}[], label: string}} props
 */
export function Share({ parts, label }) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  const text = parts.map((part) => `${part.name} ${whole ? percent(part.value / whole) : percent(0)}`).join(", ");
  return html`<div class="share" role="img" aria-label=${`${label}: ${text}`} title=${text}>
    ${whole > 0 &&
    parts.map((part) => html`<span class="fill-${part.fill}" style=${{ width: `${(part.value / whole) * 100}%` }}></span>`)}
  </div>`;
}

/** What colours mean. */
export const Legend = ({ items }) =>
  html`<ul class="legend">
    ${items.map(({ name, fill, value }) => html`<li><span class="swatch fill-${fill}"></span>${name}${value && ` ${value}`}</li>`)}
  </ul>`;

/** The byte equation: what became of every byte that was read. Red where it does not hold. */
export function Equation({ account, isExact = false }) {
  const shown = isExact ? count : bytes;
  const sum = account.records + account.delimiters + account.skipped + account.rejected;
  const holds = sum === account.bytes;
  // A record of a block that is committed may reach into one that is not.
  const isOpen = !holds && account.adds_up === null;
  const terms = ["records", "delimiters", "skipped", "rejected"];
  const difference = account.bytes - sum;
  return html`<span class="equation ${holds ? "holds" : isOpen ? "open" : ""}">
    <span class="term"><i>read</i> <span title=${`${count(account.bytes)} bytes`}>${shown(account.bytes)}</span></span>
    <span class="sign">${holds ? "=" : "≠"}</span>
    ${terms.map(
      (term, index) => html`<span class="term">
        ${index > 0 && html`<i>+</i>`} <i>${term}</i> <span title=${`${count(account[term])} bytes`}>${shown(account[term])}</span>
      </span>`,
    )}
    ${isOpen && html`<span class="term">counted to the end when the files in progress are</span>`}
    ${!holds && !isOpen && html`<span class="term">${difference > 0 ? `${count(difference)} bytes are missing` : `${count(-difference)} bytes too many`}</span>`}
  </span>`;
}
