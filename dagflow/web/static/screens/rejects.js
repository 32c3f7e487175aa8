/** Refused records: why, in which files and windows, and their bytes with the place. */
import { More } from "../components/more.js";
import { Empty, Resource } from "../components/notice.js";
import { Facts, Panel, Section } from "../components/panel.js";
import { Path } from "../components/path.js";
import { fromBase64, Raw } from "../components/raw.js";
import { Table } from "../components/table.js";
import { useResource } from "../lib/api.js";
import { baseName, count, percent, plural, shortened, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { changed, href } from "../lib/router.js";

const GROUPS = [
  ["reason", "By reason"],
  ["file", "By file"],
  ["window", "By window"],
];

export function Rejects({ route, app }) {
  const { reason, file, window, after } = route.params;
  const rejects = useResource(`apps/${route.app}/rejects`, { reason, file, window, after, limit: 100 }, { app: route.app });
  return html`<main class="main" id="main" tabindex="-1">
      <${Resource} of=${rejects}>
        ${(data) =>
          data.total === 0
            ? html`<${Empty} title=${data.next ? `No record was refused in windows from ${data.since_window} on` : "No record was refused"}>Records that a format or a check refuses appear here with their bytes, their place and the reason.<//>
                <${More} route=${route} param="after" next=${data.next} following="Look in older windows" />`
            : html`${data.since_window > 1 && html`<p class="muted">Counted are windows from ${data.since_window} on.</p>`}<div class="groups">${GROUPS.map(([param, title]) => html`<${Group} ...${{ route, param, title, rows: data[`by_${param}`], total: data.total }} />`)}</div>
                <section class="box" aria-label="Rejects">
                  <header><h2>${plural(data.total, "reject")}</h2><span class="end"><${Filters} route=${route} /></span></header>
                  <${Table} label="Rejects" rows=${data.rejects} keyOf=${keyOf} selected=${route.params.reject} linkOf=${(reject) => changed(route, { reject: keyOf(reject) })} columns=${COLUMNS} />
                </section>
                <${More} route=${route} param="after" next=${data.next} following="Next rejects" />`}
      <//>
    </main>
    ${route.params.reject && rejects.data && html`<${RejectPanel} ...${{ route, reject: rejects.data.rejects.find((each) => keyOf(each) === route.params.reject) }} />`}`;
}

const keyOf = (reject) => `${reject.file}:${reject.offset}`;

const COLUMNS = [
  { label: "Reason", cell: (reject) => visible(reject.reason) },
  { label: "File", cell: (reject) => html`<span class="nowrap" title=${visible(reject.file)}>${shortened(baseName(reject.file), 24)}</span>` },
  { label: "Byte", number: true, cell: (reject) => count(reject.offset) },
  { label: "Length", number: true, optional: true, cell: (reject) => count(reject.length) },
  { label: "Window", number: true, optional: true, cell: (reject) => reject.window },
];

/** How many rejects each reason, file or window has; a click shows these alone. */
function Group({ route, param, title, rows, total }) {
  return html`<section class="box" aria-label=${title}>
    <header><h2>${title}</h2></header>
    <div class="few"><${Table}
      label=${title}
      rows=${rows}
      keyOf=${(row) => String(row.name)}
      selected=${route.params[param]}
      linkOf=${(row) => changed(route, { [param]: row.name, after: "", reject: "" })}
      columns=${[
        { label: param[0].toUpperCase() + param.slice(1), wide: param !== "reason", cell: (row) => (param === "file" ? html`<${Path} of=${row.name} />` : visible(row.name)) },
        { label: "Rejects", number: true, cell: (row) => count(row.count) },
        { label: "Share", number: true, cell: (row) => percent(row.count / total) },
      ]}
    /></div>
  </section>`;
}

/** The filters that hold, each with a way out. */
const Filters = ({ route }) =>
  GROUPS.filter(([param]) => route.params[param]).map(
    ([param]) => html`<a class="badge accent" href=${changed(route, { [param]: "", after: "" })} title="Remove this filter">${param}: ${shortened(route.params[param], 40)} ✕</a>`,
  );

function RejectPanel({ route, reject }) {
  const close = changed(route, { reject: "" });
  if (!reject) return html`<${Panel} title="This reject is not on this page" name="Reject" close=${close}><section>Remove the filters to find it.</section><//>`;
  return html`<${Panel} title=${visible(reject.reason)} name="Reject" close=${close}>
    <section>
      <${Facts}
        of=${[
          ["File", html`<a href=${href(route.app, "files", { file: reject.file })}>${visible(reject.file)}</a>`],
          ["Byte", count(reject.offset)],
          ["Length", plural(reject.length, "byte")],
          ["Window", html`<a href=${href(route.app, "windows", { window: reject.window })}>${reject.window}</a>`],
          ["Operator", visible(reject.operator)],
        ]}
      />
    </section>
    <${Section} title="Raw bytes">
      ${reject.raw === null || reject.raw === undefined ? html`<p class="muted">The file does not hold these bytes any more.</p>` : html`<${Raw} bytes=${fromBase64(reject.raw)} />`}
    <//>
  <//>`;
}
