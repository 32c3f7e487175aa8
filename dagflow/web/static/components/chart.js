/** A chart over time. uPlot is loaded when the first one is drawn. */
import { html, useEffect, useRef } from "../lib/html.js";
import { axisTimes, localTime } from "../lib/format.js";

/** Blocks and partitions are whole: no label stands twice. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/**
 * @param {object} props
 * @param {string} props.label What the chart shows, for readers who do not see it.
 * @param {number[]} props.times Seconds since 1970, ascending.
 * @param {{label: string, values: (number|null)[], fill: string, isStepped?: boolean, scale?: string, format: (v: number) => string}[]} props.series
 * @param {string} props.theme Drawn again where it changes.
 */
export function Chart({ label, times, series, theme, height = 220 }) {
  const box = useRef(null);
  useEffect(() => {
    let plot;
    let isGone = false;
    const observer = new ResizeObserver(([entry]) => plot?.setSize({ width: entry.contentRect.width, height }));
    import("../vendor/uplot.js").then(({ default: UPlot }) => {
      if (isGone || !box.current) return;
      plot = new UPlot(options(UPlot, box.current.clientWidth, height, series), [times, ...series.map((each) => each.values)], box.current);
      observer.observe(box.current);
    });
    return () => {
      isGone = true;
      observer.disconnect();
      plot?.destroy();
    };
  }, [times, series, theme, height]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${box}></div>`;
}

function options(UPlot, width, height, series) {
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "11px system-ui" };
  // With less room, labels in the usual distance would leave none on the axis of time.
  const [space, size] = width < 600 ? [60, 40] : [90, 70];
  const scales = [...new Set(series.map((each) => each.scale ?? "y"))];
  return {
    width,
    height,
    padding: [12, 8, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true },
    scales: Object.fromEntries(scales.map((scale) => [scale, { range: (_, min, max) => [0, Math.max(max, 1) * 1.1] }])),
    axes: [
      { ...axis, space, values: (_, ticks) => axisTimes(ticks) },
      ...scales.map((scale, index) => {
        const format = series.find((each) => (each.scale ?? "y") === scale).format;
        return { ...axis, scale, incrs: WHOLE, size, side: index ? 1 : 3, grid: index ? { show: false } : axis.grid, values: (_, ticks) => ticks.map(format) };
      }),
    ],
    series: [
      { value: (_, seconds) => (seconds === null ? "–" : localTime(seconds * 1000)), label: "time" },
      ...series.map(({ label, fill, isStepped, scale = "y", format }) => ({
        label,
        scale,
        stroke: colour(fill),
        width: 1.5,
        points: { show: (plot) => plot.data[0].length < 30, size: 5 },
        paths: isStepped ? UPlot.paths.stepped({ align: 1 }) : undefined,
        value: (_, value) => (value === null ? "–" : format(value)),
      })),
    ],
  };
}
