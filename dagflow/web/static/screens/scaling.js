/** Backlog and partitions over time, and why the number of partitions was changed. */
import { Chart } from "../components/chart.js";
import { Empty, Resource } from "../components/notice.js";
import { Table } from "../components/table.js";
import { Time } from "../components/time.js";
import { useResource } from "../lib/api.js";
import { count, visible } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { href } from "../lib/router.js";

const FILLS = ["read", "write", "compute", "good"];

export function Scaling({ route, theme }) {
  const scaling = useResource(`apps/${route.app}/scaling`, {}, { app: route.app });
  return html`<main class="main" id="main" tabindex="-1">
    <${Resource} of=${scaling}>
      ${(data) =>
        data.points.length === 0 && data.decisions.length === 0
          ? html`<${Empty} title="Nothing to scale yet">The number of partitions follows the backlog once windows are planned.<//>`
          : html`<${Charts} data=${data} theme=${theme} /><${Decisions} route=${route} decisions=${data.decisions} />`}
    <//>
  </main>`;
}

function Charts({ data, theme }) {
  const chart = useMemo(() => chartOf(data.points), [data]);
  if (data.points.length < 2) return null;
  return html`<section class="box" aria-label="Backlog and partitions">
    <header><h2>Backlog and partitions</h2></header>
    <div class="pad"><${Chart} label="Backlog in blocks and partitions of each stage over time" times=${chart.times} series=${chart.series} theme=${theme} /></div>
  </section>`;
}

function chartOf(points) {
  const stages = [...new Set(points.flatMap((point) => Object.keys(point.partitions)))];
  const blocks = { label: "backlog, blocks", fill: "warn", scale: "blocks", format: (value) => String(Math.round(value * 10) / 10), values: points.map((point) => point.backlog_blocks) };
  const partitions = stages.map((stage, index) => ({
    label: `partitions of ${visible(stage)}`,
    fill: FILLS[index % FILLS.length],
    scale: "partitions",
    isStepped: true,
    format: count,
    values: points.map((point) => point.partitions[stage] ?? null),
  }));
  return { times: points.map((point) => point.time_ms / 1000), series: [blocks, ...partitions] };
}

const Decisions = ({ route, decisions }) => html`<section class="box" aria-label="Decisions">
  <header><h2>Decisions</h2></header>
  ${decisions.length === 0
    ? html`<p class="pad muted">The number of partitions has not changed.</p>`
    : html`<${Table}
        label="Decisions"
        rows=${[...decisions].reverse()}
        keyOf=${(decision) => `${decision.window} ${decision.stage} ${decision.after} ${decision.time_ms}`}
        linkOf=${(decision) => href(route.app, "windows", { window: decision.window })}
        columns=${[
          { label: "Window", cell: (decision) => decision.window },
          { label: "Time", cell: (decision) => html`<${Time} at=${decision.time_ms} />` },
          { label: "Stage", optional: true, cell: (decision) => visible(decision.stage) },
          { label: "Partitions", number: true, cell: (decision) => `${decision.before} → ${decision.after}` },
          { label: "Reason", wide: true, cell: (decision) => visible(decision.reason) },
        ]}
      />`}
</section>`;
