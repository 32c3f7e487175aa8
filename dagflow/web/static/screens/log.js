/** The log of the newest run, newest line first. */
import { More } from "../components/more.js";
import { Empty, Resource } from "../components/notice.js";
import { Choice, Search } from "../components/search.js";
import { Time } from "../components/time.js";
import { useResource } from "../lib/api.js";
import { visible } from "../lib/format.js";
import { html } from "../lib/html.js";

const LEVELS = [
  ["", "all"],
  ["INFO", "info and above"],
  ["WARNING", "warnings and above"],
  ["ERROR", "errors"],
];

export function Log({ route }) {
  const { search, level, before } = route.params;
  const log = useResource(`apps/${route.app}/log`, { search, level, before, limit: 300 }, { app: route.app });
  return html`<main class="main" id="main" tabindex="-1">
    <div class="tools">
      <${Search} route=${route} param="search" label="Search the log" placeholder="Search the log" />
      <${Choice} route=${route} param="level" label="Level" options=${LEVELS} />
    </div>
    <${Resource} of=${log}>
      ${(data) =>
        data.lines.length === 0
          ? html`<${Empty} title="No line to show">${search || level ? "No line matches. Clear the search to see all." : "This run has written no log, or its file is not on this machine."}<//>`
          : html`<section class="box code log" aria-label="Log" tabindex="0">
                ${data.lines.toReversed().map(
                  (line, index) => html`<div key=${index} class="row ${line.level}">
                    <${Time} at=${line.time_ms} /><span class="level">${line.level}</span><span class="text">${visible(line.text)}</span>
                  </div>`,
                )}
              </section>
              <${More} route=${route} param="before" next=${data.next} first="Newest" following="Older lines" />`}
    <//>
  </main>`;
}
