/** A table whose rows can be links to their details. Arrow keys move between them; only one is a tab stop. */
import { html, useRef } from "../lib/html.js";
import { go } from "../lib/router.js";

/**
 * @typedef {object} Column
 * @property {string} label Its heading.
 * @property {(row: any) => any} cell What a row shows.
 * @property {boolean} [number] Whether it is aligned as a number.
 * @property {boolean} [wide] Whether it takes the room that is left, and cuts what does not fit.
 * @property {boolean} [optional] Whether it is left out on a narrow page.
 */

const className = ({ number, wide, optional }) =>
  [number && "number", wide && "wide", optional && "hide-narrow"].filter(Boolean).join(" ");

/**
 * @param {object} props
 * @param {string} props.label What the table holds.
 * @param {Column[]} props.columns The first one names the row, and carries its link.
 * @param {any[]} props.rows
 * @param {(row: any) => string} props.keyOf
 * @param {(row: any) => string} [props.linkOf] Hash of a row's details.
 * @param {string} [props.selected] Key of the selected row.
 */
export function Table({ label, columns, rows, keyOf, linkOf, selected }) {
  const body = useRef(null);
  const stop = rows.some((row) => keyOf(row) === selected) ? selected : rows.length ? keyOf(rows[0]) : "";
  return html`<div class="scroll">
    <table aria-label=${label}>
      <thead>
        <tr>
          ${columns.map((column) => html`<th scope="col" class=${className(column)}>${column.label}</th>`)}
        </tr>
      </thead>
      <tbody ref=${body} onKeyDown=${(event) => moveFocus(event, body.current, "a.row-link")}>
        ${rows.map((row) => {
          const key = keyOf(row);
          const link = linkOf?.(row);
          return html`<tr
            key=${key}
            class="${link ? "linked" : ""} ${key === selected ? "selected" : ""}"
            onClick=${link && ((event) => followRow(event, link))}
          >
            ${columns.map(
              (column, index) => html`<td class=${className(column)}>
                ${link && index === 0
                  ? html`<a
                      class="name row-link ${column.wide ? "clip" : ""}"
                      href=${link}
                      tabindex=${key === stop ? 0 : -1}
                      aria-current=${key === selected ? "true" : undefined}
                      >${column.cell(row)}</a
                    >`
                  : column.wide
                    ? html`<span class="clip">${column.cell(row)}</span>`
                    : column.cell(row)}
              </td>`,
            )}
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}

function followRow(event, link) {
  if (!event.target.closest("a, button") && !getSelection().toString()) go(link);
}

const STEPS = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

/** Move the focus among the items of a list: arrows, page keys, Home and End. */
export function moveFocus(event, list, selector) {
  const step = STEPS[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  const items = [...list.querySelectorAll(selector)];
  const at = items.indexOf(document.activeElement);
  if (at < 0) return;
  event.preventDefault();
  const next = items[Math.min(Math.max(at + step, 0), items.length - 1)];
  for (const item of items) item.tabIndex = item === next ? 0 : -1;
  next.focus();
}
