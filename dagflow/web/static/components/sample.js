/** A few records at an operator's output ports, read again when they are asked for. */
import { useResource } from "../lib/api.js";
import { visible } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { Resource } from "./notice.js";
import { Section } from "./panel.js";

export function Sample({ route, node }) {
  const ports = node.ports.filter((port) => port.direction === "output");
  const [port, setPort] = useState("");
  if (!ports.length) return null;
  return html`<${Section} title="Sample">
    <div class="tools">
      ${ports.map((each) => html`<button class="button" aria-pressed=${port === each.name} onClick=${() => setPort(each.name)}>${visible(each.name)}</button>`)}
    </div>
    ${port && html`<${Records} key=${port} route=${route} at=${`${node.name}.${port}`} />`}
  <//>`;
}

function Records({ route, at }) {
  const sample = useResource(`apps/${route.app}/sample`, { port: at }, { isStill: true });
  return html`<${Resource} of=${sample} rows=${3}>
    ${(data) =>
      data.rows.length === 0
        ? html`<p class="muted">No record has come to this port.</p>`
        : html`${data.error && html`<p class="sentence bad" role="alert">${visible(data.error)}</p>`}
            <div class="scroll">
              <table aria-label="Sample">
                <thead><tr>${data.columns.map((name) => html`<th scope="col">${visible(name)}</th>`)}</tr></thead>
                <tbody>${data.rows.map((row) => html`<tr>${row.map((value) => html`<td><code>${visible(value)}</code></td>`)}</tr>`)}</tbody>
              </table>
            </div>`}
  <//>`;
}
