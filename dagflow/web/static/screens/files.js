/** Files with what became of them; a click shows versions, the byte map, and where a line of the file has gone. */
import { ByteMap } from "../components/bytemap.js";
import { Badge, State } from "../components/marks.js";
import { More } from "../components/more.js";
import { Empty, Resource } from "../components/notice.js";
import { Facts, Panel, Section } from "../components/panel.js";
import { Path } from "../components/path.js";
import { Choice, Search } from "../components/search.js";
import { Table } from "../components/table.js";
import { Time } from "../components/time.js";
import { useResource } from "../lib/api.js";
import { baseName, bytes, count, plural, visible } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { changed, href } from "../lib/router.js";

const STATES = [
  ["", "all"],
  ["read", "read"],
  ["planned", "planned"],
  ["left out", "left out"],
];

export function Files({ route, app }) {
  const { search, state, after } = route.params;
  const files = useResource(`apps/${route.app}/files`, { search, state, after, limit: 100 }, { app: route.app });
  return html`<main class="main" id="main" tabindex="-1">
      <div class="tools">
        <${Search} route=${route} param="search" label="Search files" placeholder="Search by name or pattern, such as *.log" />
        <${Choice} route=${route} param="state" label="State" options=${STATES} />
      </div>
      <${Why} route=${route} />
      <${Resource} of=${files}>
        ${(data) =>
          data.files.length === 0
            ? html`<${Nothing} route=${route} isAll=${!data.next} /><${More} route=${route} param="after" next=${data.next} following="Look in older windows" />`
            : html`<section class="box" aria-label="Files">
                  <${Table}
                    label="Files"
                    rows=${data.files}
                    keyOf=${keyOf}
                    linkOf=${(file) => changed(route, { file: file.url })}
                    selected=${keyOf(data.files.find((file) => file.url === route.params.file))}
                    columns=${COLUMNS}
                  />
                </section>
                <${More} route=${route} param="after" next=${data.next} following="Next files" />`}
      <//>
    </main>
    ${route.params.file && html`<${FilePanel} route=${route} app=${app} url=${route.params.file} />`}`;
}

