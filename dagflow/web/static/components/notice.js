/** What stands in place of content: loading, an error, nothing yet. Each says what to do. */
import { html } from "../lib/html.js";

export const Loading = ({ rows = 6 }) =>
  html`<div class="skeleton" role="status" aria-label="Loading">
    ${Array.from({ length: rows }, (_, row) => html`<span style=${{ width: `${90 - ((row * 37) % 45)}%` }}></span>`)}
  </div>`;

/** Nothing to show: why, and what to do about it. */
export const Empty = ({ title, children }) =>
  html`<div class="state"><b>${title}</b><p>${children}</p></div>`;

export const Failure = ({ error, retry }) =>
  html`<div class="state" role="alert">
    <b>This could not be loaded</b>
    <p>${error.message}</p>
    ${error.hint && html`<p>${error.hint}</p>`}
    ${retry && html`<button class="button" onClick=${retry}>Try again</button>`}
  </div>`;

/**
 * A resource as content, or what stands for it.
 * @param {{of: {data?: object, error?: Error, reload?: () => void}, rows?: number, children: (data: any) => any}} props
 */
export function Resource({ of, rows, children }) {
  if (of.error && !of.data) return html`<${Failure} error=${of.error} retry=${of.reload} />`;
  if (!of.data) return html`<${Loading} rows=${rows} />`;
  return html`${of.error && html`<p class="sentence bad" role="alert">${of.error.message}</p>`} ${children(of.data)}`;
}
