/** The plan as it runs: which operators, how much flows between them, where the time goes, and what the bottleneck is. */
import { Equation, Legend, Share } from "../components/marks.js";
import { Graph } from "../components/graph.js";
import { Resource } from "../components/notice.js";
import { Cards, Facts, Panel, Section } from "../components/panel.js";
import { Sample } from "../components/sample.js";
import { Table } from "../components/table.js";
import { Ago } from "../components/time.js";
import { useResource } from "../lib/api.js";
import { byteRate, bytes, count, duration, plural, rowRate, short, UNKNOWN, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { changed, href } from "../lib/router.js";

const PARTS = [
  ["reading", "read"],
  ["computing", "compute"],
  ["writing", "write"],
  ["waiting", "wait"],
];
const partsOf = (node) => PARTS.map(([name, fill]) => ({ name, fill, value: node.seconds?.[name] ?? 0 }));

export function GraphScreen({ route, app }) {
  const graph = useResource(`apps/${route.app}/graph`, {}, { app: route.app });
  return html`<main class="main" id="main" tabindex="-1">
      ${app && html`<${Overview} app=${app} />`}
      <${Resource} of=${graph}>
        ${(data) => html`
          ${data.bottleneck && html`<p class="sentence accent"><span>${visible(data.bottleneck.sentence)}</span></p>`}
          <section class="box" aria-label="Graph">
            <header><h2>Graph</h2><span class="end"><${Legend} items=${PARTS.map(([name, fill]) => ({ name, fill }))} /></span></header>
            <${Graph}
              nodes=${data.nodes.map((node) => drawn(node, data.bottleneck))}
              edges=${data.edges.map((edge) => drawnEdge(edge))}
              stages=${data.stages.map((stage) => ({ name: stage.name, title: `stage ${stage.name} × ${stage.partitions ?? 0}` }))}
              layouts=${data.layouts}
              selected=${route.params.node}
              linkOf=${(name) => changed(route, { node: name })}
            />
          </section>
        `}
      <//>
    </main>
    ${route.params.node && graph.data && html`<${NodePanel} ...${{ route, graph: graph.data }} />`}`;
}

function Overview({ app }) {
  const late = app.oldest_unpublished_ms ? html`<${Ago} at=${app.oldest_unpublished_ms} isBare />` : "up to date";
  return html`<${Cards}
      items=${[
        ["How late", late, app.oldest_unpublished_ms ? "oldest unpublished" : html`last commit <${Ago} at=${app.last_commit_ms} />`, app.oldest_unpublished_ms ? "" : "good"],
        ["Backlog", bytes(app.backlog.bytes), app.backlog.seconds ? `${duration(app.backlog.seconds)} to read it` : app.backlog.blocks ? plural(app.backlog.blocks, "block") : app.backlog.bytes ? "not committed yet" : "nothing waits"],
        ["Rate", byteRate(app.rates.bytes_per_second), rowRate(app.rates.records_per_second)],
        ["Windows", count(app.windows), `${plural(app.files, "file")}, ${bytes(app.bytes)}`],
        ["Rejects", count(app.rejected), app.rejected ? html`<a href=${href(app.id, "rejects")}>see them</a>` : "none refused", app.rejected ? "bad" : ""],
      ]}
    />
    <p><${Equation} account=${app.account} /></p>
    ${app.concerns.map((concern) => html`<p class="sentence warn"><span>${visible(concern)}</span></p>`)}
    ${app.corrections.map((text) => html`<p class="sentence"><span>${visible(text)}</span></p>`)}`;
}

const drawn = (node, bottleneck) => ({
  name: node.name,
  kind: node.class,
  stage: node.stage,
  badge: node.stage ? `× ${node.partitions ?? 0}` : "driver",
  note: node.records_out === null ? "" : `${short(node.records_out)} rows out`,
  parts: partsOf(node),
  isBottleneck: bottleneck?.operator === node.name,
});

function drawnEdge(edge) {
  const [from] = edge.from.split(".");
  const [to] = edge.to.split(".");
  // Streams of metadata carry no rows.
  const flow = edge.records === null ? [] : edge.rows_per_second ? [rowRate(edge.rows_per_second), byteRate(edge.bytes_per_second)] : [`${short(edge.records)} rows`, bytes(edge.bytes)];
  const kept = edge.records === null || edge.records_in === null || edge.records_in === edge.records ? "" : `${short(edge.records_in)} → ${short(edge.records)}`;
  return {
    from,
    to,
    isExchange: edge.is_exchange,
    lines: [kept, ...flow].filter(Boolean),
    strong: kept || flow[0],
    title: `${visible(edge.stream)}: ${visible(edge.from)} → ${visible(edge.to)}, ${edge.records === null ? "metadata" : `${plural(edge.records, "row")}, ${bytes(edge.bytes)}`}${edge.is_exchange ? ", exchange" : ""}`,
  };
}

function NodePanel({ route, graph }) {
  const node = graph.nodes.find((each) => each.name === route.params.node);
  const close = changed(route, { node: "" });
  if (!node) return html`<${Panel} title="No such operator" name="Operator" close=${close}><section>The plan has no operator of this name.</section><//>`;
  const whole = partsOf(node).reduce((sum, part) => sum + part.value, 0);
  return html`<${Panel} title=${visible(node.name)} name="Operator" close=${close}>
    <section>
      ${node.doc && html`<p>${visible(node.doc)}</p>`}
      <${Facts} of=${[["Class", html`<span title=${visible(node.module)}>${visible(node.class)}</span>`], ["Where", node.stage ? `stage ${node.stage}, ${plural(node.partitions ?? 0, "partition")}` : "driver"], ["Line", node.line && html`<a href=${href(route.app, "app", { line: node.line })}>${node.line}</a>`]]} />
    </section>
    <${Section} title="Time">
      <${Share} parts=${partsOf(node)} label="Time" />
      <${Legend} items=${partsOf(node).map((part) => ({ ...part, value: whole ? duration(part.value) : "" }))} />
    <//>
    <${Partitions} stage=${graph.stages.find((stage) => stage.name === node.stage)} />
    <${Section} title="Ports">
      <${Table}
        label="Ports"
        keyOf=${(port) => `${port.direction} ${port.name}`}
        rows=${node.ports}
        columns=${[
          { label: "Port", cell: (port) => visible(port.name), wide: true },
          { label: "Direction", cell: (port) => html`<span class="muted">${port.direction}</span>` },
          { label: "Rows", number: true, cell: (port) => count(port.records) },
          { label: "Bytes", number: true, cell: (port) => bytes(port.bytes) },
        ]}
      />
    <//>
    <${Section} title="Properties">
      <${Table}
        label="Properties"
        keyOf=${(property) => property.name}
        rows=${node.properties}
        columns=${[
          { label: "Property", cell: (property) => property.name },
          { label: "Value", wide: true, cell: (property) => html`<code title=${visible(property.value)}>${visible(property.value)}</code>` },
          { label: "Line", number: true, cell: (property) => (property.line ? html`<a href=${href(route.app, "app", { line: property.line })}>${property.line}</a>` : html`<span class="muted">${property.default ? "default" : UNKNOWN}</span>`) },
        ]}
      />
    <//>
    <${Sample} route=${route} node=${node} />
  <//>`;
}

/** How long each partition of a stage worked, beside how long the windows ran. */
function Partitions({ stage }) {
  const { times = [], count: all = 0, sentence = "" } = stage?.partition_times ?? {};
  if (times.length < 2) return null;
  return html`<${Section} title=${`Partitions of stage ${visible(stage.name)}`}>
    ${sentence && html`<p>${visible(sentence)}</p>`}
    <ol class="partitions">
      ${times.map(({ partition, working_seconds: working, waiting_seconds: waiting }) => {
        const parts = [
          { name: "working", fill: "compute", value: working },
          { name: "waiting", fill: "wait", value: waiting },
        ];
        return html`<li><span class="number muted">${partition}</span><${Share} parts=${parts} label=${`Partition ${partition}`} /><span class="number">${duration(working)}</span></li>`;
      })}
    </ol>
    ${all > times.length && html`<p class="muted">The first ${count(times.length)} of ${count(all)} are shown.</p>`}
  <//>`;
}
