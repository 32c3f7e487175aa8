/** The plan as a picture: operators as cards, fused stages as frames, streams as edges with what flows on them. */
import { plural, shortened } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { moveFocus } from "./table.js";

/** From the edge of the page's body to the drawing. */
const MARGIN = 41;
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
 * @param {object[]} props.layouts Places from left to right, and from top to bottom.
 * @param {string} props.selected
 * @param {(name: string) => string} props.linkOf
 */
export function Graph({ nodes, edges, stages, layouts, selected, linkOf }) {
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
    ${room > 0 && nodes.length > 0 && html`<${Drawing} ...${{ nodes, edges, stages, layouts, selected, linkOf, room }} />`}
  </div>`;
}

function Drawing({ nodes, edges, stages, layouts: [across, down], selected, linkOf, room }) {
  const at = across.width * LEAST_SCALE <= room ? across : down;
  const [width, height] = [at.width, at.height].map((length) => Math.ceil(length) + 4);
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
    ${stages.map(({ name }) => html`<rect class="frame" ...${rect(at.stages[name])} rx="12" />`)}
    ${edges.map((edge, index) => html`<${Edge} edge=${edge} at=${at.edges[index]} />`)}
    ${stages.map(({ name, title }) => {
      const { x, y, width } = rect(at.stages[name]);
      return html`<text class="soft frame-title" x=${x + 14} y=${y + 21}>${shortened(title, Math.floor(width / 7))}</text>`;
    })}
    ${nodes.map((node) => html`<${Node} key=${node.name} ...${{ node, at: at.nodes[node.name], link: linkOf(node.name), isSelected: node.name === selected, isStop: node.name === stop }} />`)}
  </svg>`;
}

const rect = ([x, y, width, height]) => ({ x, y, width, height });

function Edge({ edge, at }) {
  const [x, y] = at.label;
  return html`<g>
    <path class="edge ${edge.isExchange ? "exchange" : ""}" d=${at.path} marker-end="url(#arrow)"><title>${edge.title}</title></path>
    <g transform=${`translate(${x} ${y + 4 - (edge.lines.length - 1) * 7})`} text-anchor="middle">
      ${edge.lines.map((line, index) => html`<text class="edge-label ${line === edge.strong ? "" : "soft"}" y=${index * 14}>${line}<title>${edge.title}</title></text>`)}
    </g>
  </g>`;
}

function Node({ node, at: [x, y, width, height], link, isSelected, isStop }) {
  const whole = node.parts.reduce((sum, part) => sum + part.value, 0);
  let end = 0;
  const bars = node.parts.map((part) => {
    const length = whole ? (part.value / whole) * (width - 24) : 0;
    end += length;
    return html`<rect class="fill-${part.fill}" x=${12 + end - length} y=${height - 13} width=${length} height="5"><title>${part.name}</title></rect>`;
  });
  const shown = { name: shortened(node.name, node.badge ? 15 : 20), kind: shortened(node.kind, 25), note: shortened(node.note, 28) };
  return html`<a
    class="node ${isSelected ? "selected" : ""} ${node.isBottleneck ? "bottleneck" : ""}"
    href=${link}
    tabindex=${isStop ? 0 : -1}
    transform=${`translate(${x} ${y})`}
  >
    <rect class="card-rect" width=${width} height=${height} rx="8" />
    <text class="label" x="12" y="22">${shown.name}</text>
    ${node.badge && html`<text class="soft" x=${width - 12} y="22" text-anchor="end">${node.badge}</text>`}
    <text class="soft" x="12" y="39">${shown.kind}</text>
    <text class="soft" x="12" y="56">${shown.note}</text>
    ${node.isBottleneck && html`<text class="visually-hidden">bottleneck</text>`}
    ${whole > 0 ? html`<g aria-hidden="true">${bars}</g>` : html`<rect class="fill-wait" x="12" y=${height - 13} width=${width - 24} height="5" />`}
  </a>`;
}
