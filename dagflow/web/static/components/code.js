/** Lines of YAML with numbers, and problems below the lines where they are. */
import { html, useEffect, useRef } from "../lib/html.js";
import { visible } from "../lib/format.js";

/** @param {{text: string, problems: {line: number, column: number, message: string}[], target: number}} props */
export function Code({ text, problems, target }) {
  const at = useRef(null);
  useEffect(() => at.current?.scrollIntoView({ block: "center" }), [target, text]);
  return html`<div class="code" tabindex="0" role="region" aria-label="Lines of the app">
    ${text.replace(/\n$/, "").split("\n").map((line, index) => {
      const number = index + 1;
      const own = problems.filter((problem) => problem.line === number);
      const tone = own.length ? "wrong" : number === target ? "target" : "";
      return html`<div key=${number} class="row ${tone}" ref=${number === target ? at : undefined}>
          <span class="line-number">${number}</span><span class="text">${coloured(line)}</span>
        </div>
        ${own.map((problem) => html`<p class="problem">${visible(problem.message)}</p>`)}`;
    })}
  </div>`;
}

/** Keys and remarks in colours of their own. */
function coloured(line) {
  const remark = /(^|\s)#.*$/.exec(line);
  const before = remark ? line.slice(0, remark.index) : line;
  const key = /^(\s*(?:- )?)([\w.$-]+)(:)(?=\s|$)/.exec(before);
  const head = key ? html`${key[1]}<span class="key">${key[2]}</span>:${visible(before.slice(key[0].length))}` : visible(before);
  return html`${head}${remark && html`<span class="remark">${visible(remark[0])}</span>`}`;
}
