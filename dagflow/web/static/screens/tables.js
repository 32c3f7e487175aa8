/** Tables that the app fills: their version by window, the sizes of their files, and their schemas. */
import { Badge } from "../components/marks.js";
import { Empty, Resource } from "../components/notice.js";
import { Cards } from "../components/panel.js";
import { Table } from "../components/table.js";
import { Time, useNow } from "../components/time.js";
import { useResource } from "../lib/api.js";
import { bytes, count, duration, plural, shortened, UNKNOWN, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { href } from "../lib/router.js";

export function Tables({ route, app }) {
  const tables = useResource(`apps/${route.app}/tables`, {}, { app: route.app });
  return html`<main class="main" id="main" tabindex="-1">
    <${Resource} of=${tables}>
      ${(data) =>
        data.tables.length === 0
          ? html`<${Empty} title="This app fills no table">An operator TableWriter adds windows to a table.<//>`
          : html`<p class="sentence accent"><span>All tables show every window up to <b>${data.watermark}</b>.</span></p>
              ${data.since_window > 1 && html`<p class="muted">Files and rows are those of windows from ${data.since_window} on.</p>`}
              ${data.tables.map((table) => html`<${One} key=${table.operator} ...${{ route, app, table }} />`)}`}
    <//>
  </main>`;
}

function One({ route, app, table }) {
  const average = table.files ? table.size_bytes / table.files : 0;
  return html`<section class="box" aria-label=${visible(table.operator)}>
    <header>
      <h2>${visible(table.operator)}</h2>
      <span class="muted mono">${visible(table.table)}</span>
      <span class="end">${table.waiting_windows > 0 && html`<${Badge} tone="accent"><${Waiting} app=${app} table=${table} /><//>`} ${table.version && html`<${Badge}>${visible(table.version)}<//>`}</span>
    </header>
    <div class="pad stack">
      <${Cards}
        items=${[
          ["Last written by window", table.window ? html`<a href=${href(route.app, "windows", { window: table.window })}>${table.window}</a>` : UNKNOWN],
          ["Rows", count(table.records)],
          ["Files", count(table.files), bytes(table.size_bytes)],
          ["Average file", bytes(average), table.target_bytes && `target ${bytes(table.target_bytes)}`],
        ]}
      />
      ${table.sizes?.length > 0 && html`<${Sizes} table=${table} />`}
    </div>
    <${Table}
      label="Versions"
      rows=${[...table.versions].reverse()}
      keyOf=${(version) => String(version.window)}
      linkOf=${(version) => href(route.app, "windows", { window: version.window })}
      columns=${[
        { label: "Window", cell: (version) => version.window },
        { label: "Version", cell: (version) => html`<span class="mono nowrap">${visible(version.version)}</span>` },
        { label: "Files", number: true, optional: true, cell: (version) => count(version.files) },
        { label: "Rows", number: true, cell: (version) => count(version.records) },
        { label: "Published", number: true, wide: true, cell: (version) => html`<${Time} at=${version.published_ms} />` },
      ]}
    />
    ${table.columns.length > 0 &&
    html`<div class="pad stack">
      <h3>Columns</h3>
      <p class="mono wrap">${table.columns.map((column) => `${visible(column.name)} ${visible(column.type)}`).join(", ")}</p>
    </div>`}
    ${table.changes.length > 0 && html`<${History} route=${route} changes=${table.changes} />`}
  </section>`;
}

/** Windows that are not in the table yet, and when they will be. */
function Waiting({ app, table }) {
  const now = useNow();
  const seconds = Math.ceil((table.due_ms - now) / 1000);
  const when =
    app?.state !== "running"
      ? "in the table with the next run"
      : !table.due_ms
        ? "in the table with their group: at the end of the run, or within a minute while following"
        : seconds > 0
          ? `in the table in ${duration(seconds)}`
          : "in the table next";
  return `${plural(table.waiting_windows, "window waits", "windows wait")}, ${when}`;
}

/** How the columns came about, since the checkpoint began. */
const History = ({ route, changes }) => html`<h3 class="pad">Schema history</h3>
  <div class="few">
    <${Table}
      label="Schema history"
      rows=${[...changes].reverse()}
      keyOf=${(change) => `${change.window} ${change.text}`}
      linkOf=${(change) => href(route.app, "windows", { window: change.window })}
      columns=${[
        { label: "Window", cell: (change) => change.window },
        { label: "Change", wide: true, cell: (change) => visible(change.text) },
        { label: "First record", optional: true, cell: (change) => html`<span class="mono">${shortened(change.cause, 40)}</span>` },
        { label: "Decided", number: true, optional: true, cell: (change) => html`<${Time} at=${change.committed_ms} />` },
      ]}
    />
  </div>`;

/** File sizes, smallest to largest, beside the size that is aimed at. */
function Sizes({ table }) {
  const greatest = Math.max(...table.sizes.map((bin) => bin.count), 1);
  return html`<figure>
    <div class="histogram" role="img" aria-label=${`Sizes of ${plural(table.files, "file")}: ${table.sizes.map((bin) => `${bin.count} up to ${bytes(bin.upto)}`).join(", ")}`}>
      ${table.sizes.map((bin) => html`<span title=${`${plural(bin.count, "file")} up to ${bytes(bin.upto)}`} style=${{ height: `${(bin.count / greatest) * 100}%` }}></span>`)}
    </div>
    <div class="axis"><span>up to ${bytes(table.sizes[0].upto)}</span><span>file sizes</span><span>up to ${bytes(table.sizes[table.sizes.length - 1].upto)}</span></div>
  </figure>`;
}
