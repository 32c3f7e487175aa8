/** The app's YAML with its problems in place, and how it differs from the app of the last run. */
import { State } from "../components/marks.js";
import { Code } from "../components/code.js";
import { Empty, Resource } from "../components/notice.js";
import { Facts } from "../components/panel.js";
import { Ago } from "../components/time.js";
import { useResource } from "../lib/api.js";
import { plural, visible } from "../lib/format.js";
import { html } from "../lib/html.js";

export function App({ route, app }) {
  const source = useResource(`apps/${route.app}/app`, {}, { app: route.app });
  return html`<main class="main" id="main" tabindex="-1">
    ${app && html`<${About} app=${app} />`}
    <${Resource} of=${source}>
      ${(data) => html`
        ${data.note && html`<p class="sentence warn"><span>${visible(data.note)}</span></p>`}
        ${data.changes?.length > 0 && html`<${Changes} changes=${data.changes} />`}
        ${data.difference?.length > 0 && html`<${Difference} lines=${data.difference} />`}
        ${data.yaml === null
          ? data.yaml_of_run
            ? html`<section class="box" aria-label="YAML of the last run">
                <header><h2>${visible(data.file)}</h2><span class="end muted">as the last run had it</span></header>
                <${Code} text=${data.yaml_of_run} problems=${[]} />
              </section>`
            : html`<${Empty} title="The app file is not at hand">The journal names it, and it is not on this machine: ${visible(data.file)}<//>`
          : html`<section class="box" aria-label="YAML">
              <header>
                <h2>${visible(data.file)}</h2>
                <span class="end ${data.problems.length ? "bad" : "good"}">${data.problems.length ? plural(data.problems.length, "problem") : "no problem"}</span>
              </header>
              <${Code} text=${data.yaml} problems=${data.problems} target=${Number(route.params.line)} />
            </section>`}
      `}
    <//>
  </main>`;
}

const About = ({ app }) => html`<section class="box" aria-label="Run"><div class="pad">
  <${Facts}
    of=${[
      ["Checkpoint", html`<span class="mono">${visible(app.checkpoint)}</span>`],
      ["State", html`<${State} value=${app.state} />`],
      ["Process", app.driver && `${visible(app.driver.command)}, process ${app.driver.pid} on ${visible(app.driver.host)}, user ${visible(app.driver.user)}`],
      ["Last sign of life", app.driver && html`<${Ago} at=${app.driver.last_beat_ms} />`],
      ["Error", app.driver?.error && html`<span class="bad">${visible(app.driver.error)}</span>`],
    ]}
  />
</div></section>`;

const Changes = ({ changes }) => html`<section class="box" aria-label="Difference to the last run">
  <header><h2>Difference to the app of the last run</h2></header>
  <ul class="pad stack">${changes.map((change) => html`<li><${State} value=${change.verdict} /> ${visible(change.text)}</li>`)}</ul>
</section>`;

/** The lines of the file that were changed since the last run began. */
const Difference = ({ lines }) => html`<section class="box" aria-label="Changed lines">
  <header><h2>Lines changed since the last run</h2></header>
  <div class="code" tabindex="0" role="region" aria-label="Changed lines of the app">
    ${lines.map((line) => html`<div class="row ${line.kind}"><span class="text">${visible(line.text)}</span></div>`)}
  </div>
</section>`;
