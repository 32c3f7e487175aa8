/** The plan as a picture: operators as cards, fused stages as frames, streams as edges with what flows on them. */
import { plural, shortened } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { layout } from "../lib/layout.js";
import { moveFocus } from "./table.js";

const CARD = { width: 172, height: 80 };
const ACROSS = { gap: { main: 100, cross: 22 }, pad: 14, title: { main: 0, cross: 20 } };
const DOWN = { gap: { main: 64, cross: 18 }, pad: 14, title: { main: 20, cross: 0 } };
/** From the edge of the page's body to the drawing. */
const MARGIN = 41;
/** Room for labels beside the last edge, where the graph goes down. */
const LABEL_WIDTH = 150;
/** The graph is not drawn smaller than this, so that it can be read; it scrolls instead. */
const LEAST_SCALE = 0.8;

/**
 * @typedef {object} GraphNode
 * @property {string} name
 * @property {string} kind Its class.
 * @property {string} stage Head of its stage; "" in the driver.
 * @property {string} note A line of figures.
 * @property {string} badge Such as its partitions.
 * @property {{name: string, value: number, fill: string}[]} parts Shares of its time.
 * @property {boolean} isBottleneck
 *
 * @typedef {object} GraphEdge
 * @property {string} from
 * @property {string} to
 * @property {boolean} isExchange
 * @property {string[]} lines Its label.
 * @property {string} strong The line that is said louder.
 * @property {string} title All about it, on hover.
 */

/**
 * @param {object} props
 * @param {GraphNode[]} props.nodes
 * @param {GraphEdge[]} props.edges
 * @param {{name: string, title: string}[]} props.stages
 * @param {string} props.selected
 * @param {(name: string) => string} props.linkOf
 */
export function Graph({ nodes, edges, stages, selected, linkOf }) {
  const box = useRef(null);
  const [room, setRoom] = useState(0);
  // The room without a panel: a click on an operator does not turn the graph.
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setRoom(entry.target.clientWidth - 2 * MARGIN));
    observer.observe(box.current.closest(".body"));
    return () => observer.disconnect();
  }, []);
  useEffect(() => box.current.querySelector(".node.selected")?.scrollIntoView({ block: "nearest", inline: "center" }), [selected, room]);
  return html`<div class="graph-box" ref=${box} onKeyDown=${(event) => moveFocus(event, box.current, "a.node")}>
    ${room > 0 && html`<${Drawing} ...${{ nodes, edges, stages, selected, linkOf, room }} />`}
  </div>`;
}

function Drawing({ nodes, edges, stages, selected, linkOf, room }) {
  const grouped = nodes.map((node) => ({ name: node.name, group: node.stage ? `stage ${node.stage}` : `driver ${node.name}` }));
  const across = layout(grouped, edges, { node: { main: CARD.width, cross: CARD.height }, ...ACROSS });
  const isAcross = across.main * LEAST_SCALE <= room;
  const placed = isAcross ? across : layout(grouped, edges, { node: { main: CARD.height, cross: CARD.width }, ...DOWN });
  const point = isAcross ? ({ main, cross }) => [main, cross] : ({ main, cross }) => [cross, main];
  const [width, height] = point(placed).map((length, index) => Math.ceil(length) + 4 + (isAcross || index ? 0 : LABEL_WIDTH / 2));
  const titles = new Map(stages.map((stage) => [`stage ${stage.name}`, stage.title]));
  const stop = nodes.some((node) => node.name === selected) ? selected : nodes[0]?.name;
  return html`<svg
    class="graph"
    viewBox=${`-2 -2 ${width} ${height}`}
    width=${width}
    height=${height}
    style=${{ minWidth: `${width * LEAST_SCALE}px` }}
    role="group"
    aria-label=${`Graph of ${plural(nodes.length, "operator")} and ${plural(edges.length, "stream")}`}
  >
    <defs>
      <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" /></marker>
    </defs>
    ${[...placed.groups].map(([group, at]) => html`<${Frame} ...${{ at, title: titles.get(group), point }} />`)}
    ${edges
      .filter(({ from, to }) => placed.nodes.has(from) && placed.nodes.has(to))
      .map((edge) => html`<${Edge} ...${{ edge, from: point(placed.nodes.get(edge.from)), to: point(placed.nodes.get(edge.to)), isAcross }} />`)}
    ${nodes.map((node) => {
      const [x, y] = point(placed.nodes.get(node.name));
      return html`<${Node} key=${node.name} ...${{ node, x, y, link: linkOf(node.name), isSelected: node.name === selected, isStop: node.name === stop }} />`;
    })}
  </svg>`;
}