/** No file in what was looked at: a request reads for a second, and a whole path is found at once by the index. */
function Nothing({ route, isAll }) {
  const { search, state } = route.params;
  const isPath = /^(\/|[a-z][a-z0-9+.-]*:\/\/)[^*?[]*$/i.test(search ?? "");
  const title = isAll ? "No such file was taken" : "No such file in the newest windows";
  if (isPath) return html`<${Empty} title=${title}><a href=${changed(route, { file: search })}>Look up ${visible(baseName(search))}</a> by its whole path.<//>`;
  return html`<${Empty} title=${title}>${search || state ? "A whole path is found at once, however long ago the file was read. Above, ask why a file was not taken." : "A file appears here when its first block is planned."}<//>`;
}

const keyOf = (file) => (file ? `${file.url} ${file.size_bytes} ${file.mtime_ms} ${file.etag}` : "");

const COLUMNS = [
  { label: "File", wide: true, cell: (file) => html`<${Path} of=${file.url} />` },
  { label: "State", cell: (file) => html`<${State} value=${file.state} />` },
  { label: "Size", number: true, cell: (file) => bytes(file.size_bytes) },
  { label: "Windows", number: true, optional: true, cell: (file) => windowsOf(file.windows) },
  { label: "Rejects", number: true, optional: true, cell: (file) => (file.rejected ? html`<span class="bad">${count(file.rejected)}</span>` : "0") },
  { label: "Planned", number: true, optional: true, cell: (file) => html`<${Time} at=${file.times.planned_ms} />` },
  { label: "Published", number: true, optional: true, cell: (file) => html`<${Time} at=${file.times.published_ms} />` },
];

const windowsOf = (ids) => (ids.length > 3 ? `${ids[0]} … ${ids[ids.length - 1]}` : ids.join(", "));

/** "Why was this file not taken?", answered by the code that decides. */
function Why({ route }) {
  const [text, setText] = useState(route.params.why ?? "");
  const answer = useResource(route.params.why ? `apps/${route.app}/why` : "", { url: route.params.why }, { app: route.app });
  const ask = (event) => {
    event.preventDefault();
    location.hash = changed(route, { why: text });
  };
  return html`<form class="tools" onSubmit=${ask}>
      <label class="field grow">Why was this file not taken?
        <input class="grow" value=${text} placeholder="path of a file" onInput=${(event) => setText(event.currentTarget.value)} autocomplete="off" spellcheck=${false} />
      </label>
      <button class="button">Ask</button>
    </form>
    ${route.params.why && html`<${Resource} of=${answer} rows=${1}>${(data) => html`<p class="sentence ${data.taken ? "good" : "warn"}" role="status"><span>${visible(data.sentence)}</span></p>`}<//>`}`;
}

function FilePanel({ route, app, url }) {
  const file = useResource(`apps/${route.app}/files/one`, { url, line: route.params.line }, { app: route.app });
  return html`<${Panel} title=${visible(baseName(url))} name="File" close=${changed(route, { file: "", line: "" })}>
    <section><p class="mono">${visible(url)}</p></section>
    <${Resource} of=${file}>
      ${(data) => html`
        <${Find} route=${route} found=${data.found} />
        ${data.versions.map((version, index) => html`<${Version} route=${route} version=${version} older=${data.versions.slice(index + 1)} isCompressed=${data.compressed} at=${index ? undefined : data.found?.offset} />`)}
      `}
    <//>
  <//>`;
}

/** Where a line of the file has gone. */
function Find({ route, found }) {
  const [line, setLine] = useState(route.params.line ?? "");
  const ask = (event) => {
    event.preventDefault();
    location.hash = changed(route, { line });
  };
  return html`<${Section} title="Where is a line of this file?">
    <form class="tools" onSubmit=${ask}>
      <label class="field">Line <input type="number" min="1" value=${line} onInput=${(event) => setLine(event.currentTarget.value)} /></label>
      <button class="button">Find</button>
    </form>
    ${route.params.line && found && html`<p class="sentence accent" role="status"><span>${visible(found.sentence)}</span></p>
      <${Facts} of=${[
        ["Byte", count(found.offset)],
        ["Window", found.window && html`<a href=${href(route.app, "windows", { window: found.window })}>${found.window}</a>`],
        ["Outputs", found.outputs?.length ? html`<ul>${found.outputs.map((output) => html`<li class="mono">${visible(output)}</li>`)}</ul>` : ""],
        ["Tables", Object.entries(found.tables ?? {}).map(([name, version]) => `${visible(name)}: ${visible(version)}`).join(", ")],
      ]} />`}
  <//>`;
}

/** What was read of a version; of one that was appended to, the earlier versions were read before it. */
function readBefore(version, older) {
  let first = Math.min(...version.ranges.map((range) => range.start));
  const found = { ranges: [...version.ranges], rejects: [...version.rejects] };
  for (const each of older) {
    found.ranges.unshift(...each.ranges.filter((range) => range.start < first).map((range) => ({ ...range, end: Math.min(range.end, first) })));
    found.rejects.push(...each.rejects.filter((reject) => reject.offset < first));
    first = Math.min(first, ...each.ranges.map((range) => range.start));
  }
  return found;
}

/** On the map of a compressed file, which is of its stored bytes, offsets of the content have no place. */
function Version({ route, version, older, isCompressed, at }) {
  const { ranges, rejects } = readBefore(version, older);
  return html`<${Section} title=${`Version of ${bytes(version.size_bytes)}`}>
    <${ByteMap} size=${version.size_bytes} ranges=${ranges} rejects=${isCompressed ? [] : rejects} at=${isCompressed ? undefined : at} />
    <div class="stack">
      <${Facts}
        of=${[
          ["State", html`<${State} value=${version.state} />`],
          ["Modified", html`<${Time} at=${version.mtime_ms} />`],
          ["Discovered", html`<${Time} at=${version.times.discovered_ms} />`],
          ["Planned", html`<${Time} at=${version.times.planned_ms} />`],
          ["Read", html`<${Time} at=${version.times.read_ms} />`],
          ["Published", html`<${Time} at=${version.times.published_ms} />`],
          ["Windows", version.windows.map((id, index) => html`${index ? ", " : ""}<a href=${href(route.app, "windows", { window: id })}>${id}</a>`)],
          ["Rejects", version.rejected ? html`<a href=${href(route.app, "rejects", { file: version.url })}><${Badge} tone="bad">${plural(version.rejected, "reject")}<//></a>` : "none"],
          ["Outputs", version.outputs.length ? html`<ul>${version.outputs.map((output) => html`<li class="mono">${visible(output)}</li>`)}</ul>` : ""],
        ]}
      />
    </div>
  <//>`;
}
