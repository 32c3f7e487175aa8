/** All apps: a row each, with how late it is, what waits, how fast it is, and whether every byte is accounted for. */
import { Empty, Resource } from "../components/notice.js";
import { Equation, State } from "../components/marks.js";
import { moveFocus } from "../components/table.js";
import { Ago } from "../components/time.js";
import { byteRate, bytes, count, duration, plural, rowRate, UNKNOWN, visible } from "../lib/format.js";
import { html, useRef } from "../lib/html.js";
import { go, href } from "../lib/router.js";

const HEADINGS = ["App", "State", "Oldest unpublished", "Backlog", "Time to read it", "Rate", "Rejects", "Last commit"];

export function Fleet({ apps }) {
  const list = useRef(null);
  return html`<main class="main" id="main" tabindex="-1">
    <${Resource} of=${apps}>
      ${(data) =>
        data.apps.length === 0
          ? html`<${Empty} title="No app has run here yet">Start one with <code>dagflow run APP.yaml</code>. It appears here as soon as it works.<//>`
          : html`<div class="box scroll">
              <table class="fleet" aria-label="Apps">
                <thead>
                  <tr>${HEADINGS.map((name, index) => html`<th scope="col" class=${index > 1 ? "number" : ""}>${name}</th>`)}</tr>
                </thead>
                <tbody ref=${list} onKeyDown=${(event) => moveFocus(event, list.current, "a.row-link")}>
                  ${data.apps.map((app, index) => html`<${Row} key=${app.id} app=${app} isStop=${index === 0} />`)}
                </tbody>
              </table>
            </div>`}
    <//>
  </main>`;
}

function Row({ app, isStop }) {
  const link = href(app.id, "graph");
  const isKnown = app.state !== "unreadable" && app.state !== "no run yet";
  const cells = [
    ["Oldest unpublished", !isKnown ? UNKNOWN : app.oldest_unpublished_ms ? html`<${Ago} at=${app.oldest_unpublished_ms} isBare />` : html`<span class="good">up to date</span>`],
    ["Backlog", isKnown ? backlog(app.backlog) : UNKNOWN],
    ["Time to read it", app.backlog.seconds === null ? UNKNOWN : duration(app.backlog.seconds)],
    ["Rate", !isKnown ? UNKNOWN : html`${byteRate(app.rates.bytes_per_second)}<br /><span class="muted">${rowRate(app.rates.records_per_second)}</span>`],
    ["Rejects", app.rejected ? html`<a class="bad" href=${href(app.id, "rejects")}>${count(app.rejected)}</a>` : isKnown ? "0" : UNKNOWN],
    ["Last commit", html`<${Ago} at=${app.last_commit_ms} />`],
  ];
  return html`<tr class="linked" onClick=${(event) => !event.target.closest("a") && go(link)}>
      <td>
        <a class="name row-link clip" href=${link} tabindex=${isStop ? 0 : -1}>${visible(app.app)}</a>
        <span class="clip muted">${visible(app.checkpoint)}</span>
      </td>
      <td><${State} value=${app.state} /></td>
      ${cells.map(([name, value]) => html`<td class="number" data-label=${name}>${value}</td>`)}
    </tr>
    <tr class="under">
      <td colspan=${HEADINGS.length}>
        ${isKnown && html`<${Equation} account=${app.account} />`}
        ${app.state === "no run yet" ? html`<p class="muted">Its figures appear here as soon as a run begins.</p>` : app.error && html`<p class="bad clamp">${visible(app.error)}</p>`}
      </td>
    </tr>`;
}

const backlog = ({ blocks, bytes: size }) => (blocks || size ? html`${bytes(size)}<br /><span class="muted">${blocks ? plural(blocks, "block") : ""}</span>` : "none");