function Frame({ at, title, point }) {
  if (!title) return null;
  const [x, y] = point(at);
  const [width, height] = point(at.size);
  return html`<g>
    <rect class="frame" x=${x} y=${y} width=${width} height=${height} rx="12" />
    <text class="soft" x=${x + 14} y=${y + 21}>${shortened(title, Math.floor(width / 7))}</text>
  </g>`;
}

function Edge({ edge, from, to, isAcross }) {
  const [x1, y1] = isAcross ? [from[0] + CARD.width, from[1] + CARD.height / 2] : [from[0] + CARD.width / 2, from[1] + CARD.height];
  const [x2, y2] = isAcross ? [to[0], to[1] + CARD.height / 2] : [to[0] + CARD.width / 2, to[1]];
  const bend = (isAcross ? x2 - x1 : y2 - y1) / 2;
  const path = isAcross
    ? `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
    : `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
  // Near the end rather than in the middle: streams that begin together have parted there.
  const [x, y] = isAcross ? [x1 + (x2 - x1) * 0.5, y1 + (y2 - y1) * 0.62] : [x1 + (x2 - x1) * 0.62 + 8, y1 + (y2 - y1) * 0.5];
  return html`<g>
    <path class="edge ${edge.isExchange ? "exchange" : ""}" d=${path} marker-end="url(#arrow)"><title>${edge.title}</title></path>
    <g transform=${`translate(${x} ${y + 4 - (edge.lines.length - 1) * 7})`} text-anchor=${isAcross ? "middle" : "start"}>
      ${edge.lines.map((line, index) => html`<text class="edge-label ${line === edge.strong ? "" : "soft"}" y=${index * 14}>${line}<title>${edge.title}</title></text>`)}
    </g>
  </g>`;
}

function Node({ node, x, y, link, isSelected, isStop }) {
  const whole = node.parts.reduce((sum, part) => sum + part.value, 0);
  let at = 0;
  const bars = node.parts.map((part) => {
    const width = whole ? (part.value / whole) * (CARD.width - 24) : 0;
    at += width;
    return html`<rect class="fill-${part.fill}" x=${12 + at - width} y=${CARD.height - 13} width=${width} height="5"><title>${part.name}</title></rect>`;
  });
  const shown = { name: shortened(node.name, node.badge ? 15 : 20), kind: shortened(node.kind, 25), note: shortened(node.note, 28) };
  return html`<a
    class="node ${isSelected ? "selected" : ""} ${node.isBottleneck ? "bottleneck" : ""}"
    href=${link}
    tabindex=${isStop ? 0 : -1}
    transform=${`translate(${x} ${y})`}
  >
    <rect class="card-rect" width=${CARD.width} height=${CARD.height} rx="8" />
    <text class="label" x="12" y="22">${shown.name}</text>
    ${node.badge && html`<text class="soft" x=${CARD.width - 12} y="22" text-anchor="end">${node.badge}</text>`}
    <text class="soft" x="12" y="39">${shown.kind}</text>
    <text class="soft" x="12" y="56">${shown.note}</text>
    ${node.isBottleneck && html`<text class="visually-hidden">bottleneck</text>`}
    ${whole > 0 ? html`<g aria-hidden="true">${bars}</g>` : html`<rect class="fill-wait" x="12" y=${CARD.height - 13} width=${CARD.width - 24} height="5" />`}
  </a>`;
}
