/** Windows, and how long each took from emit to publish; a click shows the manifest. */
import { Badge, Legend, State } from "../components/marks.js";
import { More } from "../components/more.js";
import { Empty, Resource } from "../components/notice.js";
import { Facts, Panel, Section } from "../components/panel.js";
import { Path } from "../components/path.js";
import { Table } from "../components/table.js";
import { Time, useNow } from "../components/time.js";
import { PHASES, spanOf, Timeline } from "../components/timeline.js";
import { useResource } from "../lib/api.js";
import { bytes, count, duration, plural, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { changed, href } from "../lib/router.js";

const TONES = { app: "", straggler: "warn", reprocessed: "accent", scaling: "accent", schema: "warn", driver: "", reject: "bad" };

export function Windows({ route, app }) {
  const windows = useResource(`apps/${route.app}/windows`, { before: route.params.before, limit: 200 }, { app: route.app });
  const isRunning = app?.state === "running" && !route.params.before;
  const now = useNow();
  return html`<main class="main" id="main" tabindex="-1">
      <${Resource} of=${windows}>
        ${(data) =>
          data.windows.length === 0
            ? html`<${Empty} title="No window yet">A window appears here when the first blocks are planned. ${app?.state === "running" ? "The run is at work." : "Run the app: dagflow run."}<//>`
            : html`<section class="box" aria-label="Windows">
                  <header>
                    <h2>Windows</h2>
                    <span class="end"><${Legend} items=${PHASES.map(([name, , , fill]) => ({ name, fill }))} /></span>
                  </header>
                  <${Timeline} rows=${data.windows.map(rowOf)} selected=${Number(route.params.window)} linkOf=${(id) => changed(route, { window: id })} now=${isRunning ? now : undefined} />
                </section>
                <${More} route=${route} param="before" next=${data.next} first="Newest" following="Older windows" />`}
      <//>
    </main>
    ${route.params.window && html`<${WindowPanel} route=${route} id=${route.params.window} />`}`;
}

function rowOf(window) {
  const kinds = [...new Set(window.marks.map((mark) => mark.kind))];
  const marks = kinds.map((kind) => {
    const own = window.marks.filter((mark) => mark.kind === kind).map((mark) => visible(mark.text));
    return { text: own.length > 1 ? `${kind} × ${own.length}` : kind, title: own.join("; "), tone: TONES[kind] ?? "" };
  });
  if (window.state === "planned") marks.unshift({ text: "planned", title: "planned, and not committed", tone: "accent" });
  const [start, end] = spanOf(window.times);
  const took = window.times.published_ms ? `${duration((end - start) / 1000)} · ` : "";
  return { id: window.window, times: window.times, marks, note: `${took}${plural(window.blocks, "block")} · ${bytes(window.bytes)}` };
}

function WindowPanel({ route, id }) {
  const window = useResource(`apps/${route.app}/windows/${encodeURIComponent(id)}`, {}, { app: route.app });
  return html`<${Panel} title=${`Window ${visible(id)}`} name="Window" close=${changed(route, { window: "" })}>
    <${Resource} of=${window}>${(data) => html`<${Manifest} route=${route} window=${data} />`}<//>
  <//>`;
}

const lengthOf = (window, list) => window.counts?.[list] ?? window[list].length;

/** Long lists are cut by the server. */
const cutNote = (window, list) =>
  lengthOf(window, list) > window[list].length && html`<p class="muted">The first ${count(window[list].length)} are shown. All: dagflow status --window ${window.window}</p>`;

function Manifest({ route, window }) {
  const [start, end] = spanOf(window.times);
  return html`
    <section>
      <${Facts}
        of=${[
          ["State", html`<${State} value=${window.state} />`],
          ["Emitted", window.times.emitted_ms ? html`<${Time} at=${window.times.emitted_ms} />` : ""],
          ["Published", html`<${Time} at=${window.times.published_ms} />`],
          ["Took", start && duration((end - start) / 1000)],
          ["Held back", window.held_records ? html`${plural(window.held_records, "row")}, ${window.merged_in ? html`published by <a href=${changed(route, { window: window.merged_in })}>window ${window.merged_in}</a>` : "not published yet"}` : ""],
          ["Partitions", Object.entries(window.partitions).map(([stage, n]) => `${visible(stage)} × ${n}`).join(", ")],
        ]}
      />
    </section>
    <${Section} title="Phases">
      <${Facts} of=${PHASES.map(([name, from, to]) => [name, window.times[from] && window.times[to] ? duration((window.times[to] - window.times[from]) / 1000) : ""])} />
    <//>
    ${window.marks?.length > 0 && html`<${Section} title="Marks"><ul class="stack">${window.marks.map((mark) => html`<li><${Badge} tone=${TONES[mark.kind] ?? ""}>${mark.kind}<//> ${visible(mark.text)}</li>`)}</ul><//>`}
    <${Section} title=${`Read: ${plural(lengthOf(window, "inputs"), "range")}`}>
      ${window.inputs.length > 0 && html`<${Table}
        label="Input ranges"
        keyOf=${(range) => `${range.url} ${range.start}`}
        rows=${window.inputs}
        linkOf=${(range) => href(route.app, "files", { file: range.url })}
        columns=${[
          { label: "File", wide: true, cell: (range) => html`<${Path} of=${range.url} />` },
          { label: "From", number: true, cell: (range) => count(range.start) },
          { label: "To", number: true, cell: (range) => count(range.end) },
        ]}
      />`}
      ${cutNote(window, "inputs")}
    <//>
    <${Section} title=${`Published: ${plural(lengthOf(window, "outputs"), "file")}`}>
      ${window.outputs.length > 0 && html`<${Table}
        label="Outputs"
        keyOf=${(output) => output.url}
        rows=${window.outputs}
        columns=${[
          { label: "File", wide: true, cell: (output) => html`<${Path} of=${output.url} />` },
          { label: "Rows", number: true, cell: (output) => count(output.records) },
          { label: "Size", number: true, cell: (output) => bytes(output.size_bytes) },
        ]}
      />`}
      ${cutNote(window, "outputs")}
    <//>
    ${Object.keys(window.receipts ?? {}).length > 0 &&
    html`<${Section} title="Table versions"><${Facts} of=${Object.entries(window.receipts).map(([name, version]) => [visible(name), visible(version)])} /><//>`}
  `;
}
